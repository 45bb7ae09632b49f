//! What must hold of everything that was seen, whatever went wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::client::{Saw, Sent};

/// What clients saw, and what the gateway says.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) sent: Vec<Sent>,
    /// The gateway's access log: request id and outcome.
    pub(super) log: Vec<(String, String)>,
    /// Its counters of requests by outcome.
    pub(super) counters: BTreeMap<String, u64>,
    /// Its counter of connections that it turned away.
    pub(super) turned_away: u64,
    /// Its counter of idle connections that it closed to make room, maybe while a request was on its way.
    pub(super) evicted: u64,
    /// Its counter of answers whose limits were met; there are none, so every whole one.
    pub(super) met: u64,
    /// What a generator has sent besides.
    pub(super) generated: u64,
    /// The ids of the answers that its ledger counts as whole.
    pub(super) claimed: BTreeSet<String>,
}

/// Everything that does not hold.
pub(super) fn violations(history: &History) -> Vec<String> {
    let mut wrong: Vec<String> = history.sent.iter().flat_map(|sent| sent.wrong.iter().cloned()).collect();
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, outcome) in &history.log {
        lines.entry(id).or_default().push(outcome);
    }
    for Sent { id, saw, .. } in &history.sent {
        let lines = lines.remove(id.as_str()).unwrap_or_default();
        if let Err(problem) = one_ending(saw, &lines) {
            wrong.push(format!("{id}: {problem}"));
        }
    }
    // What is left are the generator's.
    wrong.extend(lines.iter().filter(|(_, lines)| lines.len() != 1).map(|(id, lines)| format!("{id}: {lines:?}")));
    let others = lines.len() as u64;
    if others > history.generated {
        wrong.push(format!("{others} further requests where {} were sent: {lines:?}", history.generated));
    }
    let finished = lines.iter().filter(|(_, lines)| lines.contains(&"finished")).map(|(id, _)| (*id).to_owned());
    let finished: BTreeSet<String> = finished.collect();
    if finished != history.claimed {
        let differ: Vec<&String> = finished.symmetric_difference(&history.claimed).collect();
        wrong.push(format!("the generator counts others as whole than the gateway: {differ:?}"));
    }
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    history.log.iter().for_each(|(_, outcome)| *counted.entry(outcome.clone()).or_default() += 1);
    if counted != history.counters {
        wrong.push(format!("ended as {counted:?} by the log, as {:?} by the counters", history.counters));
    }
    if history.met != counted.get("finished").copied().unwrap_or(0) {
        wrong.push(format!("{} answers count as good of {counted:?}", history.met));
    }
    let turned_away = history.sent.iter().filter(|sent| sent.saw == Saw::TurnedAway).count() as u64;
    // Of the generator's, all may have been turned away that have left no line.
    let most = turned_away + history.generated.saturating_sub(others);
    let History { turned_away: told, evicted, .. } = history;
    if turned_away > told + evicted || *told > most {
        wrong.push(format!("{turned_away} clients were turned away, {told} by the counter, beside {evicted} evicted"));
    }
    wrong
}

/// Whether the gateway says once, and rightly, how a request ended.
fn one_ending(saw: &Saw, lines: &[&str]) -> Result<(), String> {
    let right: &[&str] = match saw {
        Saw::Hung => return Err("it never ended".to_owned()),
        Saw::TurnedAway if lines.is_empty() => return Ok(()),
        Saw::TurnedAway => return Err(format!("it got no answer, and was served: {lines:?}")),
        Saw::Whole => &["finished"],
        Saw::Refused(code) => &[code],
        Saw::Passed(_) => &["backend_error"],
        Saw::Broken => &["backend_failed"],
        // The end may have come before the gateway could know that nobody reads it.
        Saw::Left => &["client_gone", "finished", "backend_failed"],
    };
    match lines {
        [one] if right.contains(one) => Ok(()),
        _ => Err(format!("its client saw {saw:?}, the gateway says {lines:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request for each way to end, as it should be told.
    fn sound() -> History {
        let all = [
            (Saw::Whole, Some("finished")),
            (Saw::Refused("queue_full".to_owned()), Some("queue_full")),
            (Saw::Passed(500), Some("backend_error")),
            (Saw::Broken, Some("backend_failed")),
            (Saw::Left, Some("client_gone")),
            (Saw::TurnedAway, None),
        ];
        let mut history = History { turned_away: 1, met: 2, generated: 2, ..History::default() };
        for (n, (saw, outcome)) in all.into_iter().enumerate() {
            history.sent.push(Sent { id: n.to_string(), saw, wrong: Vec::new() });
            if let Some(outcome) = outcome {
                history.log.push((n.to_string(), outcome.to_owned()));
                history.counters.insert(outcome.to_owned(), 1);
            }
        }
        // And one of the generator's that ended well, one that did not.
        history.log.extend([("g0", "finished"), ("g1", "backend_failed")].map(|(id, end)| (id.into(), end.into())));
        history.counters.extend([("finished".to_owned(), 2), ("backend_failed".to_owned(), 2)]);
        history.claimed.insert("g0".to_owned());
        history
    }

    #[test]
    fn a_history_in_which_all_is_told_as_it_was_is_sound() {
        assert_eq!(violations(&sound()), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_violation_is_found() {
        type Change = fn(&mut History);
        let changes: [(&str, Change); 14] = [
            ("a client finds foreign tokens", |h| h.sent[0].wrong.push("foreign".to_owned())),
            ("a request ends twice", |h| {
                h.log.push(("0".to_owned(), "finished".to_owned()));
                h.counters.insert("finished".to_owned(), 3);
                h.met = 3;
            }),
            ("a request is forgotten", |h| {
                h.log.remove(0);
                h.counters.insert("finished".to_owned(), 1);
                h.met = 1;
            }),
            ("a broken answer counts as whole", |h| {
                h.log[3].1 = "finished".to_owned();
                h.counters.extend([("finished".to_owned(), 3), ("backend_failed".to_owned(), 1)]);
                h.met = 3;
            }),
            ("a refusal has another code", |h| h.sent[1].saw = Saw::Refused("queue_expired".to_owned())),
            ("a request that nobody has sent", |h| {
                drop(h.sent.remove(1));
                h.generated = 2;
            }),
            ("an answer that broke counts as good", |h| h.met = 3),
            ("the generator counts a broken answer as whole", |h| _ = h.claimed.insert("g1".to_owned())),
            ("the generator misses a whole answer", |h| h.claimed.clear()),
            ("one of the generator's ends twice", |h| {
                h.log.push(("g1".to_owned(), "backend_failed".to_owned()));
                h.counters.insert("backend_failed".to_owned(), 3);
            }),
            ("a request never ends", |h| h.sent[0].saw = Saw::Hung),
            ("a counter is off", |h| _ = h.counters.insert("finished".to_owned(), 7)),
            ("a connection was turned away and nobody noticed", |h| h.turned_away = 2),
            ("a client was turned away and it was not counted", |h| h.turned_away = 0),
        ];
        for (what, change) in changes {
            let mut history = sound();
            change(&mut history);
            assert_eq!(violations(&history).len(), 1, "{what}: {:?}", violations(&history));
        }
    }
}
