//! Lines of a file, read and parsed in blocks on every core, and handed on in their order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, mpsc};
use std::thread;

use crate::MAX_LINE;

/// The bytes of a block. A block is parsed by one thread.
const BLOCK: u64 = 4 << 20;
/// The most blocks for each thread that are parsed and not yet handed on.
const AHEAD: u64 = 3;
/// The bytes by which a line is followed beyond its block.
const STRIDE: usize = 64 << 10;

/// What stopped the reading.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The system refused.
    Io(io::Error),
    /// A line, counted from 1, is not what it should be.
    Line(usize, String),
}

/// The lines that begin in a block.
struct Block<T> {
    parsed: Vec<T>,
    /// Why the line after those is none.
    stop: Option<Stop>,
    /// Whether the file ends within a line that is none.
    torn: bool,
}

/// Parses every line of a file and takes in what they hold, in order. Says whether the file ends within a line that
/// does not parse, which is left out.
///
/// # Errors
/// [`Stop`] at the first line that `parse` or `take` refuse, or that is longer than [`MAX_LINE`].
pub(crate) fn each_line<T: Send>(
    file: &File,
    parse: impl Fn(&[u8]) -> Result<T, String> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), String>,
) -> Result<bool, Stop> {
    let source = Source { file, length: file.metadata().map_err(Stop::Io)?.len(), block: BLOCK };
    let mut line = 0;
    let mut torn = false;
    in_order(&source, &parse, |block| {
        for value in block.parsed {
            line += 1;
            take(line, value).map_err(|problem| Stop::Line(line, problem))?;
        }
        torn |= block.torn;
        match block.stop {
            None => Ok(()),
            // Within its block a line is counted from the first that was refused.
            Some(Stop::Line(_, problem)) => Err(Stop::Line(line + 1, problem)),
            Some(stop) => Err(stop),
        }
    })?;
    Ok(torn)
}

/// A file in blocks.
struct Source<'a> {
    file: &'a File,
    length: u64,
    block: u64,
}

