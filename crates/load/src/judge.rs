//! The terminal state of an exchange, from how it ended and what the answer held.

use elasticserve_core::outcome::Terminal;

/// How an exchange came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client had no socket or port left to connect with.
    NoSocket(String),
    /// No connection could be made.
    NoConnection(String),
    /// The connection ended before the head of an answer was complete.
    NoHead(String),
    /// The bytes are not what they should be, by HTTP or by the answer's own format.
    Garbage(String),
    /// A limit on time ran out.
    TimedOut(Limit),
    /// The body ended as it should.
    Whole,
    /// The connection ended within the body.
    Cut(String),
    /// The drain ended, or the user cut the run.
    RunEnded,
}

/// A limit on time. Of two that run out together the first is named.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    /// Until there is a connection.
    Connect,
    /// Until the first usable content.
    Ttft,
    /// Between two reads of the answer.
    Idle,
    /// Until the end.
    Total,
}

/// What the answer held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The HTTP status, if a head came.
    pub(crate) status: Option<u16>,
    /// Whether there was anything a user can use.
    pub(crate) has_content: bool,
    /// Whether a finish reason or `[DONE]` came.
    pub(crate) finished: bool,
    /// The message of an error inside a successful answer.
    pub(crate) stream_error: Option<String>,
    /// Answer tokens by the server's `usage`.
    pub(crate) usage_tokens: Option<u32>,
    /// The length that was forced.
    pub(crate) forced: Option<u32>,
}

/// The terminal state, and what went wrong in our words.
///
/// A status that is not a success decides by itself. After a success, an error that the server told
/// comes before what happened to the connection then: it is the cause.
pub(crate) fn judge(ending: &Ending, facts: &Facts) -> (Terminal, Option<String>) {
    match facts.status {
        Some(429 | 503) => return (Terminal::Rejected, None),
        Some(status) if !(200..300).contains(&status) => return (Terminal::HttpError, Some(format!("HTTP {status}"))),
        _ => {}
    }
    if let Some(message) = &facts.stream_error {
        return (Terminal::StreamError, Some(message.clone()));
    }
    let because = |state, why: &str| (state, Some(why.to_owned()));
    match ending {
        Ending::NoSocket(why) => because(Terminal::UnsentClientCap, why),
        Ending::NoConnection(why) => because(Terminal::Refused, why),
        Ending::NoHead(why) | Ending::Cut(why) => because(Terminal::Truncated, why),
        Ending::Garbage(why) => because(Terminal::ProtocolError, why),
        Ending::TimedOut(Limit::Connect) => (Terminal::TimeoutConnect, None),
        Ending::TimedOut(Limit::Ttft) => (Terminal::TimeoutTtft, None),
        Ending::TimedOut(Limit::Idle) => (Terminal::TimeoutIdle, None),
        Ending::TimedOut(Limit::Total) => (Terminal::TimeoutTotal, None),
        Ending::RunEnded => (Terminal::Censored, None),
        Ending::Whole => judge_whole(facts),
    }
}

fn judge_whole(facts: &Facts) -> (Terminal, Option<String>) {
    if !facts.finished {
        return (Terminal::Truncated, Some("the body ended without a finish reason or [DONE]".to_owned()));
    }
    if !facts.has_content {
        return (Terminal::NoContent, None);
    }
    match (facts.forced, facts.usage_tokens) {
        (Some(forced), Some(tokens)) if tokens < forced => {
            (Terminal::LengthShortfall, Some(format!("{tokens} tokens where {forced} were forced")))
        }
        _ => (Terminal::Completed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Facts {
        Facts {
            status: Some(200),
            has_content: true,
            finished: true,
            stream_error: None,
            usage_tokens: Some(64),
            forced: Some(64),
        }
    }

    fn state(ending: &Ending, facts: &Facts) -> Terminal {
        judge(ending, facts).0
    }

    #[test]
    fn only_a_whole_answer_of_the_forced_length_is_completed() {
        assert_eq!(judge(&Ending::Whole, &whole()), (Terminal::Completed, None));
        let short = Facts { usage_tokens: Some(63), ..whole() };
        assert_eq!(state(&Ending::Whole, &short), Terminal::LengthShortfall);
        assert_eq!(state(&Ending::Whole, &Facts { forced: None, ..short.clone() }), Terminal::Completed);
        assert_eq!(state(&Ending::Whole, &Facts { usage_tokens: None, ..short }), Terminal::Completed);
        assert_eq!(state(&Ending::Whole, &Facts { has_content: false, ..whole() }), Terminal::NoContent);
        assert_eq!(state(&Ending::Whole, &Facts { finished: false, ..whole() }), Terminal::Truncated);
        assert_eq!(state(&Ending::Cut("reset".into()), &whole()), Terminal::Truncated);
    }

    #[test]
    fn a_status_that_is_not_a_success_decides_by_itself() {
        for ending in [Ending::Whole, Ending::Cut(String::new()), Ending::TimedOut(Limit::Idle), Ending::RunEnded] {
            for (status, expected) in [
                (429, Terminal::Rejected),
                (503, Terminal::Rejected),
                (302, Terminal::HttpError),
                (400, Terminal::HttpError),
                (502, Terminal::HttpError),
            ] {
                assert_eq!(state(&ending, &Facts { status: Some(status), ..Facts::default() }), expected);
            }
        }
    }

    #[test]
    fn an_error_event_is_the_cause_of_what_follows_it() {
        let facts = Facts { stream_error: Some("out of memory".into()), ..whole() };
        for ending in [Ending::Whole, Ending::Cut(String::new()), Ending::TimedOut(Limit::Total)] {
            assert_eq!(judge(&ending, &facts), (Terminal::StreamError, Some("out of memory".into())));
        }
    }

    #[test]
    fn each_other_ending_has_a_state_of_its_own() {
        let none = Facts::default();
        let why = String::new;
        for (ending, expected) in [
            (Ending::NoSocket(why()), Terminal::UnsentClientCap),
            (Ending::NoConnection(why()), Terminal::Refused),
            (Ending::NoHead(why()), Terminal::Truncated),
            (Ending::Garbage(why()), Terminal::ProtocolError),
            (Ending::TimedOut(Limit::Connect), Terminal::TimeoutConnect),
            (Ending::TimedOut(Limit::Ttft), Terminal::TimeoutTtft),
            (Ending::TimedOut(Limit::Idle), Terminal::TimeoutIdle),
            (Ending::TimedOut(Limit::Total), Terminal::TimeoutTotal),
            (Ending::RunEnded, Terminal::Censored),
        ] {
            assert_eq!(state(&ending, &none), expected, "{ending:?}");
        }
    }
}
