//! What is asked for, and how the server finds it in a request that a gateway may have written anew.

use std::time::Duration;

use bytes::Bytes;

/// Events of a stream beside those of its tokens: the role, the reason of the end, and the end itself.
const FRAME_EVENTS: usize = 3;
/// What a prompt has beside its first word.
const PROMPT_BYTES: usize = 1000;

/// The shape of an answer.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Plain,
    Stream(usize, Gaps),
}

/// How the events of a stream come.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Gaps {
    /// As many as fit in each write.
    Burst,
    /// Each in a write of its own.
    Single,
    Paced(Duration),
    /// One, and then none for as long as anybody waits.
    Held,
}

impl Shape {
    pub(crate) fn parse(word: &str) -> Self {
        let parts: Vec<&str> = word.split(':').collect();
        match parts[..] {
            ["plain"] => Self::Plain,
            ["burst", events] => Self::Stream(events.parse().unwrap(), Gaps::Burst),
            ["single", events] => Self::Stream(events.parse().unwrap(), Gaps::Single),
            ["paced", events, ms] => {
                Self::Stream(events.parse().unwrap(), Gaps::Paced(Duration::from_millis(ms.parse().unwrap())))
            }
            _ => panic!("no such shape: {word}"),
        }
    }

    /// The body of a request for it.
    pub(crate) fn request(self) -> Bytes {
        let (word, tokens, stream) = match self {
            Self::Plain => ("plain".to_owned(), 16, false),
            Self::Stream(events, gaps) => {
                let word = match gaps {
                    Gaps::Burst => "burst".to_owned(),
                    Gaps::Single => "single".to_owned(),
                    Gaps::Paced(gap) => format!("paced{}ms", gap.as_millis()),
                    Gaps::Held => "held".to_owned(),
                };
                (word, events.saturating_sub(FRAME_EVENTS), true)
            }
        };
        let text = "lorem ipsum ".repeat(PROMPT_BYTES / 12);
        let messages = format!(r#"[{{"role":"user","content":"{word} {text}"}}]"#);
        format!(r#"{{"model":"m","messages":{messages},"max_tokens":{tokens},"stream":{stream}}}"#).into()
    }

    /// Reads the body of a request, in whatever spacing.
    pub(crate) fn of_request(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let after = |key: &str| {
            let rest = text.split_once(key)?.1;
            Some(rest.trim_start_matches([' ', ':']))
        };
        if after("\"stream\"").is_none_or(|rest| !rest.starts_with("true")) {
            return Self::Plain;
        }
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
        let tokens: usize = after("\"max_tokens\"").and_then(digits).unwrap_or(16);
        let word = after("\"content\"").unwrap_or_default().trim_start_matches('"');
        let gaps = match word {
            _ if word.starts_with("single") => Gaps::Single,
            _ if word.starts_with("held") => Gaps::Held,
            _ => match word.strip_prefix("paced").and_then(digits) {
                Some(ms) => Gaps::Paced(Duration::from_millis(ms as u64)),
                None => Gaps::Burst,
            },
        };
        Self::Stream(tokens + FRAME_EVENTS, gaps)
    }
}
