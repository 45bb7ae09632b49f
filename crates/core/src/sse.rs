//! A parser for server-sent events, fed with chunks of any size.
//!
//! It follows the event stream interpretation of the WHATWG HTML standard (section 9.2.6): lines end
//! with LF, CR or CRLF, even when the two are split between chunks; a leading byte order mark is
//! skipped; a line that starts with a colon is a comment; one space after the field's colon is
//! dropped; several `data` lines are joined with LF. It differs in one point on purpose: an event at
//! the end of the stream that lacks its blank line is delivered by [`Parser::finish`], because servers
//! exist that omit it and a tool that measures must not lose a token.
//!
//! Bytes are not decoded here. A character split between chunks is whole again in the event's data.

/// An event as it stands in the stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The value of the last `event` field, empty if there was none.
    pub kind: &'a [u8],
    /// The values of the `data` fields, joined with LF.
    pub data: &'a [u8],
}

/// What the parser came across besides events.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events delivered.
    pub events: u64,
    /// Comment lines, which servers send to keep a connection open.
    pub comments: u64,
    /// Events left out because their data was longer than [`Parser::MAX_EVENT`].
    pub oversized: u64,
}

/// The state between two chunks.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    kind: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    oversized: bool,
    after_cr: bool,
    bom: Bom,
    counts: Counts,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Bom {
    /// So many bytes of a byte order mark have been seen.
    Seen(u8),
    #[default]
    NotLookedFor,
    Past,
}

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

impl Parser {
    /// The most bytes that a line or the data of an event may hold; more is counted and left out.
    pub const MAX_EVENT: usize = 8 << 20;

