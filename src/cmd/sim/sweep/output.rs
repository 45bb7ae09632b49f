//! A sweep as a table, as CSV and as a document.

use std::fmt::Write;

use elasticserve_core::sim::sweep::{Curve, Outcome, Policy, Spread};
use elasticserve_report::{SweepLine, SweepPage, SweepPoint, doc::Doc, grid, sweep_doc};

const MISSING: &str = "–";

/// The table, and the knees.
pub(super) fn text(described: &str, curves: &[Curve], target: f64) -> String {
    let mut out = format!("{described}\n\n");
    let (columns, rows) = table(curves);
    out += &grid("means over the seeds", &columns, &rows);
    out.push('\n');
    out + &knees(curves, target)
}

/// A line for each run.
pub(super) fn csv(outcomes: &[Outcome]) -> String {
    let mut out = String::from(
        "policy,permits,order,budget_ms,rate,seed,offered,completed,rejected,good,throughput_per_s,\
         goodput_per_s,attainment,ttft_p95_ms,tpot_p95_ms,e2e_p95_ms,jain,lowest_tenant_attainment\n",
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.6}"));
    for o in outcomes {
        let policy = match o.point.policy {
            Policy::Direct => "direct,,,".to_owned(),
            Policy::Gateway { permits, order, budget } => {
                let budget = budget.map_or_else(String::new, |b| b.as_millis_f64().to_string());
                format!("gateway,{permits},{order},{budget}")
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{policy},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            o.point.rate,
            o.point.seed,
            o.offered,
            o.completed,
            o.rejected,
            o.good,
            number(o.throughput),
            number(Some(o.goodput)),
            number(Some(o.attainment)),
            number(o.ttft_p95),
            number(o.tpot_p95),
            number(o.e2e_p95),
            number(o.jain),
            number(o.lowest_tenant),
        );
    }
    out
}

/// The document with pictures.
pub(super) fn document(described: &str, curves: &[Curve], target: f64) -> Doc {
    let (columns, rows) = table(curves);
    sweep_doc(&SweepPage {
        title: "Policies over offered rate".to_owned(),
        load: described.to_owned(),
        answer: knees(curves, target),
        target,
        lines: curves.iter().map(|curve| line(curve, target)).collect(),
        columns,
        rows,
    })
}

fn line(curve: &Curve, target: f64) -> SweepLine {
    let spread = |runs: &[Outcome], of: &dyn Fn(&Outcome) -> Option<f64>| {
        Spread::of(runs.iter().map(of)).map(|s| [s.mean, s.low, s.high])
    };
    let point = |(rate, runs): &(f64, &[Outcome])| {
        Some(SweepPoint {
            rate: *rate,
            throughput: spread(runs, &|o| o.throughput),
            goodput: spread(runs, &|o| Some(o.goodput))?,
            attainment: spread(runs, &|o| Some(o.attainment))?,
            n: runs.len() as u64,
        })
    };
    SweepLine {
        name: name(curve.policy),
        points: curve.rates.iter().filter_map(point).collect(),
        knee: curve.knee(target),
    }
}

fn name(policy: Policy) -> String {
    match policy {
        Policy::Direct => "direct".to_owned(),
        Policy::Gateway { permits, order, budget } => {
            let budget = budget.map_or_else(|| "no budget".to_owned(), |b| format!("budget {b}"));
            format!("{permits} permits, {order}, {budget}")
        }
    }
}

type Rows = Vec<(String, Vec<String>)>;

fn table(curves: &[Curve]) -> (Vec<String>, Rows) {
    let several_tenants = curves.iter().flat_map(|c| &c.rates).any(|(_, runs)| runs.iter().any(|o| o.jain.is_some()));
    let mut columns: Vec<&str> = vec![
        "offered /s",
        "throughput /s",
        "goodput /s",
        "attainment",
        "lowest to highest",
        "rejected",
        "TTFT p95, ms",
    ];
    if several_tenants {
        columns.extend(["Jain", "lowest tenant"]);
    }
    let mut rows = Vec::new();
    for curve in curves {
        for (rate, runs) in &curve.rates {
            let mean = |of: &dyn Fn(&Outcome) -> Option<f64>| Spread::of(runs.iter().map(of));
            let plain = |spread: Option<Spread>, decimals: usize| {
                spread.map_or_else(|| MISSING.to_owned(), |s| format!("{:.decimals$}", s.mean))
            };
            let percent = |spread: Option<Spread>| {
                spread.map_or_else(|| MISSING.to_owned(), |s| format!("{:.1}%", s.mean * 100.0))
            };
            let attainment = mean(&|o| Some(o.attainment));
            let range = attainment
                .map_or_else(|| MISSING.to_owned(), |s| format!("{:.1}–{:.1}%", s.low * 100.0, s.high * 100.0));
            let mut cells = vec![
                format!("{rate}"),
                plain(mean(&|o| o.throughput), 2),
                plain(mean(&|o| Some(o.goodput)), 2),
                percent(attainment),
                range,
                percent(mean(&|o| Some(f64::from(o.rejected) / f64::from(o.offered.max(1))))),
                plain(mean(&|o| o.ttft_p95), 0),
            ];
            if several_tenants {
                cells.push(plain(mean(&|o| o.jain), 3));
                cells.push(percent(mean(&|o| o.lowest_tenant)));
            }
            rows.push((name(curve.policy), cells));
        }
    }
    (columns.into_iter().map(str::to_owned).collect(), rows)
}

/// Where each policy's knee lies, and what a knee is.
fn knees(curves: &[Curve], target: f64) -> String {
    let told = curves.iter().map(|curve| {
        let knee = curve.knee(target).map_or_else(|| "none".to_owned(), |rate| format!("{rate}/s"));
        format!("{}: {knee}", name(curve.policy))
    });
    let percent = format!("{:.1}", target * 100.0);
    format!(
        "Knees (the highest rate up to which, at every rate of the sweep, on average at least {}% of what was offered \
         got a good answer): {}.",
        percent.trim_end_matches(".0"),
        told.collect::<Vec<_>>().join("; ")
    )
}
