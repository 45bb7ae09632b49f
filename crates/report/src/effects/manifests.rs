//! In what the manifests of two runs differ.

use std::collections::BTreeSet;

use elasticserve_core::ledger::{Manifest, Timeouts};
use serde::Serialize;

use crate::fmt::{counted, one_line};
use crate::table::limits;

/// Notes of `metadata` that say what was measured, with those that start with `engine.`. Other notes may tell what
/// was changed, and are shown.
const NOTES: [&str; 8] = [
    "extra_body",
    "ignore_eos",
    "image",
    "image_digest",
    "model_revision",
    "prefix_cache",
    "prompts_cached_before",
    "tokenizer_revision",
];
/// Notes that differ between any two runs and mean nothing for a comparison of their figures.
const OWN: [&str; 2] = ["salt", "prompts"];
/// How much of a value is shown.
const SHOWN: usize = 80;

/// A field of the manifest in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Its name in `manifest.json`; what `--allow` takes.
    pub key: String,
    /// Of the run without the change.
    pub base: String,
    /// Of the run with it.
    pub changed: String,
    /// Whether figures cannot be compared before this is said to be meant.
    pub matters: bool,
}

/// In what two runs of a pair differ: what matters for a comparison, and what may be the change itself.
///
/// The base URL is not among the former: it is how a run goes through a gateway or not. A version that only one
/// server tells is told and stands against nothing.
#[must_use]
pub fn differences(base: &Manifest, changed: &Manifest) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut hold = |key: &str, matters: bool, of: &dyn Fn(&Manifest) -> String| {
        let (a, b) = (of(base), of(changed));
        if a != b {
            let [base, changed] = apart(&a, &b);
            found.push(Difference { key: key.to_owned(), base, changed, matters });
        }
    };
    hold("plan_hash", true, &|m| m.plan_hash.clone());
    hold("plan.model", true, &|m| m.plan.model.to_string());
    hold("plan.window_ns", true, &|m| m.plan.window.map_or_else(|| "none".to_owned(), |w| w.to_string()));
    hold("plan.tenants", true, &tenants);
    hold("simulated", true, &|m| m.simulated.to_string());
    hold("time_scale", true, &|m| m.time_scale.to_string());
    hold("tool_version", true, &|m| m.tool_version.clone());
    hold("target.url", false, &|m| m.target.url.clone());
    hold("target.endpoint", true, &|m| m.target.endpoint.clone());
    hold("target.model", true, &|m| m.target.model.clone());
    hold("target.streaming", true, &|m| m.target.streaming.to_string());
    let told = base.target.version.is_some() && changed.target.version.is_some();
    hold("target.version", told, &|m| m.target.version.clone().unwrap_or_else(|| "not told".to_owned()));
    hold("warmups", true, &|m| m.warmups.to_string());
    hold("prompts_salted", true, &|m| m.prompts_salted.to_string());
    hold("timeouts", true, &|m| timeouts(&m.timeouts));
    hold("max_in_flight", true, &|m| m.max_in_flight.map_or_else(|| "none".to_owned(), |n| n.to_string()));
    hold("retries", true, &|m| m.retries.to_string());
    let notes: BTreeSet<&String> = base.metadata.keys().chain(changed.metadata.keys()).collect();
    for note in notes.into_iter().filter(|n| !OWN.contains(&n.as_str())) {
        let matters = NOTES.contains(&note.as_str()) || note.starts_with("engine.");
        hold(&format!("metadata.{note}"), matters, &|m| {
            m.metadata.get(note).cloned().unwrap_or_else(|| "none".to_owned())
        });
    }
    found
}

/// In what a run differs from the first of its side, of what must be the same in every pair: all but the plan.
pub(super) fn drift(first: &Manifest, other: &Manifest) -> Vec<Difference> {
    differences(first, other).into_iter().filter(|d| d.matters && !d.key.starts_with("plan")).collect()
}

fn tenants(manifest: &Manifest) -> String {
    let one = |t: &elasticserve_core::work::PlanTenant| format!("{} {} ({})", t.name, t.share, limits(&t.slo.into()));
    match manifest.plan.tenants.as_slice() {
        [all] => one(all),
        several => {
            let list: Vec<String> = several.iter().map(one).collect();
            format!("{}: {}", counted(several.len() as u32, "tenant"), list.join("; "))
        }
    }
}

fn timeouts(t: &Timeouts) -> String {
    format!("connect {}, ttft {}, idle {}, total {}, drain {}", t.connect, t.ttft, t.idle, t.total, t.drain)
}

/// Two values as they are shown: of long ones what comes before the first word that differs is left out.
fn apart(a: &str, b: &str) -> [String; 2] {
    let long = a.chars().count().max(b.chars().count()) > SHOWN;
    let same =
        a.char_indices().zip(b.chars()).find(|((_, x), y)| x != y).map_or(a.len().min(b.len()), |((at, _), _)| at);
    let cut = if long { a[..same].rfind(' ').map_or(0, |space| space + 1) } else { 0 };
    let lead = if cut > 0 { "… " } else { "" };
    [a, b].map(|v| one_line(&format!("{lead}{}", &v[cut..]), SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_shown_from_where_they_differ() {
        let long = "w ".repeat(60);
        assert_eq!(apart(&format!("{long}ä 1"), &format!("{long}ä 2")), ["… 1", "… 2"]);
        assert_eq!(apart("kv 1", "kv 2"), ["kv 1", "kv 2"]);
        let [a, b] = apart(&"x".repeat(200), "");
        assert!(a.ends_with('…') && a.chars().count() == SHOWN && b.is_empty());
        // One that goes on where the other ends.
        assert_eq!(apart(&long, &format!("{long}more")), ["… ", "… more"]);
    }
}