    /// A parser at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What has been seen so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the bytes so far end between two events, so that an event of one's own may follow.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data && self.kind.is_empty() && !matches!(self.bom, Bom::Seen(_))
    }

    /// Reads a chunk and hands each event that it completes to `sink`.
    pub fn feed(&mut self, chunk: &[u8], mut sink: impl FnMut(Event<'_>)) {
        let mut rest = self.skip_bom(chunk);
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            if self.line.is_empty() {
                self.take_line(&rest[..end], &mut sink);
            } else {
                self.push_line(&rest[..end]);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut sink);
                self.line = line;
                self.line.clear();
            }
            let was_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if was_cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        self.push_line(rest);
    }

    /// Ends the stream: a last line or event without its line end is delivered too.
    pub fn finish(&mut self, mut sink: impl FnMut(Event<'_>)) {
        if let Bom::Seen(n) = self.bom {
            self.bom = Bom::Past;
            self.push_line(&BOM[..n as usize]);
        }
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, &mut sink);
        }
        self.dispatch(&mut sink);
    }

    fn skip_bom<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let mut seen = match self.bom {
            Bom::Past => return chunk,
            Bom::NotLookedFor => 0,
            Bom::Seen(n) => n as usize,
        };
        let already = seen;
        let mut used = 0;
        while seen < BOM.len() {
            match chunk.get(used) {
                Some(&byte) if byte == BOM[seen] => {
                    seen += 1;
                    used += 1;
                }
                Some(_) => {
                    // Not a mark after all: what looked like its start belongs to the first line.
                    self.bom = Bom::Past;
                    self.push_line(&BOM[..already]);
                    return chunk;
                }
                None => {
                    self.bom = if seen == 0 { Bom::NotLookedFor } else { Bom::Seen(seen as u8) };
                    return &[];
                }
            }
        }
        self.bom = Bom::Past;
        &chunk[used..]
    }

    fn push_line(&mut self, bytes: &[u8]) {
        if self.line.first() == Some(&b':') {
            // The rest of a comment, however long, concerns nobody.
            return;
        }
        if self.line.len() + bytes.len() > Self::MAX_EVENT {
            self.oversized = true;
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn take_line(&mut self, line: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        if line.is_empty() {
            return self.dispatch(sink);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(0) => {
                self.counts.comments += 1;
                return;
            }
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.data.len() + value.len() >= Self::MAX_EVENT {
                    self.oversized = true;
                    return;
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.kind.clear();
                self.kind.extend_from_slice(value);
            }
            // `id` and `retry` steer reconnection, which neither side here does; others are ignored.
            _ => {}
        }
    }

    fn dispatch(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if self.oversized {
            self.counts.oversized += 1;
        } else if self.has_data {
            self.counts.events += 1;
            sink(Event { kind: &self.kind, data: &self.data });
        }
        self.oversized = false;
        self.has_data = false;
        self.data.clear();
        self.kind.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> (Vec<(String, String)>, Counts) {
        let mut parser = Parser::new();
        let mut events = Vec::new();
        let mut keep = |e: Event<'_>| {
            events.push((String::from_utf8_lossy(e.kind).into_owned(), String::from_utf8_lossy(e.data).into_owned()));
        };
        for chunk in chunks {
            parser.feed(chunk, &mut keep);
        }
        parser.finish(&mut keep);
        (events, parser.counts())
    }

    fn data(chunks: &[&[u8]]) -> Vec<String> {
        read(chunks).0.into_iter().map(|(_, d)| d).collect()
    }

    #[test]
    fn every_line_ending_ends_a_line() {
        for text in ["data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n"] {
            assert_eq!(data(&[text.as_bytes()]), ["a", "b"], "{text:?}");
        }
    }

    #[test]
    fn a_crlf_split_between_chunks_is_one_line_end() {
        assert_eq!(data(&[b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"]), ["a\nb"]);
    }

    #[test]
    fn a_character_split_between_chunks_arrives_whole() {
        assert_eq!(data(&[b"data: \xe2\x82", b"\xac\n\n"]), ["\u{20ac}"]);
    }

    #[test]
    fn comments_are_counted_and_are_not_text() {
        let (events, counts) = read(&[b": ping\n\n", b"data: a\n: again\n\n"]);
        assert_eq!(events, [(String::new(), "a".into())]);
        assert_eq!(counts.comments, 2);
    }

    #[test]
    fn the_space_after_the_colon_is_optional_and_only_one_is_dropped() {
        assert_eq!(data(&[b"data:a\n\ndata:  b\n\n"]), ["a", " b"]);
    }

    #[test]
    fn a_last_event_without_its_blank_line_is_not_lost() {
        assert_eq!(data(&[b"data: a\n\ndata: [DONE]"]), ["a", "[DONE]"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_once_however_it_is_split() {
        assert_eq!(data(&[b"\xef", b"\xbb", b"\xbfdata: a\n\n"]), ["a"]);
        assert_eq!(data(&[b"\xef\xbb\xbfdata: a\n\n"]), ["a"]);
        // A lone first byte of the mark belongs to the field name, which is then unknown.
        assert_eq!(data(&[b"\xef", b"data: a\n\n"]), Vec::<String>::new());
    }

    #[test]
    fn data_lines_are_joined_and_the_kind_is_kept_for_one_event() {
        let (events, _) = read(&[b"event: error\ndata: a\ndata\ndata: b\n\ndata: c\n\n"]);
        assert_eq!(events, [("error".into(), "a\n\nb".into()), (String::new(), "c".into())]);
    }

    #[test]
    fn an_event_beyond_the_bound_is_counted_and_the_next_one_is_read() {
        let long = vec![b'x'; Parser::MAX_EVENT + 1];
        let (events, counts) = read(&[b"data: ", &long, b"\n\ndata: a\n\n"]);
        assert_eq!(events, [(String::new(), "a".into())]);
        assert_eq!(counts.oversized, 1);
    }

    #[test]
    fn a_comment_beyond_the_bound_takes_no_event_with_it() {
        let long = vec![b'x'; Parser::MAX_EVENT + 1];
        let (events, counts) = read(&[b"data: a\n:", &long, &long, b"\n\n"]);
        assert_eq!(events, [(String::new(), "a".into())]);
        assert_eq!((counts.oversized, counts.comments), (0, 1));
    }

    /// 5,000 streams of random lines, each read whole and in random pieces of it.
    #[test]
    fn events_do_not_depend_on_how_a_stream_is_split() {
        let parts: [&[u8]; 18] = [
            b"data",
            b":",
            b" ",
            b"a",
            b"\n",
            b"\r",
            b"\r\n",
            b"event",
            b"id",
            b"\xef\xbb\xbf",
            b"\xef",
            b"\xe2\x82\xac",
            b"\n\n",
            b"\r\r",
            b": ping",
            b"data: x\n",
            b"data:{\"a\":1}\r\n\r\n",
            b"retry: 5",
        ];
        for seed in 0..5000 {
            let mut random = crate::rng::Random::new(seed, crate::rng::Stream::Prompts);
            let mut pick = |most: usize| random.between(0, most as u64) as usize;
            let stream: Vec<u8> = (0..pick(40)).flat_map(|_| parts[pick(parts.len() - 1)]).copied().collect();
            let whole = read(&[&stream]);
            for most in [1, 3, 20] {
                let (mut rest, mut chunks) = (&stream[..], Vec::new());
                while !rest.is_empty() {
                    let (chunk, after) = rest.split_at(rest.len().min(pick(most)));
                    chunks.push(chunk);
                    rest = after;
                }
                assert_eq!(read(&chunks), whole, "seed {seed}: {:?}", String::from_utf8_lossy(&stream));
            }
        }
    }

    #[test]
    fn a_foreign_event_may_be_added_only_between_events() {
        let mut parser = Parser::new();
        assert!(parser.is_between_events());
        parser.feed(b"data: a\n", |_| {});
        assert!(!parser.is_between_events());
        parser.feed(b"\n", |_| {});
        assert!(parser.is_between_events());
        parser.feed(b"da", |_| {});
        assert!(!parser.is_between_events());
    }
}
