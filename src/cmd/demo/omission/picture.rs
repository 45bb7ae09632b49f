//! The experiment as text: a table, a picture, and what they mean.

use std::fmt::Write;

use elasticserve_core::slow::experiment::{Case, Seen};
use elasticserve_core::time::Tick;
use elasticserve_report::{OmissionCase, OmissionPage};

use super::{Outcome, RULES, TERMS};

/// Stretches of the window in the picture.
const COLUMNS: u64 = 40;
/// From nothing to the most that a stretch holds.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const HEADS: [&str; 9] =
    ["", "planned", "sent", "in slow time", "completed", "rejected", "unsent", "within limit", "per second"];

/// Table, picture and meaning.
pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut out = table(outcomes);
    out.push('\n');
    out.push_str(&picture(outcomes));
    for sentence in meaning(outcomes) {
        out.push('\n');
        out.push_str(&wrapped(&sentence));
    }
    out.trim_end().to_owned()
}

/// The same as a page.
pub(super) fn page(outcomes: &[Outcome]) -> OmissionPage {
    let seconds = |at: Tick| at.as_nanos() as f64 / 1e9;
    let case = |o: &Outcome| OmissionCase {
        name: o.name.to_owned(),
        planned_s: planned(o).map(|s| seconds(s.planned)).collect(),
        sent_s: o.seen.iter().filter_map(|s| s.sent).map(seconds).collect(),
        note: note(o.case).to_owned(),
    };
    OmissionPage {
        title: "One slow server, three load models".to_owned(),
        load: format!(
            "{} arrivals per second for {}; {} slots, {} outstanding; good within {} of the planned time",
            TERMS.rate, TERMS.window, RULES.slots, RULES.max_outstanding, TERMS.limit
        ),
        answer: meaning(outcomes),
        window_s: TERMS.window.as_secs_f64(),
        slow_s: (seconds(RULES.slow_window.0), seconds(RULES.slow_window.1)),
        cases: outcomes.iter().map(case).collect(),
        columns: HEADS[1..].iter().map(|head| (*head).to_owned()).collect(),
        rows: outcomes.iter().map(|o| (o.name.to_owned(), cells(o))).collect(),
    }
}

const fn note(case: Case) -> &'static str {
    match case {
        Case::Closed => "The workers wait for the slow server, so they hardly ask it.",
        Case::Open => "What is sent is what was planned.",
        Case::Capped => "Below the line is what no slot was free for.",
    }
}

/// The arrivals that were planned before the run; the closed model has none.
fn planned(outcome: &Outcome) -> impl Iterator<Item = &Seen> {
    outcome.seen.iter().filter(|_| outcome.case != Case::Closed)
}

fn cells(outcome: &Outcome) -> Vec<String> {
    let c = &outcome.counts;
    let mut cells = vec![c.planned.map_or_else(|| "–".to_owned(), |n| n.to_string())];
    let counts = [c.sent, c.sent_in_slow_window, c.completed, c.rejected, c.unsent, c.within_limit];
    cells.extend(counts.iter().map(u32::to_string));
    cells.push(format!("{:.2}", outcome.within_limit_per_s));
    cells
}

fn table(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let heads = std::iter::once(format!("{:<8}", HEADS[0])).chain(HEADS[1..].iter().map(|h| format!("{h:>13}")));
    out.push_str(heads.collect::<String>().trim_end());
    out.push('\n');
    for outcome in outcomes {
        let cells: String = cells(outcome).iter().map(|cell| format!("{cell:>13}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:<8}{cells}", outcome.name);
    }
    out
}

/// Planned and sent arrivals in each tenth of a second, with the slow time marked above.
fn picture(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let slow: String = (0..COLUMNS).map(|i| if RULES.is_slow(start(i)) { '░' } else { ' ' }).collect();
    let _ = writeln!(out, "{:<18}{}", "server is slow", slow.trim_end());
    let most = outcomes.iter().flat_map(|o| bins(o.seen.iter().filter_map(|s| s.sent))).max().unwrap_or(0).max(4);
    for outcome in outcomes {
        if outcome.counts.planned.is_some() {
            line(&mut out, outcome.name, "planned", &bins(planned(outcome).map(|s| s.planned)), most);
        }
        line(&mut out, outcome.name, "sent", &bins(outcome.seen.iter().filter_map(|s| s.sent)), most);
    }
    let axis: String = (0..=4).map(|s| format!("{:<10}", format!("{s} s"))).collect();
    let _ = writeln!(out, "{:<18}{}", "", axis.trim_end());
    out
}

fn line(out: &mut String, name: &str, what: &str, bins: &[u64], most: u64) {
    let bar = |n: &u64| BARS[(n * 8).div_ceil(most).min(8) as usize];
    let bars: String = bins.iter().map(bar).collect();
    let _ = writeln!(out, "{name:<8}{what:<10}{}", bars.trim_end());
}

/// The start of a stretch.
fn start(place: u64) -> Tick {
    Tick::from_nanos(TERMS.window.as_nanos() / COLUMNS * place)
}

/// How many of the times lie in each stretch. Planned times lie on the edges of stretches, so all are looked
/// at a little earlier: what is sent within that of its time is drawn where it was planned.
fn bins(times: impl Iterator<Item = Tick>) -> Vec<u64> {
    const EARLIER: u64 = 5_000_000;
    let width = TERMS.window.as_nanos() / COLUMNS;
    let mut bins = vec![0; COLUMNS as usize];
    for at in times {
        let place = (at.as_nanos().saturating_sub(EARLIER) / width).min(COLUMNS - 1);
        bins[place as usize] += 1;
    }
    bins
}

/// Why the closed run looks healthy, with this run's numbers.
fn meaning(outcomes: &[Outcome]) -> Vec<String> {
    let [closed, open, capped] = outcomes else { return Vec::new() };
    let share = |n: u32, of: u32| 100.0 * f64::from(n) / f64::from(of.max(1));
    let (c, o, k) = (&closed.counts, &open.counts, &capped.counts);
    let wanted = o.planned.unwrap_or(o.sent);
    vec![
        format!(
            "The closed run looks healthy because it stopped asking. Its workers wait for the slow server, so they \
             send {} requests in the slow time, in which {} users come. {:.0} % of its answers are within {}, but \
             that is a share of what it chose to send: it counts no user who would have come meanwhile.",
            c.sent_in_slow_window,
            o.sent_in_slow_window,
            share(c.within_limit, c.sent),
            TERMS.limit,
        ),
        format!(
            "The open run sends every user when planned: {} of {} are content ({:.0} %), {} were turned away and {} \
             waited too long.",
            o.within_limit,
            wanted,
            share(o.within_limit, wanted),
            o.rejected,
            o.completed.saturating_sub(o.within_limit),
        ),
        format!(
            "The capped run has the same users and only {} connections: {} were never sent. Of what it sent, {:.0} % \
             is within the limit; of the users who came, {:.0} %. A tool that drops or delays what it cannot send \
             shows the first number.",
            TERMS.clients,
            k.unsent,
            share(k.within_limit, k.sent),
            share(k.within_limit, k.planned.unwrap_or(k.sent)),
        ),
    ]
}

/// Lines of at most a hundred characters.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.chars().count() > 100 {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.chars().count();
    }
    out.push('\n');
    out
}
