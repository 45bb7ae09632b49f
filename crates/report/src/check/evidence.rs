//! The five checks, each with what speaks for and against a run.

use std::collections::BTreeMap;

use serde::Serialize;

/// How a piece of evidence, or a check, turned out.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// As it should be.
    Pass,
    /// To be known before the figures are used.
    Warn,
    /// The figures do not say what they are to be used for.
    Fail,
}

impl Mark {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    /// In a character.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Pass => "+",
            Self::Warn => "!",
            Self::Fail => "x",
        }
    }
}

/// A fact about a run and how it bears on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Evidence {
    /// How it bears.
    pub mark: Mark,
    /// The fact, in a sentence.
    pub said: String,
}

/// One of the five checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// `load`, `generator`, `results`, `streaming` or `release`.
    pub name: &'static str,
    /// The question it answers.
    pub question: &'static str,
    /// The worst of its evidence.
    pub mark: Mark,
    /// Its evidence.
    pub evidence: Vec<Evidence>,
}

/// The checks in order, each with its question.
pub(crate) const CHECKS: [(&str, &str); 5] = [
    ("load", "Is it known what was offered?"),
    ("generator", "Was it offered as planned?"),
    ("results", "Do the figures have their denominators?"),
    ("streaming", "Was the right moment measured?"),
    ("release", "Is it enough to decide on?"),
];

/// Evidence as it is gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered(Vec<Evidence>);

impl Gathered {
    pub(crate) fn pass(&mut self, said: impl Into<String>) {
        self.add(Mark::Pass, said);
    }

    pub(crate) fn warn(&mut self, said: impl Into<String>) {
        self.add(Mark::Warn, said);
    }

    pub(crate) fn fail(&mut self, said: impl Into<String>) {
        self.add(Mark::Fail, said);
    }

    pub(crate) fn add(&mut self, mark: Mark, said: impl Into<String>) {
        self.0.push(Evidence { mark, said: said.into() });
    }

    /// The evidence of several runs as one: what is the same of all is said once, the rest with its run's name.
    pub(crate) fn merged(labels: &[String], each: Vec<Self>) -> Self {
        let runs = each.len();
        let mut seen: BTreeMap<Evidence, usize> = BTreeMap::new();
        for evidence in each.iter().flat_map(|g| &g.0) {
            *seen.entry(evidence.clone()).or_default() += 1;
        }
        let mut out = Self::default();
        for (place, (label, gathered)) in labels.iter().zip(each).enumerate() {
            for evidence in gathered.0 {
                let shared = seen.get(&evidence) == Some(&runs);
                if !shared {
                    out.add(evidence.mark, format!("{label}: {}", evidence.said));
                } else if place == 0 {
                    out.0.push(evidence);
                }
            }
        }
        out
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The check of the given place in [`CHECKS`], what is worst first.
    pub(crate) fn into_check(mut self, place: usize) -> Checked {
        let (name, question) = CHECKS[place];
        self.0.sort_by_key(|e| std::cmp::Reverse(e.mark));
        let mark = self.0.first().map_or(Mark::Pass, |e| e.mark);
        Checked { name, question, mark, evidence: self.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_runs_share_is_said_once_and_the_rest_by_name() {
        let of = |own: &str| {
            let mut g = Gathered::default();
            g.pass("same");
            g.warn(own);
            g
        };
        let merged = Gathered::merged(&["a".into(), "b".into()], vec![of("one"), of("two")]).into_check(0);
        let said: Vec<&str> = merged.evidence.iter().map(|e| e.said.as_str()).collect();
        assert_eq!(said, ["a: one", "b: two", "same"]);
        assert_eq!((merged.mark, merged.name), (Mark::Warn, "load"));
    }
}
