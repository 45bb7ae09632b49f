//! The engine model against the monotonic clock: one thread owns it, everyone else sends commands.
//!
//! The thread sleeps until the engine's next wake-up or the next command, whichever comes first. The
//! engine keeps its own ticks: a late wake-up delivers late, but moves no later token. A thread of its
//! own, because tokio's timers have a grain of 1 ms, which is more than a step of a sped-up engine.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Instant;

use elasticserve_core::engine::{Emission, Engine, EngineStats, Prompt, SeqId, Work};
use elasticserve_core::time::{Span, Tick};
use tokio::sync::{mpsc, watch};

/// What the engine is doing and how its requests ended.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The engine's own figures.
    pub engine: EngineStats,
    /// Requests that have ended so far.
    pub finished: Finished,
}

/// Requests that have ended, by reason.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// The model ended the answer.
    pub stop: u64,
    /// The limit on output tokens was reached.
    pub length: u64,
    /// The client had gone before the end.
    pub abort: u64,
}

/// Why an answer ends where it does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

impl Finish {
    /// The word on the wire.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// Work for the engine, and how its answer will end.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) prompt: Prompt,
    /// Prompt tokens.
    pub(crate) input: u32,
    /// Tokens to generate.
    pub(crate) output: u32,
    pub(crate) finish: Finish,
}

/// The thread that runs the engine.
#[derive(Debug)]
pub(crate) struct Driver {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Driver {
    /// Starts the thread. It ends at [`Driver::stop`], or when all handles are gone.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(crate) fn start(engine: Engine) -> io::Result<Self> {
        let (commands, inbox) = channel();
        let (published, snapshot) = watch::channel(Snapshot::default());
        let clock = Clock(Instant::now());
        let mut shop = Shop { engine, clock, seen: Tick::ZERO, open: BTreeMap::new(), finished: Finished::default() };
        let thread =
            std::thread::Builder::new().name("mock-engine".into()).spawn(move || shop.run(&inbox, &published))?;
        let next_tag = Arc::new(AtomicU64::new(0));
        Ok(Self { handle: Handle { commands, snapshot, clock, next_tag }, thread })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the thread and waits for it: as long as it takes to end a step's work, not a sleep.
    pub(crate) fn stop(self) {
        self.handle.send(Command::Stop);
        if self.thread.join().is_err() {
            tracing::error!("the engine's thread had panicked");
        }
    }
}

/// A way to the engine.
///
/// The queue of commands needs no bound of its own: a connection has at most one request in the
/// engine, a request is two commands (submit and abort), and the thread takes commands without waiting.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    snapshot: watch::Receiver<Snapshot>,
    clock: Clock,
    next_tag: Arc<AtomicU64>,
}

impl Handle {
    /// The engine's time.
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Sends work that arrived at `at`. The answer's tokens come out of what is returned; dropping that
    /// gives the work up.
    pub(crate) fn submit(&self, at: Tick, task: Task) -> Running {
        // A number only: no other memory hangs on it.
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        // Room for the whole answer, so the engine never waits for a slow client.
        let (tokens, receiver) = mpsc::channel(task.output.max(1) as usize);
        self.send(Command::Submit { tag, at, task, tokens });
        Running { tag, tokens: receiver, commands: self.commands.clone() }
    }

    /// Forgets all cached prompts, for work that is submitted afterwards.
    pub(crate) fn reset_prefix_cache(&self) {
        self.send(Command::ResetPrefixCache);
    }

    /// What the engine was doing when it last changed.
    pub(crate) fn snapshot(&self) -> Snapshot {
        *self.snapshot.borrow()
    }

    /// The same, for waiting.
    pub(crate) fn watch(&self) -> watch::Receiver<Snapshot> {
        self.snapshot.clone()
    }

    fn send(&self, command: Command) {
        // The thread has ended; whoever waits for tokens finds their channel closed.
        let _ = self.commands.send(command);
    }
}

/// A request inside the engine. Dropping it before the last token frees the seat or the place in the
/// queue; after the last token that does nothing.
#[derive(Debug)]
pub(crate) struct Running {
    tag: u64,
    tokens: mpsc::Receiver<Emission>,
    commands: Sender<Command>,
}

impl Running {
    /// The same to await.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<Emission> {
        self.tokens.recv().await
    }

    /// The next token, or nothing if the engine has stopped.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Emission>> {
        self.tokens.poll_recv(cx)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Abort { tag: self.tag });
    }
}

#[derive(Debug)]
enum Command {
    Submit { tag: u64, at: Tick, task: Task, tokens: mpsc::Sender<Emission> },
    Abort { tag: u64 },
    ResetPrefixCache,
    Stop,
}

#[derive(Copy, Clone, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Tick {
        Tick::ZERO + Span::from_std(self.0.elapsed())
    }
}

/// What the thread owns.
struct Shop {
    engine: Engine,
    clock: Clock,
    /// The latest time the engine was told: it must not go back.
    seen: Tick,
    /// Requests by tag that still await tokens.
    open: BTreeMap<u64, Open>,
    finished: Finished,
}

struct Open {
    seq: SeqId,
    finish: Finish,
    tokens: mpsc::Sender<Emission>,
}

