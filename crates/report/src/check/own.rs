//! What a run folder says in each of the five checks.

use elasticserve_core::health::Health;
use elasticserve_core::ledger::{CountSource, RunEnd};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Tick;
use elasticserve_core::work::LoadModel;

use super::Reader;
use super::evidence::{Gathered, Mark};
use crate::account::{Account, Arrival};
use crate::fmt;
use crate::quantile::Distribution;
use crate::run_doc::load as load_words;
use crate::summary::{Figures, Summary};
use crate::table;

/// The share of answers that may have another length than the planned one.
const ODD_LENGTHS: f64 = 0.01;
/// The change of the cached share between the halves of a run from which its cache state is said to change.
const CACHE_CHANGE: f64 = 0.1;
/// Content events per token below which events are said to hold several.
const MERGED: f64 = 0.9;

/// Whether it is known what was offered.
pub(crate) fn load(run: &Account, summary: &Summary) -> Gathered {
    let mut found = Gathered::default();
    let plan = &run.manifest.plan;
    let hash = run.manifest.plan_hash.get(..12).unwrap_or(&run.manifest.plan_hash);
    found.pass(format!("{} Fixed before the run (plan {hash}…).", load_words(&run.manifest)));
    if matches!(plan.model, LoadModel::Closed { .. }) {
        found.warn("A closed load slows down with the server: it shows what so many workers get done, not what becomes of users who come at a rate.");
    }
    let limited = plan.tenants.iter().filter(|t| t.slo != Slo::default()).count();
    if limited < plan.tenants.len() {
        let whose = if plan.tenants.len() == 1 {
            "No limits are set".to_owned()
        } else {
            format!("{} of {} tenants have no limits", plan.tenants.len() - limited, plan.tenants.len())
        };
        found.warn(format!("{whose}: every whole answer counts as good."));
    }
    lengths(run, &mut found);
    cache(run, &mut found);
    if summary.retries > 0 {
        found.pass(format!(
            "{} attempts for {}: {}, as rows of their own; no arrival moved for them.",
            fmt::count(u64::from(summary.attempts)),
            fmt::counted(summary.figures.planned, "arrival"),
            fmt::counted(summary.retries, "further one")
        ));
    }
    if summary.simulated {
        found.warn("Simulated: a model of an engine answered, no server did.");
    }
    if summary.time_scale != 1.0 {
        found.warn(format!(
            "Everything ran at {}: small fixed costs weigh more than they would.",
            table::scale(summary)
        ));
    }
    found
}

fn lengths(run: &Account, found: &mut Gathered) {
    let (mut answered, mut odd, mut asked, mut given) = (0_u64, 0_u64, 0.0, 0.0);
    for a in run.arrivals().filter(|a| a.state == Terminal::Completed) {
        let Some(tokens) = a.output_tokens else { continue };
        answered += 1;
        odd += u64::from(tokens != a.output_planned);
        asked += f64::from(a.output_planned);
        given += f64::from(tokens);
    }
    if answered == 0 {
        return;
    }
    let (asked, given) = (asked / answered as f64, given / answered as f64);
    let said = format!(
        "Answers: {} tokens asked for on average, {} given; {} of {} have exactly the planned length.",
        fmt::trimmed(asked, 1),
        fmt::trimmed(given, 1),
        fmt::count(answered - odd),
        fmt::count(answered)
    );
    let mark = if odd as f64 > ODD_LENGTHS * answered as f64 { Mark::Warn } else { Mark::Pass };
    found.add(mark, said);
}

