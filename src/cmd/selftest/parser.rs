//! Readers of streams: our own, and any command.

use std::io::{self, Read, Write};
use std::process::Stdio;
use std::thread;

use elasticserve_core::openai::Reader;
use elasticserve_core::sse::Parser;
use serde_json::{Value, json};

use super::case::Case;

/// The most bytes of a command's reading.
const MAX_READING: u64 = 64 << 20;

/// The reading of a stream by our own reader, in these pieces.
pub(super) fn read_chunks(chunks: &[&[u8]]) -> Value {
    let mut own = Own::default();
    chunks.iter().for_each(|chunk| own.feed(chunk));
    own.reading()
}

/// The same of what comes from elsewhere.
pub(super) fn read_all(source: &mut impl Read) -> io::Result<Value> {
    let (mut own, mut buffer) = (Own::default(), vec![0; 64 << 10]);
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(own.reading()),
            n => own.feed(&buffer[..n]),
        }
    }
}

struct Own {
    parser: Parser,
    events: Vec<Value>,
    reader: Reader,
    unreadable: bool,
}

impl Default for Own {
    fn default() -> Self {
        Self { parser: Parser::new(), events: Vec::new(), reader: Reader::keeping_text(), unreadable: false }
    }
}

impl Own {
    fn feed(&mut self, chunk: &[u8]) {
        let events = &mut self.events;
        self.parser.feed(chunk, |event| events.push(event_json(event.kind, event.data)));
        self.unreadable = self.unreadable || self.reader.feed(chunk, |_| {}).is_err();
    }

    fn reading(mut self) -> Value {
        let events = &mut self.events;
        self.parser.finish(|event| events.push(event_json(event.kind, event.data)));
        self.unreadable = self.unreadable || self.reader.finish(|_| {}).is_err();
        // A reading of numbers and texts always serialises.
        let mut answer = serde_json::to_value(self.reader.reading()).unwrap_or_default();
        answer["unreadable"] = self.unreadable.into();
        if self.unreadable {
            answer = json!({ "unreadable": true });
        }
        json!({ "events": self.events, "comments": self.parser.counts().comments, "answer": answer })
    }
}

fn event_json(kind: &[u8], data: &[u8]) -> Value {
    json!({ "event": String::from_utf8_lossy(kind), "data": String::from_utf8_lossy(data) })
}

/// A shell command that reads a stream on stdin and prints its reading.
pub(super) struct Command<'a>(pub(super) &'a str);

impl Command<'_> {
    /// Holds it to a case; what is wrong, if anything.
    pub(super) fn check(&self, case: &Case) -> Option<String> {
        let said = match self.run(&case.bytes) {
            Ok(said) => said,
            Err(error) => return Some(format!("the command failed: {error}")),
        };
        match serde_json::from_slice::<Value>(&said) {
            Ok(reading) => case.problem(&reading),
            Err(error) => Some(format!("the command did not print a reading as JSON: {error}")),
        }
    }

    fn run(&self, stream: &[u8]) -> io::Result<Vec<u8>> {
        let mut child = std::process::Command::new("sh");
        child.args(["-c", self.0]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut said = Vec::new();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut stdin = stdin?;
                // In two writes. A command that has ended reads no more, which its answer will show.
                let (first, second) = stream.split_at(stream.len() / 2);
                stdin.write_all(first).and_then(|()| stdin.flush()).and_then(|()| stdin.write_all(second)).ok()
            });
            stdout.map_or(Ok(0), |out| out.take(MAX_READING).read_to_end(&mut said))
        })?;
        let status = child.wait()?;
        if status.success() { Ok(said) } else { Err(io::Error::other(format!("it ended with {status}"))) }
    }
}
