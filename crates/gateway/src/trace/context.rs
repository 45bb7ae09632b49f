//! A place in a trace, as W3C's `traceparent` says it: `00-TRACE-SPAN-FLAGS`, in lower-case hexadecimal.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;
/// The length of the fields of version 0.
const LENGTH: usize = 55;

/// A place in a trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) sampled: bool,
}

impl Context {
    /// The caller's place, if it says one in due form.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let text = values.next()?.to_str().ok()?;
        if values.next().is_some() { None } else { Self::parse(text) }
    }

    fn parse(text: &str) -> Option<Self> {
        let hex = |field: &str| field.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let fields: Vec<&str> = text.get(..LENGTH)?.split('-').collect();
        let &[version, trace, span, flags] = fields.as_slice() else { return None };
        let sizes = [version.len(), trace.len(), span.len(), flags.len()] == [2, 32, 16, 2];
        if !sizes || !fields.iter().all(|f| hex(f)) || version == "ff" {
            return None;
        }
        // Later versions may say more, after another dash.
        let rest = &text[LENGTH..];
        if !rest.is_empty() && (version == "00" || !rest.starts_with('-')) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, sampled: flags & SAMPLED != 0 })
    }

    /// The value of `traceparent`.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let Self { trace, span, sampled } = self;
        HeaderValue::from_str(&format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(*sampled))).ok()
    }
}

/// Ids that nobody else makes: a counter under a hash whose keys the system draws at random.
pub(super) struct Ids {
    keys: [RandomState; 2],
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { keys: [RandomState::new(), RandomState::new()], next: AtomicU64::new(0) }
    }

    pub(super) fn trace(&self) -> u128 {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [0, 1].map(|i: usize| u128::from(self.keys[i].hash_one(n)));
        (high << 64 | low).max(1)
    }

    pub(super) fn span(&self) -> u64 {
        self.trace() as u64 | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_and_written_as_the_recommendation_has_it() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::parse(text).unwrap();
        assert_eq!((context.span, context.sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.header().unwrap(), text);
        assert!(!Context::parse(&text.replace("-01", "-00")).unwrap().sampled);
        let later = format!("cc-{}-what-the-future-says", &text[3..]);
        assert_eq!(Context::parse(&later), Some(context));
    }

    #[test]
    fn what_is_not_in_due_form_is_no_place() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for bad in [
            "",
            "00",
            &good[..54],
            &format!("{good}-x"),
            &format!("{good}0"),
            &good.replace("00-4", "ff-4"),
            &good.replace("4bf9", "4BF9"),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            &good.replace("00f067aa0ba902b7", "0000000000000000"),
            &good.replace("-01", "-0x"),
            &good.replace("-00f0", "x00f0"),
            &format!("{}é", &good[..54]),
        ] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
        let mut twice = HeaderMap::new();
        twice.append(TRACEPARENT, good.parse().unwrap());
        assert!(Context::of(&twice).is_some());
        twice.append(TRACEPARENT, good.parse().unwrap());
        assert_eq!(Context::of(&twice), None);
    }

    #[test]
    fn ids_differ() {
        let ids = Ids::new();
        let all: std::collections::BTreeSet<u128> = (0..10_000).map(|_| ids.trace()).collect();
        assert_eq!(all.len(), 10_000);
        assert_ne!(Ids::new().trace(), Ids::new().trace());
    }
}
