//! A scripted backend that answers when the engine model says, on a paused clock.

use std::collections::BTreeMap;

use elasticserve_core::engine::{Engine, Profile, Prompt, SeqId, Work};
use elasticserve_core::time::{Span, Tick};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::backend::{Backend, Call, Responding};

/// From the last token to the end of the body.
pub(crate) const TAIL: Span = Span::from_millis(1);

/// An engine with so many seats whose steps take 40 ms, and 50 ms with a prefill; everything else takes no time but
/// the way in. So all that it does falls on whole milliseconds, which is the grain of tokio's timer.
pub(crate) fn profile(seats: u32) -> Profile {
    let mut profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    (profile.base_ms, profile.kv_ms_per_token, profile.prefill_step_ms) = (40.0, 0.0, 10.0);
    (profile.prefill_ms_per_token, profile.attention_ms) = (0.0, 0.0);
    (profile.overhead_in, profile.overhead_out) = (Span::from_millis(3), Span::ZERO);
    profile.max_seqs = seats;
    profile
}

/// What a request takes: its number, prompt and answer tokens.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) input: u32,
    pub(crate) output: u32,
}

/// The engine behind a gateway over pipes.
pub(crate) struct EngineBackend {
    engine: Engine,
    running: BTreeMap<u64, (SeqId, Responding)>,
    ending: Vec<(Tick, Responding)>,
    /// Ends with a request's number when the gateway has left it.
    leaving: JoinSet<u64>,
    origin: Instant,
}

impl EngineBackend {
    pub(crate) fn new(seats: u32, origin: Instant) -> Self {
        let (running, ending, leaving) = (BTreeMap::new(), Vec::new(), JoinSet::new());
        Self { engine: Engine::new(&profile(seats)), running, ending, leaving, origin }
    }

    /// Answers all calls until every client is done, and gives what the clients came to.
    pub(crate) async fn serve<T: 'static>(
        mut self,
        backend: &mut Backend,
        clients: &mut JoinSet<T>,
        what: impl Fn(&Call) -> Asked,
    ) -> Vec<T> {
        let mut all = Vec::new();
        loop {
            self.act();
            let wake = self.next_wake().map(|at| self.origin + at.since(Tick::ZERO).to_std());
            tokio::select! {
                Some(call) = backend.next_call() => {
                    let asked = what(&call);
                    self.submit(asked, call.stream());
                }
                Some(left) = self.leaving.join_next() => self.cut(left.unwrap()),
                () = sleep_until(wake.unwrap_or(self.origin)), if wake.is_some() => {}
                done = clients.join_next() => match done {
                    Some(done) => all.push(done.unwrap()),
                    None => return all,
                },
            }
        }
    }

    fn now(&self) -> Tick {
        Tick::ZERO + Span::from_std(self.origin.elapsed())
    }

    fn submit(&mut self, asked: Asked, responding: Responding) {
        let Asked { number, input, output } = asked;
        let work = Work { tag: number, prompt: Prompt::Unique, input, output };
        let now = self.now();
        let seq = self.engine.submit(now, work).unwrap();
        let gone = responding.gone();
        self.leaving.spawn(async move {
            gone.await;
            number
        });
        self.running.insert(number, (seq, responding));
    }

    /// The gateway has left a request, if it was not at its end.
    fn cut(&mut self, number: u64) {
        if let Some((seq, _)) = self.running.remove(&number) {
            self.engine.abort(self.now(), seq);
        }
    }

    /// Sends the tokens that are due, and ends what has had its last one for long enough.
    fn act(&mut self) {
        let now = self.now();
        self.ending.retain(|(at, _)| *at > now);
        while let Some(token) = self.engine.poll(now) {
            assert_eq!(token.at, now, "a token would be late");
            let (_, responding) = &self.running[&token.tag];
            responding.event(r#"{"choices":[{"text":"a"}]}"#);
            if token.last {
                self.ending.extend(self.running.remove(&token.tag).map(|(_, responding)| (now + TAIL, responding)));
            }
        }
    }

    fn next_wake(&self) -> Option<Tick> {
        self.ending.iter().map(|(at, _)| *at).chain(self.engine.next_output()).min()
    }
}