impl Shop {
    fn run(&mut self, inbox: &Receiver<Command>, published: &watch::Sender<Snapshot>) {
        loop {
            self.seen = self.clock.now().max(self.seen);
            self.deliver();
            let current = Snapshot { engine: self.engine.stats(), finished: self.finished };
            published.send_if_modified(|last| std::mem::replace(last, current) != current);
            let command = match self.engine.next_wake() {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => inbox.recv_timeout(at.since(self.clock.now()).to_std()),
            };
            match command {
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Hands out the tokens that are due.
    fn deliver(&mut self) {
        while let Some(token) = self.engine.poll(self.seen) {
            let Some(open) = self.open.get(&token.tag) else { continue };
            // Full cannot be; closed means that an abort is on its way.
            let _ = open.tokens.try_send(token);
            if token.last
                && let Some(open) = self.open.remove(&token.tag)
            {
                self.count(open.finish);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { tag, at, task, tokens } => {
                // It arrived while the thread slept, but the engine may have been told a later time.
                self.seen = self.seen.max(at);
                let Task { prompt, input, output, finish } = task;
                match self.engine.submit(self.seen, Work { tag, prompt, input, output }) {
                    Ok(seq) => drop(self.open.insert(tag, Open { seq, finish, tokens })),
                    // The context is no longer than the engine's room, so requests are refused before.
                    Err(error) => tracing::error!(%error, "the engine refused work"),
                }
            }
            Command::Abort { tag } => {
                let Some(open) = self.open.remove(&tag) else { return };
                if self.engine.abort(self.seen, open.seq) {
                    self.finished.abort += 1;
                } else {
                    // All its tokens were generated; the last ones were on their way.
                    self.count(open.finish);
                }
            }
            Command::ResetPrefixCache => self.engine.reset_prefix_cache(),
            Command::Stop => {}
        }
    }

    const fn count(&mut self, finish: Finish) {
        match finish {
            Finish::Stop => self.finished.stop += 1,
            Finish::Length => self.finished.length += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use elasticserve_core::engine::Profile;

    use super::*;

    fn driver(max_seqs: u32) -> Driver {
        let profile = Profile { max_seqs, ..Profile::built_in("gb10-qwen3-8b-fp8").unwrap().sped_up(10.0) };
        Driver::start(Engine::new(&profile)).unwrap()
    }

    fn task(output: u32) -> Task {
        Task { prompt: Prompt::Unique, input: 64, output, finish: Finish::Length }
    }

    /// The state when so many requests have ended, however they did.
    async fn ended(watch: &mut watch::Receiver<Snapshot>, count: u64) -> Snapshot {
        let total = |f: Finished| f.stop + f.length + f.abort;
        *watch.wait_for(|s| total(s.finished) == count).await.unwrap()
    }

    #[tokio::test]
    async fn tokens_come_in_order_and_never_before_they_are_due() {
        let driver = driver(32);
        let engine = driver.handle();
        let mut running = engine.submit(engine.now(), task(20));
        for index in 1..=20 {
            let token = running.next().await.unwrap();
            assert_eq!((token.index, token.last), (index, index == 20));
            assert!(engine.now() >= token.at, "token {index} came early");
        }
        drop(running);
        driver.stop();
    }

    #[tokio::test]
    async fn a_request_dropped_in_its_seat_lets_the_next_one_in() {
        let driver = driver(1);
        let engine = driver.handle();
        let mut endless = engine.submit(engine.now(), task(2000));
        endless.next().await.unwrap();
        let mut next = engine.submit(engine.now(), task(1));
        let mut watch = engine.watch();
        watch.wait_for(|s| s.engine.waiting == 1).await.unwrap();
        drop(endless);
        assert!(next.next().await.unwrap().last);
        let after = ended(&mut watch, 2).await;
        assert_eq!(after.finished, Finished { stop: 0, length: 1, abort: 1 });
        assert_eq!(after.engine.running, 0);
        driver.stop();
    }

    #[tokio::test]
    async fn a_request_dropped_on_its_way_or_waiting_never_gets_a_seat() {
        let driver = driver(1);
        let engine = driver.handle();
        let mut first = engine.submit(engine.now(), task(2000));
        first.next().await.unwrap();
        let mut watch = engine.watch();
        drop(engine.submit(engine.now(), task(5)));
        assert_eq!(ended(&mut watch, 1).await.finished.abort, 1);
        let waiting = engine.submit(engine.now(), task(5));
        watch.wait_for(|s| s.engine.waiting == 1).await.unwrap();
        drop(waiting);
        let after = ended(&mut watch, 2).await;
        assert_eq!((after.finished.abort, after.engine.waiting, after.engine.running), (2, 0, 1));
        assert_eq!(after.engine.prompt_tokens, 64);
        driver.stop();
    }

    #[tokio::test]
    async fn a_stopped_engine_ends_what_waits_for_it() {
        let driver = driver(1);
        let mut running = driver.handle().submit(driver.handle().now(), task(2000));
        let late = driver.handle().clone();
        driver.stop();
        while running.next().await.is_some() {}
        assert!(late.submit(late.now(), task(1)).next().await.is_none());
    }
}