fn cache(run: &Account, found: &mut Gathered) {
    let salted = run.manifest.prompts_salted;
    let share = |from: usize, to: usize| {
        let (mut cached, mut all) = (0.0, 0.0);
        for a in (from..to).map(|i| run.arrival(i)) {
            if let Some(tokens) = a.cached_tokens {
                cached += f64::from(tokens);
                all += f64::from(a.input_planned);
            }
        }
        (all > 0.0).then(|| cached / all)
    };
    let (half, n) = (run.len() / 2, run.len());
    let known = match (share(0, n), share(0, half), share(half, n)) {
        (Some(all), Some(early), Some(late)) if (early - late).abs() > CACHE_CHANGE => {
            found.warn(format!(
                "The prefix cache gave {} of the prompt tokens of the first half and {} of the second: its state changed within the run.",
                fmt::percent(Some(early)),
                fmt::percent(Some(late))
            ));
            format!("the cache gave {} of the prompt tokens", fmt::percent(Some(all)))
        }
        (Some(all), ..) => format!("the cache gave {} of the prompt tokens", fmt::percent(Some(all))),
        _ => "the server does not say what came from its cache".to_owned(),
    };
    if salted {
        found.pass(format!("Prompts are salted, so no earlier run warmed the prefix cache; {known}."));
    } else {
        found.warn(format!("Prompts are not salted: an earlier run may have warmed the prefix cache; {known}."));
    }
}

/// Whether it was offered as planned, and the generator kept up.
pub(crate) fn generator(run: &Account, summary: &Summary) -> Gathered {
    let mut found = Gathered::default();
    let f = &summary.figures;
    for problem in summary.problems.iter().chain(&summary.invalid_because) {
        found.fail(format!("{}.", capital(problem)));
    }
    if summary.torn {
        found.warn("The ledger's last line was cut off and is left out.");
    }
    if summary.complete && summary.reconciled {
        found.pass(format!(
            "{} planned = {} sent + {} unsent, one row each.",
            fmt::count(u64::from(f.planned)),
            fmt::count(u64::from(f.sent)),
            fmt::count(u64::from(f.unsent))
        ));
    }
    if summary.interrupted == Some(true) {
        found.warn("The run was interrupted.");
    }
    let unsent = |state| summary.states.get(&state).copied().filter(|n| *n > 0);
    if let Some((cap, n)) = summary.max_in_flight.zip(unsent(Terminal::UnsentClientCap)) {
        found.warn(format!(
            "{} found none of the {cap} slots free and stayed unsent: in every denominator.",
            fmt::counted(n, "arrival")
        ));
    }
    if let Some(n) = unsent(Terminal::UnsentAbort).filter(|_| summary.interrupted == Some(false)) {
        found.warn(format!(
            "{} never sent, as the answer before failed: in every denominator.",
            fmt::counted(n, "turn")
        ));
    }
    if summary.simulated {
        found.pass("Virtual time: no generator can have been late.");
        return found;
    }
    if summary.send_lag.n > 0 && summary.valid {
        let lag = &summary.send_lag;
        let p99 = lag.p99.map_or_else(String::new, |p99| format!("{} ms at p99, ", fmt::ms(Some(p99))));
        found.pass(format!(
            "Sends started {p99}{} ms at most after their planned time (n={}); {} ms were declared tolerable.",
            fmt::ms(lag.max),
            lag.n,
            fmt::ms(Some(summary.send_lag_tolerance_ms))
        ));
    }
    if let Some(end) = &run.manifest.end {
        machine(run, end, &mut found);
    }
    found
}

fn machine(run: &Account, end: &RunEnd, found: &mut Gathered) {
    if let Some(health) = &end.health {
        itself(run, health, found);
    } else if let Some(cpu) = end.cpu.filter(|_| end.at > Tick::ZERO) {
        let cores = cpu.as_nanos() as f64 / end.at.as_nanos() as f64;
        found
            .warn(format!("Of the generator itself only its CPU is known: {} of one core.", fmt::percent(Some(cores))));
    } else {
        found.warn("Nothing is recorded of the generator itself but its send lag.");
    }
    let connected = run.arrivals().filter(|a| a.reused_connection.is_some()).count();
    let reused = run.arrivals().filter(|a| a.reused_connection == Some(true)).count();
    found.pass(format!(
        "At most {} in flight at once; {} connections opened, {} of {} requests went over a used one.",
        fmt::count(u64::from(end.peak_in_flight)),
        fmt::count(u64::from(end.connections)),
        fmt::count(reused as u64),
        fmt::count(connected as u64)
    ));
}

