//! The tables that text and page share, so that both show the same numbers.

use crate::doc;
use crate::fmt::{self, MISSING};
use crate::quantile::Distribution;
use crate::summary::{Figures, Latencies, Limits, Summary};

/// A table with a heading, named columns and named rows.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    /// The heading of the column of row names.
    pub(crate) corner: &'static str,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<String>)>,
}

impl From<&Table> for doc::Table {
    fn from(table: &Table) -> Self {
        let words = |head: &String| matches!(head.as_str(), "what was said" | "limits");
        let empty = Self::new(table.title, table.corner);
        let empty =
            table.columns.iter().fold(empty, |t, head| if words(head) { t.words(head) } else { t.number(head) });
        table.rows.iter().fold(empty, |t, (name, cells)| t.row(name, cells.iter().cloned()))
    }
}

impl Table {
    /// A row of one cell a run, left out if no run has anything to say.
    fn line(&mut self, name: &str, summaries: &[Summary], cell: impl Fn(&Summary) -> Option<String>) {
        let cells: Vec<Option<String>> = summaries.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|c| c.unwrap_or_else(|| MISSING.to_owned())).collect();
            self.rows.push((name.to_owned(), cells));
        }
    }
}

/// A latency's name and where it is found.
pub(crate) type Metric = (&'static str, fn(&Latencies) -> &Distribution);

/// A count's name and where it is found.
type Count = (&'static str, fn(&Figures) -> u32);

/// Every latency of completed answers; the name says from what it counts.
pub(crate) const METRICS: [Metric; 7] = [
    ("TTFT from plan", |l| &l.ttft),
    ("TPOT", |l| &l.tpot),
    ("E2E from plan", |l| &l.e2e),
    ("TTFT from send", |l| &l.ttft_from_send),
    ("E2E from send", |l| &l.e2e_from_send),
    ("longest gap", |l| &l.longest_gap),
    ("queue, by header", |l| &l.queue),
];

pub(crate) fn labels(summaries: &[Summary]) -> Vec<String> {
    fmt::labels(&summaries.iter().map(|s| s.name.as_str()).collect::<Vec<_>>())
}

/// What became of the arrivals.
pub(crate) fn arrivals(summaries: &[Summary]) -> Table {
    let mut table = Table { title: "Arrivals", corner: "count", columns: labels(summaries), rows: Vec::new() };
    let planned = |s: &Summary| s.figures.planned;
    let counts: [Count; 8] = [
        ("sent", |f| f.sent),
        ("unsent", |f| f.unsent),
        ("admitted", |f| f.admitted),
        ("completed", |f| f.completed),
        ("good", |f| f.good),
        ("late", |f| f.late),
        ("rejected", |f| f.rejected),
        ("failed", |f| f.failed),
    ];
    table.line("planned", summaries, |s| Some(fmt::count(u64::from(planned(s)))));
    for (name, of) in counts {
        table.line(name, summaries, |s| Some(fmt::part(of(&s.figures), planned(s))));
    }
    table.line("completed of admitted", summaries, |s| {
        s.complete.then(|| fmt::percent(s.figures.completed_of_admitted))
    });
    table.line("not in the ledger", summaries, |s| (s.missing > 0).then(|| fmt::count(u64::from(s.missing))));
    table.line("attempts sent, retries included", summaries, |s| {
        (s.retries > 0)
            .then(|| format!("{} ({} retries)", fmt::count(u64::from(s.attempts)), fmt::count(u64::from(s.retries))))
    });
    table
}

/// Shares and rates.
pub(crate) fn rates(summaries: &[Summary]) -> Table {
    let mut table = Table { title: "Rates", corner: "figure", columns: labels(summaries), rows: Vec::new() };
    let known = |value: Option<f64>| value.map(|v| fmt::rate(Some(v)));
    table.line("attainment (good / planned)", summaries, |s| s.figures.attainment.map(|a| fmt::percent(Some(a))));
    table.line("goodput, good per s of window", summaries, |s| known(s.figures.goodput_per_s));
    table.line("offered per s of window", summaries, |s| known(s.figures.offered_per_s));
    table.line("completed per s until the last", summaries, |s| known(s.completed_per_s));
    table.line("output tokens", summaries, |s| s.output.tokens.map(fmt::count));
    table.line("output tokens per s", summaries, |s| s.output.per_s.map(|v| format!("{v:.1}")));
    table.line("tokens counted by", summaries, |s| s.output.tokens.map(|_| count_source(s)));
    table.line("prompt tokens from cache", summaries, |s| {
        s.cached.map(|c| format!("{} of {}", fmt::count(c.tokens), fmt::count(c.input_tokens)))
    });
    table.line("answers that report the cache", summaries, |s| s.cached.map(|c| format!("n={}", c.n)));
    table.line("window, s", summaries, |s| Some(fmt::trimmed(s.window_s, 3)));
    table
}

fn count_source(s: &Summary) -> String {
    let sources = [("usage", s.output.from_usage), ("events", s.output.from_events), ("unknown", s.output.unknown)];
    let named: Vec<String> =
        sources.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} (n={n})")).collect();
    named.join(", ")
}

/// One row for each distribution of each run: the sample size and what it supports.
pub(crate) fn distributions(summaries: &[Summary]) -> Table {
    let columns = ["n", "p50", "p95", "p99", "mean", "max"].map(str::to_owned).to_vec();
    let mut table = Table { title: "Latency, ms", corner: "latency", columns, rows: Vec::new() };
    let names = labels(summaries);
    let mut add = |name: &str, of: &dyn Fn(&Summary) -> Distribution| {
        for (run, s) in names.iter().zip(summaries) {
            let d = of(s);
            if d.n > 0 {
                let name = if summaries.len() > 1 { format!("{name} · {run}") } else { name.to_owned() };
                table.rows.push((name, cells(&d)));
            }
        }
    };
    for (name, of) in METRICS {
        add(name, &|s| of(&s.figures.latencies).clone());
    }
    add("rejection, from plan", &|s| s.figures.rejection.clone());
    add("age of open work, from plan", &|s| s.figures.censored_age.clone());
    add("send lag", &|s| s.send_lag.clone());
    table
}

fn cells(d: &Distribution) -> Vec<String> {
    let quantiles = [d.p50, d.p95, d.p99, d.mean, d.max].map(fmt::ms);
    std::iter::once(fmt::count(d.n as u64)).chain(quantiles).collect()
}

/// The tenants of each run; no rows if there is but one.
pub(crate) fn tenants(summaries: &[Summary]) -> Table {
    let columns = ["limits", "planned", "good", "attainment", "goodput /s", "rejected", "late", "TTFT p95", "n"];
    let columns = columns.map(str::to_owned).to_vec();
    let mut table = Table { title: "Tenants", corner: "tenant", columns, rows: Vec::new() };
    for (run, s) in labels(summaries).iter().zip(summaries) {
        for t in s.tenants.iter().filter(|_| s.tenants.len() > 1) {
            let f = &t.figures;
            let name = fmt::one_line(&t.name, 40);
            let name = if summaries.len() > 1 { format!("{name} · {run}") } else { name };
            let number = |n: u32| fmt::count(u64::from(n));
            let cells = vec![
                limits(&t.slo),
                number(f.planned),
                number(f.good),
                fmt::percent(f.attainment),
                fmt::rate(f.goodput_per_s),
                number(f.rejected),
                number(f.late),
                fmt::ms(f.latencies.ttft.p95),
                number(f.latencies.ttft.n as u32),
            ];
            table.rows.push((name, cells));
        }
    }
    table
}

/// How evenly the tenants were served; no rows if there is but one.
pub(crate) fn fairness(summaries: &[Summary]) -> Table {
    let mut table = Table { title: "Fairness", corner: "figure", columns: labels(summaries), rows: Vec::new() };
    table.line("Jain's index of attainment", summaries, |s| s.jain.map(|j| format!("{j:.3}")));
    table.line("lowest tenant", summaries, |s| {
        let low = s.lowest_tenant.as_ref()?;
        Some(format!("{} {}", fmt::one_line(&low.name, 40), fmt::percent(Some(low.attainment))))
    });
    table
}

/// How the arrivals ended that were not answered in full.
pub(crate) fn endings(summaries: &[Summary]) -> Table {
    let columns = ["status", "what was said", "n"].map(str::to_owned).to_vec();
    let mut table = Table { title: "Not completed", corner: "state", columns, rows: Vec::new() };
    for (run, s) in labels(summaries).iter().zip(summaries) {
        for e in &s.endings {
            let state = e.state.map_or("others", elasticserve_core::outcome::Terminal::name);
            let name = if summaries.len() > 1 { format!("{state} · {run}") } else { state.to_owned() };
            let status = e.status.map_or_else(|| MISSING.to_owned(), |s| s.to_string());
            let said = e.detail.as_ref().map_or_else(|| MISSING.to_owned(), |d| fmt::one_line(d, 120));
            table.rows.push((name, vec![status, said, fmt::count(u64::from(e.n))]));
        }
    }
    table
}

/// Whether each run may be believed.
pub(crate) fn validity(summaries: &[Summary]) -> Table {
    let mut table = Table { title: "Validity", corner: "check", columns: labels(summaries), rows: Vec::new() };
    let word = |holds: bool| if holds { "yes" } else { "NO" }.to_owned();
    table.line("complete", summaries, |s| Some(word(s.complete)));
    table.line("reconciles", summaries, |s| Some(word(s.reconciled)));
    table.line("valid", summaries, |s| Some(word(s.valid)));
    table.line("send lag p99 / tolerance, ms", summaries, |s| {
        Some(format!("{} / {} (n={})", fmt::ms(s.send_lag.p99), fmt::ms(Some(s.send_lag_tolerance_ms)), s.send_lag.n))
    });
    table.line("load", summaries, |s| {
        let cap =
            s.max_in_flight.map_or_else(String::new, |k| format!(", at most {} in flight", fmt::count(u64::from(k))));
        Some(format!("{}{cap}", s.load_model))
    });
    table.line("figures from", summaries, |s| Some(if s.simulated { "simulation" } else { "measurement" }.to_owned()));
    table.line("time scale", summaries, |s| (s.time_scale != 1.0).then(|| scale(s)));
    table
}

/// What a time scale other than 1 means.
pub(crate) fn scale(s: &Summary) -> String {
    format!("{}x real time", fmt::trimmed(s.time_scale, 3))
}

/// What does not reconcile and what makes a run invalid, each with its run.
pub(crate) fn complaints(summaries: &[Summary]) -> Vec<String> {
    let names = labels(summaries);
    let mut lines = Vec::new();
    for (name, s) in names.iter().zip(summaries) {
        let torn = s.torn.then(|| "the ledger's last line was cut off and is left out".to_owned());
        let stopped = (s.interrupted == Some(true)).then(|| "the run was interrupted".to_owned());
        let unknown = s.interrupted.is_none().then(|| "the manifest does not say how the run ended".to_owned());
        let all = s.problems.iter().chain(&s.invalid_because).chain(&torn).chain(&stopped).chain(&unknown);
        lines.extend(all.map(|line| format!("{name}: {line}")));
    }
    lines
}

/// Limits as text.
pub(crate) fn limits(slo: &Limits) -> String {
    let named = [("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("E2E", slo.e2e_ms)];
    let set: Vec<String> =
        named.iter().filter_map(|(name, limit)| Some(format!("{name} ≤ {}", fmt::duration((*limit)?)))).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}
