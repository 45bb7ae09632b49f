//! A comparison of policies as text, JSON and a document.

use elasticserve_core::sim::policies::{Bar, Front, Outcome, Row, Table};
use elasticserve_report::{FrontLine, FrontPicture, FrontPoint, PolicyPage, PolicyTable, doc::Doc, grid, policies_doc};
use serde_json::{Value, json};

use super::{FrontResult, Results};

const MISSING: &str = "–";
/// The cap at whose Jain's index the fronts are compared.
const COMPARED_AT: &str = "cap 10";
const COLUMNS: [&str; 7] = ["attainment", "per seed", "goodput /s", "Jain", "lowest tenant", "misses", "at arrival"];

/// The costs of a price, as the comparisons show them.
const COSTS: [&str; 4] = [
    "A price with mu above 0 gives up attainment for fairness: compare its row with least-slack + predict.",
    "Within a tenant the burden falls on long prompts, which stall the others most. An index over tenants does not see that.",
    "A request that declares a shorter answer than it takes buys a lower price.",
    "With mu above 1 more is refused on the promise that rivals will hold back, and more of what is admitted misses.",
];

/// The tables, the fronts and the bars.
pub(super) fn text(results: &Results) -> String {
    let mut out = String::new();
    for table in &results.tables {
        let (columns, rows) = cells(table);
        out += &grid(&table.workload, &columns, &rows);
        out.push('\n');
    }
    if let Some((seeds, mean)) = &results.hindsight {
        let each: Vec<String> = seeds.iter().map(|(seed, a)| format!("{seed}: {:.1}", a * 100.0)).collect();
        out += &format!("Search in hindsight: attainment {:.1}% ({}).\n\n", mean * 100.0, each.join(", "));
    }
    for front in &results.fronts {
        let columns = ["attainment", "goodput /s", "Jain", "lowest tenant", "misses", "at arrival"].map(str::to_owned);
        let rows: Vec<(String, Vec<String>)> =
            front.points.iter().map(|(name, o)| (name.clone(), figures(o))).collect();
        out += &grid(&format!("{}: {}", front.workload, front.name), &columns, &rows);
        out.push('\n');
    }
    for line in at_equal_jain(&results.fronts) {
        out += &line;
        out.push('\n');
    }
    out + &held(&results.bars)
}

fn held(bars: &[Bar]) -> String {
    let columns = ["value", "at least", ""].map(str::to_owned);
    let decimals = |bar: &Bar| if bar.value.abs() < 2.0 { 3 } else { 1 };
    let row = |bar: &Bar| {
        let least = if bar.least == f64::MIN_POSITIVE {
            "above 0".to_owned()
        } else {
            format!("{:.*}", decimals(bar), bar.least)
        };
        let mark = if bar.ok { "ok" } else { "NO" };
        (bar.name.clone(), vec![format!("{:.*}", decimals(bar), bar.value), least, mark.to_owned()])
    };
    let ok = bars.iter().filter(|bar| bar.ok).count();
    grid("bars", &columns, &bars.iter().map(row).collect::<Vec<_>>()) + &format!("\n{ok} of {} bars hold.", bars.len())
}

/// Every row with what stands beside it.
fn cells(table: &Table) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let columns = COLUMNS.iter().chain(&["beside it"]).map(|c| (*c).to_owned()).collect();
    let row = |row: &Row| {
        let mean = row.mean()?;
        let mut cells = figures(&mean);
        let seeds: Vec<String> = row.seeds.iter().map(|(_, o)| format!("{:.0}", o.attainment * 100.0)).collect();
        cells.insert(1, seeds.join(" "));
        cells.push(row.expected.map_or_else(
            || MISSING.to_owned(),
            |e| {
                let goodput = e.goodput.map_or_else(String::new, |g| format!(", {g:.2}/s"));
                let jain = e.jain.map_or_else(String::new, |j| format!(", {j:.3}"));
                format!("{:.1}%{goodput}{jain} ({})", e.attainment, e.source)
            },
        ));
        Some((row.policy.to_string(), cells))
    };
    (columns, table.rows.iter().filter_map(row).collect())
}

fn figures(o: &Outcome) -> Vec<String> {
    let percent = |share: Option<f64>| share.map_or_else(|| MISSING.to_owned(), |s| format!("{:.1}%", s * 100.0));
    vec![
        percent(Some(o.attainment)),
        format!("{:.2}", o.goodput),
        o.jain.map_or_else(|| MISSING.to_owned(), |j| format!("{j:.3}")),
        percent(o.lowest),
        percent(Some(o.missed)),
        percent(o.at_arrival),
    ]
}