/// Hands on the blocks of a file in their order, parsed by as many threads as there are cores.
fn in_order<T: Send>(
    source: &Source,
    parse: &(impl Fn(&[u8]) -> Result<T, String> + Sync),
    mut take: impl FnMut(Block<T>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let blocks = source.length.div_ceil(source.block);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(blocks.max(1) as usize) as u64;
    let next = AtomicU64::new(0);
    // The blocks that were handed on; all of them once nothing more is wanted.
    let (handed, more) = (Mutex::new(0_u64), Condvar::new());
    thread::scope(|scope| {
        let (give, come) = mpsc::channel::<(u64, Block<T>)>();
        for _ in 0..threads {
            let give = give.clone();
            let (next, handed, more) = (&next, &handed, &more);
            scope.spawn(move || {
                loop {
                    let block = next.fetch_add(1, Ordering::Relaxed);
                    if block >= blocks || !wait(handed, more, block, threads * AHEAD) {
                        return;
                    }
                    if give.send((block, source.parsed(block, parse))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(give);
        let mut waiting = BTreeMap::new();
        let mut result = Ok(());
        let mut wanted = 0;
        while let Ok((place, block)) = come.recv() {
            waiting.insert(place, block);
            while let (true, Some(block)) = (result.is_ok(), waiting.remove(&wanted)) {
                result = take(block);
                wanted += 1;
            }
            let reached = if result.is_ok() { wanted } else { u64::MAX };
            *handed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = reached;
            more.notify_all();
        }
        result
    })
}

/// Waits until a block is at most so many ahead of what was handed on; says whether it is still wanted.
fn wait(handed: &Mutex<u64>, more: &Condvar, block: u64, ahead: u64) -> bool {
    let held = handed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let waiting = more.wait_while(held, |handed| block >= handed.saturating_add(ahead));
    *waiting.unwrap_or_else(std::sync::PoisonError::into_inner) != u64::MAX
}

impl Source<'_> {
    fn parsed<T>(&self, block: u64, parse: &impl Fn(&[u8]) -> Result<T, String>) -> Block<T> {
        let mut out = Block { parsed: Vec::new(), stop: None, torn: false };
        if let Err(stop) = self.parse_into(&mut out, block, parse) {
            out.stop = Some(stop);
        }
        out
    }

    fn parse_into<T>(
        &self,
        out: &mut Block<T>,
        block: u64,
        parse: &impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<(), Stop> {
        let from = block * self.block;
        let to = (from + self.block).min(self.length);
        // With the byte before it, to see whether a line begins at the block's start.
        let before = u64::from(block > 0);
        let mut bytes = vec![0; (to - from + before) as usize];
        self.file.read_exact_at(&mut bytes, from - before).map_err(Stop::Io)?;
        let mut rest = &bytes[..];
        if before > 0 {
            let Some(end) = memchr(rest) else { return Ok(()) };
            rest = &rest[end + 1..];
        }
        while let Some(end) = memchr(rest) {
            let (line, after) = rest.split_at(end + 1);
            out.parsed.push(self.line(line, parse)?);
            rest = after;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let mut last = rest.to_vec();
        let whole = self.follow(&mut last, to)?;
        match self.line(&last, parse) {
            Ok(value) => out.parsed.push(value),
            Err(Stop::Line(..)) if !whole && (last.len() as u64) < MAX_LINE => out.torn = true,
            Err(stop) => return Err(stop),
        }
        Ok(())
    }

    fn line<T>(&self, line: &[u8], parse: &impl Fn(&[u8]) -> Result<T, String>) -> Result<T, Stop> {
        if line.len() as u64 > MAX_LINE {
            return Err(Stop::Line(0, format!("longer than {MAX_LINE} bytes")));
        }
        parse(line).map_err(|problem| Stop::Line(0, problem))
    }

    /// Reads on to the end of a line, or one byte beyond the longest one. Says whether the line has its end.
    fn follow(&self, line: &mut Vec<u8>, mut at: u64) -> Result<bool, Stop> {
        while at < self.length && line.len() as u64 <= MAX_LINE {
            let from = line.len();
            line.resize(from + STRIDE.min((self.length - at) as usize), 0);
            self.file.read_exact_at(&mut line[from..], at).map_err(Stop::Io)?;
            if let Some(end) = memchr(&line[from..]) {
                line.truncate(from + end + 1);
                return Ok(true);
            }
            at += (line.len() - from) as u64;
        }
        Ok(false)
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == b'\n')
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// All lines of a text, read in blocks of a size, or the line that was refused. Lines with `!` do not parse.
    fn read(text: &str, block: u64) -> Result<(Vec<String>, bool), (usize, String)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let source = Source { file: &file, length: text.len() as u64, block };
        let parse = |line: &[u8]| {
            let line = String::from_utf8(line.to_vec()).unwrap().trim_end().to_owned();
            if line.contains('!') { Err("refused".to_owned()) } else { Ok(line) }
        };
        let (mut lines, mut torn) = (Vec::new(), false);
        let result = in_order(&source, &parse, |block| {
            lines.extend(block.parsed);
            torn |= block.torn;
            block.stop.map_or(Ok(()), Err)
        });
        match result {
            Ok(()) => Ok((lines, torn)),
            Err(Stop::Line(_, problem)) => Err((lines.len() + 1, problem)),
            Err(Stop::Io(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn whatever_the_size_of_the_blocks_every_line_is_read_once_and_in_order() {
        let lines: Vec<String> = (0..300).map(|i| "x".repeat(i % 23) + &i.to_string()).collect();
        let text = lines.join("\n") + "\n";
        for block in [1, 2, 3, 7, 16, 64, 1000, 1 << 20] {
            assert_eq!(read(&text, block).unwrap(), (lines.clone(), false), "blocks of {block}");
            assert_eq!(read(text.trim_end(), block).unwrap(), (lines.clone(), false), "without its last end");
        }
        assert_eq!(read("", 4).unwrap(), (vec![], false));
    }

    #[test]
    fn the_first_bad_line_is_named_and_one_that_the_file_ends_within_is_torn() {
        for block in [1, 5, 1 << 20] {
            assert_eq!(read("a\nb\nc!\nd\ne!\n", block), Err((3, "refused".into())), "blocks of {block}");
            assert_eq!(read("a\nb\nc!", block).unwrap(), (vec!["a".into(), "b".into()], true), "blocks of {block}");
            assert_eq!(read("a\n\nb!\n", block), Err((3, "refused".into())), "an empty line counts");
        }
    }
}