/// What the generator recorded of itself. What is past a tolerance is said with the reasons that make a run invalid.
fn itself(run: &Account, health: &Health, found: &mut Gathered) {
    let mut said = Vec::new();
    said.extend(health.runtime_delay.p99.map(|p99| format!("its own timers were {p99} late at p99")));
    said.extend(
        health
            .cpu_peak
            .map(|cpu| format!("it used {:.0}% of {} cores in its busiest second", cpu * 100.0, health.cores)),
    );
    said.extend(
        health
            .descriptors_peak
            .zip(health.descriptors_limit)
            .map(|(n, of)| format!("{n} of {of} descriptors were open")),
    );
    said.push(format!("the wall clock stepped by {} at most", health.clock_step));
    found.pass(format!("The generator: {}.", said.join(", ")));
    match &run.manifest.ceiling {
        Some(ceiling) => found.pass(format!(
            "It sent {} in its busiest second; here it was shown to keep {}/s.",
            fmt::counted(health.peak_sends_per_s, "request"),
            fmt::trimmed(ceiling.per_s, 0)
        )),
        None => found.warn("It was not measured which rate this generator keeps on this machine."),
    }
}

/// Whether every figure stands with its denominator.
pub(crate) fn results(summary: &Summary) -> Gathered {
    let mut found = Gathered::default();
    let f = &summary.figures;
    if !summary.complete {
        found.fail(format!(
            "Rows are missing, so there are counts and no figures: {} of {} planned arrivals have a row.",
            fmt::count(u64::from(f.planned - summary.missing)),
            fmt::count(u64::from(f.planned))
        ));
        return found;
    }
    found.pass(format!(
        "Of {} planned: {} sent, {} admitted, {} completed, {} good, {} rejected, {} failed.",
        fmt::count(u64::from(f.planned)),
        fmt::part(f.sent, f.planned),
        fmt::part(f.admitted, f.planned),
        fmt::part(f.completed, f.planned),
        fmt::part(f.good, f.planned),
        fmt::part(f.rejected, f.planned),
        fmt::part(f.failed, f.planned)
    ));
    let offered =
        f.offered_per_s.map_or_else(|| "no rate was claimed".to_owned(), |o| format!("{o:.2}/s were offered"));
    found.pass(format!(
        "Goodput {}/s: good answers of the {} arrivals of the window, those of the drain included, divided by its {} s; {offered}.",
        fmt::rate(f.goodput_per_s),
        fmt::count(u64::from(f.planned)),
        fmt::trimmed(summary.window_s, 3)
    ));
    support(f, &mut found);
    for state in Terminal::ALL {
        let n = summary.states.get(&state).copied().unwrap_or(0);
        let expected = matches!(state, Terminal::Completed | Terminal::Rejected);
        if n > 0 && !expected {
            let age = if state == Terminal::Censored { age(&f.censored_age) } else { String::new() };
            found.warn(format!(
                "{} ended as {state}{age}: in no latency, in every denominator.",
                fmt::counted(n, "arrival")
            ));
        }
    }
    found
}

fn age(d: &Distribution) -> String {
    d.max.map_or_else(String::new, |max| format!(", the oldest after {} without an end", fmt::duration(max)))
}

/// Which quantiles of the answers there are.
fn support(f: &Figures, found: &mut Gathered) {
    let n = f.latencies.ttft.n;
    match n {
        0 => found.warn("There is no whole answer, so no latency."),
        n if n < 100 => found.warn(format!(
            "{n} answers support no p99 (it takes 100) {}.",
            if n < 20 { "and no p95 (20)" } else { "but a p95" }
        )),
        n => found.pass(format!("{} answers support p50, p95 and p99.", fmt::count(n as u64))),
    }
}