/// What the second front of each workload gains at the fairness of the first one's hand-made cap.
fn at_equal_jain(fronts: &[FrontResult]) -> Vec<String> {
    let line = |pair: &[FrontResult]| {
        let [caps, prices] = pair else { return None };
        let (_, capped) = caps.points.iter().find(|(name, _)| name == COMPARED_AT)?;
        let means: Vec<Outcome> = prices.points.iter().map(|(_, o)| o.clone()).collect();
        let (jain, attainment) = (capped.jain?, capped.attainment * 100.0);
        let priced = Front::attainment_at(&means, jain)? * 100.0;
        Some(format!(
            "{}, at Jain {jain:.3}: {COMPARED_AT} {attainment:.1}%, {} {priced:.1}% ({:+.1} points).",
            caps.workload,
            prices.name,
            priced - attainment
        ))
    };
    fronts.chunks(2).filter_map(line).collect()
}

/// Everything, per seed.
pub(super) fn json(results: &Results) -> Value {
    let outcome = |o: &Outcome| {
        json!({
            "attainment": o.attainment, "goodput": o.goodput, "jain": o.jain, "lowest_tenant": o.lowest,
            "tenants": o.tenants, "missed": o.missed, "refused_at_arrival": o.refused,
            "refusals_at_arrival": o.at_arrival,
        })
    };
    let row = |row: &Row| {
        let seeds: Vec<Value> =
            row.seeds.iter().map(|(seed, o)| json!({ "seed": seed, "outcome": outcome(o) })).collect();
        let beside = row.expected.map(
            |e| json!({ "source": e.source, "attainment": e.attainment / 100.0, "goodput": e.goodput, "jain": e.jain }),
        );
        json!({
            "policy": row.policy.to_string(), "mean": row.mean().as_ref().map(outcome), "beside": beside, "seeds": seeds,
        })
    };
    let table = |t: &Table| json!({ "workload": t.workload, "rows": t.rows.iter().map(row).collect::<Vec<_>>() });
    let front = |f: &FrontResult| {
        let points: Vec<Value> =
            f.points.iter().map(|(name, o)| json!({ "name": name, "outcome": outcome(o) })).collect();
        json!({ "workload": f.workload, "front": f.name, "points": points })
    };
    let bar = |b: &Bar| json!({ "name": b.name, "value": b.value, "least": b.least, "ok": b.ok });
    json!({
        "tables": results.tables.iter().map(table).collect::<Vec<_>>(),
        "hindsight": results.hindsight.as_ref().map(|(seeds, mean)| json!({ "seeds": seeds, "mean": mean })),
        "fronts": results.fronts.iter().map(front).collect::<Vec<_>>(),
        "bars": results.bars.iter().map(bar).collect::<Vec<_>>(),
        "ok": results.bars.iter().all(|b| b.ok),
    })
}

/// The document with the fronts.
pub(super) fn document(results: &Results) -> Doc {
    let point = |(name, o): &(String, Outcome)| {
        Some(FrontPoint { name: name.clone(), jain: o.jain?, attainment: o.attainment })
    };
    let line =
        |f: &FrontResult| FrontLine { name: f.name.to_owned(), points: f.points.iter().filter_map(point).collect() };
    let picture = |pair: &[FrontResult]| FrontPicture {
        workload: pair.first().map(|f| f.workload.clone()).unwrap_or_default(),
        lines: pair.iter().map(line).collect(),
    };
    let tables = results.tables.iter().map(|table| {
        let (columns, rows) = cells(table);
        PolicyTable { title: table.workload.clone(), columns, rows }
    });
    let ok = results.bars.iter().filter(|bar| bar.ok).count();
    policies_doc(&PolicyPage {
        title: "Policies: attainment against fairness".to_owned(),
        load: "Recorded and drawn arrivals on the engine model, behind the gateway's scheduler.".to_owned(),
        answer: format!("{} {ok} of {} bars hold.", at_equal_jain(&results.fronts).join(" "), results.bars.len()),
        fronts: results.fronts.chunks(2).map(picture).collect(),
        costs: COSTS.map(str::to_owned).into(),
        tables: tables.collect(),
    })
}
