//! An answer under way: its lanes in the engine, its interface's shape, and its times.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use elasticserve_core::engine::Emission;
use elasticserve_core::time::Tick;

use crate::answer::Answer;
use crate::driver::Handle;
use crate::lane::Lane;
use crate::reply::{Cut, Refusal};
use crate::response::ResponseAnswer;
use crate::truth::Record;

/// An answer in its interface's shape.
#[derive(Debug)]
pub(crate) enum Shape {
    Choices(Answer),
    Response(ResponseAnswer),
}

/// What an answer is made of. Dropping it frees its seats.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) shape: Shape,
    pub(crate) lanes: Lanes,
    pub(crate) engine: Handle,
    pub(crate) record: Option<Record>,
}

impl Work {
    /// Waits for all tokens and gives the whole answer as JSON.
    ///
    /// # Errors
    /// If the engine stops before the end.
    pub(crate) async fn whole(mut self) -> Result<Vec<u8>, Refusal> {
        let mut texts = vec![String::new(); self.lanes.all.len()];
        let mut due = Vec::new();
        while !self.lanes.all_done() {
            let next = poll_fn(|cx| self.lanes.poll_next(cx)).await;
            let (index, token, word) = next.ok_or_else(Refusal::stopped)?;
            texts[index as usize].push_str(&word);
            due.push(token.at);
        }
        let json = match &self.shape {
            Shape::Choices(answer) => answer.whole(&self.lanes.all, &texts),
            Shape::Response(answer) => answer.whole(&self.lanes.all[0], &texts[0]),
        };
        if let Some(record) = &mut self.record {
            let now = self.engine.now();
            due.into_iter().for_each(|due| record.token(due, now));
            record.whole();
        }
        Ok(json)
    }
}

/// The choices of an answer.
#[derive(Debug)]
pub(crate) struct Lanes {
    all: Vec<Lane>,
    /// Where to look first, so that no choice starves another.
    next: usize,
}

impl Lanes {
    pub(crate) const fn new(all: Vec<Lane>) -> Self {
        Self { all, next: 0 }
    }

    fn all_done(&self) -> bool {
        self.all.iter().all(|lane| lane.done)
    }

    /// The next token of any lane: the lane's place, the token and its text; nothing if the engine has
    /// stopped. Not to be called once all are done.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u32, Emission, String)>> {
        let count = self.all.len();
        for index in (self.next..count).chain(0..self.next) {
            let lane = &mut self.all[index];
            if lane.done {
                continue;
            }
            if let Poll::Ready(token) = lane.running.poll_next(cx) {
                self.next = (index + 1) % count;
                return Poll::Ready(token.map(|token| (index as u32, token, lane.take(token))));
            }
        }
        Poll::Pending
    }
}

/// An answer as a stream of events, one frame each.
#[derive(Debug)]
pub(crate) struct Events {
    work: Work,
    /// Events of the token at hand, and for the last of a token's events when it was due.
    ready: VecDeque<(Bytes, Option<Tick>)>,
    ended: bool,
}

impl Events {
    pub(crate) fn new(mut work: Work) -> Self {
        let mut ready = VecDeque::new();
        if let Shape::Response(answer) = &mut work.shape {
            answer.opening(&mut |event| ready.push_back((event, None)));
        }
        Self { work, ready, ended: false }
    }

    /// The next event, ready for the wire.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        loop {
            if let Some((event, due)) = self.ready.pop_front() {
                self.note(due);
                return Poll::Ready(Some(Ok(event)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.work.lanes.poll_next(cx)) {
                Some((index, token, word)) => self.push_token(index, token, word),
                None => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(Cut)));
                }
            }
        }
    }

    /// Whether all has been given out.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    fn push_token(&mut self, index: u32, token: Emission, word: String) {
        // The text of a token lies in the first event that is no announcement.
        let announced = match &self.work.shape {
            Shape::Choices(answer) => usize::from(answer.announces() && token.index == 1),
            Shape::Response(_) => {
                if token.index == 1 {
                    2
                } else {
                    0
                }
            }
        };
        let (ready, mut count) = (&mut self.ready, 0);
        let mut sink = |event| {
            ready.push_back((event, (count == announced).then_some(token.at)));
            count += 1;
        };
        match &mut self.work.shape {
            Shape::Choices(answer) => answer.token(&self.work.lanes.all, index, token, word, &mut sink),
            Shape::Response(answer) => answer.token(&self.work.lanes.all[0], token, &word, &mut sink),
        }
        self.ended = self.work.lanes.all_done();
    }

    fn note(&mut self, due: Option<Tick>) {
        let Some(record) = &mut self.work.record else { return };
        if let Some(due) = due {
            record.token(due, self.work.engine.now());
        }
        if self.ended && self.ready.is_empty() {
            record.whole();
        }
    }
}

#[cfg(test)]
mod tests {
    use elasticserve_core::engine::{Engine, Profile};

    use super::*;
    use crate::driver::Driver;
    use crate::lane::Script;
    use crate::request::{Api, Served, read_ask};

    #[tokio::test]
    async fn a_stream_whose_engine_stops_never_ends_as_if_it_were_whole() {
        let driver = Driver::start(Engine::new(&Profile::built_in("gb10-qwen3-8b-fp8").unwrap())).unwrap();
        let served = Served { model: "m".into(), max_model_len: 8192, block_tokens: 16 };
        let ask = read_ask(Api::Completion, br#"{"prompt":"x","max_tokens":8000}"#, &served).unwrap();
        let engine = driver.handle().clone();
        let running = engine.submit(engine.now(), ask.task.clone());
        let lanes = Lanes::new(vec![Lane::new(Script::new("id", 0, &ask.task, &[]), running)]);
        let shape = Shape::Choices(Answer::new(Api::Completion, "id", 0, "m", &ask));
        let mut events = Events::new(Work { shape, lanes, engine, record: None });
        driver.stop();
        loop {
            match std::future::poll_fn(|cx| events.poll_event(cx)).await {
                Some(Ok(event)) => assert_ne!(event, "data: [DONE]\n\n"),
                other => break assert!(matches!(other, Some(Err(Cut)))),
            }
        }
        assert!(events.is_done());
    }
}