/// Whether the right moment was measured.
pub(crate) fn streaming(run: &Account, summary: &Summary, reader: Option<Reader>) -> Gathered {
    let mut found = Gathered::default();
    parser(run, reader.filter(|_| !summary.simulated), &mut found);
    let completed = || run.arrivals().filter(|a| a.state == Terminal::Completed);
    let n = completed().count();
    if n == 0 {
        found.warn("There is no whole answer to look at.");
        return found;
    }
    if !run.manifest.target.streaming && !summary.simulated {
        found.warn(
            "Answers were not streamed: first content is the end of the answer, and there is no TPOT and no gap.",
        );
    } else {
        moments(completed(), n, summary.simulated, &mut found);
    }
    counts(completed(), n, &mut found);
    let gaps = &summary.figures.latencies.longest_gap;
    if let Some(max) = gaps.max {
        let p99 = gaps.p99.map_or_else(String::new, |p| format!(", p99 {}", fmt::duration(p)));
        found.pass(format!("Longest silence within an answer: {} at most{p99} (n={}).", fmt::duration(max), gaps.n));
    }
    found
}

/// Whether what read the streams is known to read rightly.
fn parser(run: &Account, reader: Option<Reader>, found: &mut Gathered) {
    let Some(reader) = reader else { return };
    let made_by = fmt::one_line(&run.manifest.tool_version, 20);
    if reader.right < reader.all {
        let wrong = reader.all - reader.right;
        found.fail(format!("The reader of streams misreads {wrong} of the {} cases of its corpus.", reader.all));
    } else if made_by == reader.version {
        found.pass(format!("The reader of streams reads all {} cases of its corpus rightly (selftest).", reader.all));
    } else {
        found.warn(format!("The run was made by version {made_by}, whose reader of streams was not tested here."));
    }
}

/// Head, first event and first content as moments apart.
fn moments(completed: impl Iterator<Item = Arrival> + Clone, n: usize, simulated: bool, found: &mut Gathered) {
    let ahead = Distribution::of(completed.clone().filter_map(|a| a.content_after_head));
    let early = completed.clone().filter(|a| a.event_before_content).count();
    let reasoned = completed.filter(|a| a.reasoned).count();
    if ahead.n == n {
        found.pass(format!(
            "Head, first event and first content are recorded apart: content came {} after the head in the median, and in {} of {} answers an event without content came first.",
            ahead.p50.or(ahead.max).map_or_else(|| fmt::MISSING.to_owned(), fmt::duration),
            fmt::count(early as u64),
            fmt::count(n as u64)
        ));
    } else if simulated {
        found.pass("The model gives the time of each token; there is no head and no event to mistake for one.");
    } else {
        found.warn(format!(
            "{} of {} answers have no time of the head.",
            fmt::count((n - ahead.n) as u64),
            fmt::count(n as u64)
        ));
    }
    if reasoned > 0 {
        found.pass(format!(
            "{} answers began with reasoning; TTFT is that of the answer after it.",
            fmt::count(reasoned as u64)
        ));
    }
}

/// Where tokens are counted, and how many an event holds.
fn counts(completed: impl Iterator<Item = Arrival> + Clone, n: usize, found: &mut Gathered) {
    let usage = completed.clone().filter(|a| a.output_tokens_from == Some(CountSource::Usage)).count();
    if usage == n {
        found.pass("Tokens are counted by the server's usage in every answer.");
    } else {
        found.warn(format!(
            "Tokens of {} of {} answers are counted by events or not at all: a chunk is not a token.",
            fmt::count((n - usage) as u64),
            fmt::count(n as u64)
        ));
    }
    let (mut events, mut tokens) = (0.0, 0.0);
    for a in completed.filter(|a| a.gaps > 0) {
        events += f64::from(a.gaps) + 1.0;
        tokens += f64::from(a.output_tokens.unwrap_or(0));
    }
    if tokens > 0.0 && events < MERGED * tokens {
        found.warn(format!(
            "A content event held {} tokens on average: gaps are between events, not tokens.",
            fmt::trimmed(tokens / events, 2)
        ));
    }
}

/// The first letter as a capital.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}
