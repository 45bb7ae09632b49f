//! The text of one choice of an answer, token by token, and where it stops.

use elasticserve_core::engine::Emission;

use crate::driver::{Finish, Running, Task};
use crate::tokens::Voice;

/// What a choice will say. It is known before the engine has generated a token, so a stop text never
/// holds back what comes before it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Script {
    voice: Voice,
    /// Tokens that the engine generates.
    pub(crate) output: u32,
    pub(crate) finish: Finish,
    /// Bytes of text before a stop text, if one is met.
    cut: Option<usize>,
}

impl Script {
    /// The choice at `index` of the request with this id, which stops where its text first holds one of
    /// `stops`.
    pub(crate) fn new(request_id: &str, index: u32, task: &Task, stops: &[String]) -> Self {
        let voice = if index == 0 { Voice::of(request_id) } else { Voice::of(&format!("{request_id}/{index}")) };
        let mut script = Self { voice, output: task.output, finish: task.finish, cut: None };
        if !stops.is_empty() {
            script.stop_at(stops);
        }
        script
    }

    fn stop_at(&mut self, stops: &[String]) {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        let mut text = String::new();
        for index in 1..=self.output {
            // A stop text may begin in earlier tokens and end in this one.
            let mut from = text.len().saturating_sub(longest);
            text.push_str(&self.voice.word(index));
            while !text.is_char_boundary(from) {
                from += 1;
            }
            let found = stops.iter().filter_map(|stop| text[from..].find(stop.as_str())).min();
            if let Some(at) = found {
                (self.output, self.finish, self.cut) = (index, Finish::Stop, Some(from + at));
                return;
            }
        }
    }
}

/// A choice under way.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) script: Script,
    pub(crate) running: Running,
    /// Bytes of text given so far.
    given: usize,
    /// Tokens so far.
    pub(crate) tokens: u32,
    pub(crate) cached: u32,
    pub(crate) done: bool,
}

impl Lane {
    pub(crate) const fn new(script: Script, running: Running) -> Self {
        Self { script, running, given: 0, tokens: 0, cached: 0, done: false }
    }

    /// Takes a token and gives its text, which is empty behind the start of a stop text.
    pub(crate) fn take(&mut self, token: Emission) -> String {
        (self.tokens, self.cached, self.done) = (token.index, token.cached, token.last);
        let mut word = self.script.voice.word(token.index);
        if let Some(cut) = self.script.cut {
            word.truncate(cut.saturating_sub(self.given));
        }
        self.given += word.len();
        word
    }

    /// Why it ended, if it has.
    pub(crate) fn finish(&self) -> Option<Finish> {
        self.done.then_some(self.script.finish)
    }
}

#[cfg(test)]
mod tests {
    use elasticserve_core::engine::Prompt;

    use super::*;
    use crate::tokens::word;

    fn script(stops: &[&str]) -> Script {
        let task = Task { prompt: Prompt::Unique, input: 1, output: 20, finish: Finish::Length };
        Script::new("id", 0, &task, &stops.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_stop_text_over_two_tokens_ends_the_answer_before_its_first_byte() {
        // ".2 x" lies over the second and the third token.
        let third = word("id", 3);
        let stop = format!(".2{}", &third[..3]);
        let script = script(&["never", &stop]);
        assert_eq!((script.output, script.finish), (3, Finish::Stop));
        let before = word("id", 1).len() + word("id", 2).len() - ".2".len();
        assert_eq!(script.cut, Some(before));
    }

    #[test]
    fn a_stop_text_that_never_comes_changes_nothing() {
        let script = script(&["never"]);
        assert_eq!((script.output, script.finish, script.cut), (20, Finish::Length, None));
    }
}
