//! Published pairs through the statistics here, and what was published of them beside it.

use elasticserve_core::sim::reproduce::{Column, PairTable, PublishedEffect};
use elasticserve_core::stats::median;
use elasticserve_core::stats::paired::median_interval;
use serde::Serialize;

use super::{Effects, Figure, Kind, Pair, Question, Side};
use crate::check::Latency;
use crate::doc::{Doc, Section, Table, Tone};
use crate::fmt::MISSING;

/// A published study of pairs, recomputed from its pairs alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// The table of its pairs.
    pub group: &'static str,
    /// What the pairs say.
    #[serde(flatten)]
    pub effects: Effects,
    /// The pairs with what they say of goodput.
    #[serde(skip)]
    pub pairs: Table,
    /// Each published median beside the recomputed one.
    pub recomputed: Vec<Recomputed>,
}

/// A published median beside the one that the pairs give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recomputed {
    /// Its name.
    pub name: String,
    /// As it was published.
    pub published: Told,
    /// As the pairs give it; `None` if they do not have the figure.
    pub here: Option<Told>,
    /// Decimals that were published.
    pub decimals: usize,
    /// Whether both agree.
    pub agreement: Agreement,
}

/// A median and its interval.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// The median.
    pub median: f64,
    /// The interval, where there is one.
    pub interval: Option<[f64; 2]>,
}

/// How a recomputed median and interval compare with the published ones.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Every number has the published digits.
    Digits,
    /// A last digit differs, as it may: the pairs were published rounded, the effects made of unrounded ones.
    WithinRounding,
    /// The pairs were published without the figure.
    NotInPairs,
    /// They differ by more than rounding explains.
    Differs,
}

impl Agreement {
    const fn word(self) -> &'static str {
        match self {
            Self::Digits => "the same digits",
            Self::WithinRounding => "within the rounding of the pairs",
            Self::NotInPairs => "not in the published pairs",
            Self::Differs => "DIFFERS",
        }
    }
}

/// What of the pairs a published median is.
#[derive(Copy, Clone)]
enum Of {
    /// The differences, times a factor: 100 for points, −1 for a reduction.
    Difference(f64),
    /// The ratios.
    Ratio,
    /// The side with the change alone.
    Changed,
}

impl Study {
    /// The statistics of a published table of pairs, about its goodput.
    #[must_use]
    pub fn of(table: &PairTable) -> Self {
        let pairs: Vec<Pair> = table.pairs.iter().map(|row| pair(row, table.requests)).collect();
        let question = Question::of(Figure::all(Kind::Goodput));
        let effects = Effects::of(table.sides[0], table.sides[1], &pairs, &question);
        let recomputed = table.effects.iter().map(|e| recompute(e, &pairs)).collect();
        Self { group: table.group, pairs: effects.pair_table(&pairs), effects, recomputed }
    }

    /// Whether every median that the pairs give is as published.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.recomputed.iter().all(|r| r.agreement != Agreement::Differs)
    }

    /// For a terminal. Ends without a newline.
    #[must_use]
    pub fn text(&self) -> String {
        super::output::written(&self.effects, &[self.pairs.clone(), self.table()])
    }

    fn table(&self) -> Table {
        let table =
            Table::new("Published, and recomputed from the pairs", self.group).numbers(["published", "here"]).words("");
        self.recomputed.iter().fold(table, |table, r| {
            let here = r.here.map_or_else(|| MISSING.to_owned(), |told| told.text(r.decimals));
            table.row(r.name.clone(), [r.published.text(r.decimals), here, r.agreement.word().to_owned()])
        })
    }
}

/// Published studies as one document.
#[must_use]
pub fn studies_doc(studies: &[Study]) -> Doc {
    let all: Vec<&Recomputed> = studies.iter().flat_map(|s| &s.recomputed).collect();
    let count = |which: Agreement| all.iter().filter(|r| r.agreement == which).count();
    let answer = format!(
        "Of {} published medians {} come out of the published pairs with the same digits and {} within their rounding; {} are of figures that the pairs were published without.",
        all.len(),
        count(Agreement::Digits),
        count(Agreement::WithinRounding),
        count(Agreement::NotInPairs)
    );
    let agrees = studies.iter().all(Study::agrees);
    let (word, tone) = if agrees { ("reproduced", Tone::Good) } else { ("differs", Tone::Bad) };
    let mut doc = Doc::new("compare", "Published pairs", answer).verdict(word, tone);
    for study in studies {
        doc = doc.answer(format!("{}: {}", study.group, study.effects.sentence));
        doc = study.effects.warnings.iter().fold(doc, |doc, w| doc.point(Tone::Warn, format!("{}: {w}", study.group)));
    }
    for (place, study) in studies.iter().enumerate() {
        doc = doc.section(Section::new(study.group).table(study.table()).table(study.pairs.clone()));
        let mut sections = study.effects.sections();
        for section in sections.iter_mut().filter(|s| s.title != "Definitions") {
            section.title = format!("{}: {}", study.group, section.title.to_lowercase());
        }
        if place + 1 < studies.len() {
            // What the words mean is said once, at the end.
            sections.pop();
        }
        doc = sections.into_iter().fold(doc, Doc::section);
    }
    doc
}

impl Told {
    fn text(&self, decimals: usize) -> String {
        let number = |v: f64| format!("{v:.decimals$}").replace('-', "−");
        match self.interval {
            Some([low, high]) => format!("{} [{}, {}]", number(self.median), number(low), number(high)),
            None => number(self.median),
        }
    }
}

fn pair(row: &elasticserve_core::sim::reproduce::PairRow, requests: u32) -> Pair {
    let mut pair = Pair::new(format!("seed {}", row.seed));
    for (place, side) in [&mut pair.base, &mut pair.changed].into_iter().enumerate() {
        side.extend(row.sides[place].iter().filter_map(|(column, value)| figure(*column, *value, requests)));
    }
    pair.first = row.first.map(|first| if first == 0 { Side::Base } else { Side::Changed });
    pair
}

fn figure(column: Column, value: f64, requests: u32) -> Option<(Figure, f64)> {
    let (kind, value) = match column {
        Column::Goodput => (Kind::Goodput, value),
        Column::Throughput => (Kind::Throughput, value),
        Column::Attainment | Column::GoodputShare => (Kind::Attainment, value),
        Column::Jain => (Kind::Jain, value),
        Column::Rejected => (Kind::Rejected, value / f64::from(requests)),
        Column::Ttft(p) => (Kind::Latency(Latency::Ttft, p), value),
        Column::Tpot(p) => (Kind::Latency(Latency::Tpot, p), value),
        Column::E2e(p) => (Kind::Latency(Latency::E2e, p), value),
        _ => return None,
    };
    Some((Figure::all(kind), value))
}

/// What a published median is of, with its decimals and how far a published input may lie from the measured one.
fn meaning(name: &str) -> Option<(Kind, Of, usize, f64)> {
    let ttft = Kind::Latency(Latency::Ttft, 95);
    let e2e = Kind::Latency(Latency::E2e, 95);
    Some(match name {
        "goodput" | "goodput_gain" => (Kind::Goodput, Of::Difference(1.0), 2, 0.005),
        "goodput_ratio" => (Kind::Goodput, Of::Ratio, 2, 0.005),
        // Shares of 200 requests, which three decimals hold in full.
        "attainment_points" | "attainment_gain_points" => (Kind::Attainment, Of::Difference(100.0), 1, 0.0),
        "candidate_rejection_share" => (Kind::Rejected, Of::Changed, 3, 0.0),
        "ttft_p95_reduction_ms" => (ttft, Of::Difference(-1.0), 1, 0.05),
        "e2e_p95_reduction_ms" => (e2e, Of::Difference(-1.0), 1, 0.05),
        "candidate_ttft_p95" => (ttft, Of::Changed, 1, 0.05),
        "jain" => (Kind::Jain, Of::Difference(1.0), 2, 0.0005),
        _ => return None,
    })
}

fn recompute(effect: &PublishedEffect, pairs: &[Pair]) -> Recomputed {
    let published = Told { median: effect.median, interval: effect.interval };
    let meaning = meaning(&effect.name);
    let here = meaning.and_then(|(kind, of, ..)| told(pairs, kind, of, 0.0));
    let decimals = meaning.map_or(1, |(_, _, decimals, _)| decimals);
    let agreement = match meaning.zip(here) {
        None => Agreement::NotInPairs,
        Some((_, here)) if same_digits(&published, &here, decimals) => Agreement::Digits,
        Some(((kind, of, _, input), _)) => {
            let ends = [-input, input].map(|by| told(pairs, kind, of, by));
            if within(&published, ends, decimals) { Agreement::WithinRounding } else { Agreement::Differs }
        }
    };
    // An interval that was not published is not held against anything.
    let here = here.map(|told| Told { interval: told.interval.filter(|_| effect.interval.is_some()), ..told });
    Recomputed { name: effect.name.clone(), published, here, decimals, agreement }
}

/// Median and interval over the pairs, with every value moved by `by`: the side with the change up, the other down.
fn told(pairs: &[Pair], kind: Kind, of: Of, by: f64) -> Option<Told> {
    let figure = Figure::all(kind);
    let one = |p: &Pair| {
        let changed = p.changed.get(&figure)? + by;
        let base = p.base.get(&figure).map(|b| b - by);
        Some(match of {
            Of::Difference(factor) => (changed - base?) * factor,
            Of::Ratio => changed / base?,
            Of::Changed => changed,
        })
    };
    let values: Vec<f64> = pairs.iter().map(one).collect::<Option<_>>()?;
    let interval = median_interval(&values, 0.95)?;
    Some(Told { median: median(&values)?, interval: Some([interval.low, interval.high]) })
}

/// The numbers of a published effect with those at the same places here.
fn numbers(published: &Told, here: &Told) -> Vec<(f64, f64)> {
    let bounds = published.interval.into_iter().zip(here.interval).flat_map(|(a, b)| a.into_iter().zip(b));
    std::iter::once((published.median, here.median)).chain(bounds).collect()
}

fn same_digits(published: &Told, here: &Told, decimals: usize) -> bool {
    // What lies between two digits, such as 0.145, is one or the other by the last bit of a float.
    const SLACK: f64 = 1e-9;
    let unit = 10f64.powi(-(decimals as i32));
    numbers(published, here).iter().all(|(a, b)| (a - b).abs() <= unit / 2.0 + SLACK)
}

/// Whether each published number lies between what the pairs give at both ends of their rounding, both rounded.
fn within(published: &Told, ends: [Option<Told>; 2], decimals: usize) -> bool {
    let [Some(a), Some(b)] = ends else { return false };
    let unit = 10f64.powi(-(decimals as i32));
    let pairs = numbers(published, &a).into_iter().zip(numbers(published, &b));
    pairs.into_iter().all(|((p, a), (_, b))| p >= a.min(b) - unit / 2.0 && p <= a.max(b) + unit / 2.0)
}

#[cfg(test)]
mod tests {
    use elasticserve_core::sim::reproduce::Published;

    use super::*;

    fn studies() -> Vec<Study> {
        Published::built_in().unwrap().pair_tables().unwrap().iter().map(Study::of).collect()
    }

    /// The published figures, typed in again here, so that the file of measurements is held against them as well.
    #[test]
    fn published_medians_and_intervals_come_out_of_the_pairs_with_the_printed_digits() {
        let expected = [
            ("admission_pairs", "goodput_gain", "8.25 [6.39, 8.86]", Agreement::Digits),
            ("admission_pairs", "attainment_gain_points", "60.0 [46.5, 63.5]", Agreement::Digits),
            ("admission_pairs", "candidate_ttft_p95", "860.3 [852.9, 917.3]", Agreement::Digits),
            ("admission_pairs", "candidate_rejection_share", "0.235 [0.205, 0.360]", Agreement::Digits),
            // 6974.7 − 856.1 = 6118.6 where 6118.7 was published of unrounded values.
            ("admission_pairs", "ttft_p95_reduction_ms", "6118.6 [4520.1, 6472.2]", Agreement::WithinRounding),
            // 9.68 / 1.43 = 6.77 where 6.79 was published of unrounded values.
            ("admission_pairs", "goodput_ratio", "6.77", Agreement::WithinRounding),
            ("queue_order_pairs", "goodput", "−0.15 [−0.42, 0.40]", Agreement::Digits),
            ("queue_order_pairs", "attainment_points", "−1.5 [−7.0, 5.5]", Agreement::Digits),
            ("queue_order_pairs", "jain", "0.15 [0.11, 0.26]", Agreement::Digits),
        ];
        let all = studies();
        for (group, name, shown, agreement) in expected {
            let study = all.iter().find(|s| s.group == group).unwrap();
            let r = study.recomputed.iter().find(|r| r.name == name).unwrap();
            assert_eq!((r.here.unwrap().text(r.decimals).as_str(), r.agreement), (shown, agreement), "{name}");
        }
        let missing: Vec<&str> = all
            .iter()
            .flat_map(|s| &s.recomputed)
            .filter(|r| r.agreement == Agreement::NotInPairs)
            .map(|r| r.name.as_str())
            .collect();
        let rest =
            ["e2e_p95_reduction_ms", "batch_points", "gold_points", "min_tenant_attainment_points", "standard_points"];
        assert_eq!(missing, rest);
        assert!(all.iter().all(Study::agrees));
    }

    #[test]
    fn a_published_number_that_its_pairs_do_not_give_is_said_to_differ() {
        let mut tables = Published::built_in().unwrap().pair_tables().unwrap();
        for effect in &mut tables[0].effects {
            effect.median += 0.05;
        }
        let study = Study::of(&tables[0]);
        let goodput = study.recomputed.iter().find(|r| r.name == "goodput_gain").unwrap();
        assert_eq!((goodput.agreement, study.agrees()), (Agreement::Differs, false));
        assert!(study.text().contains("DIFFERS"));
    }

    #[test]
    fn the_admission_study_is_said_to_go_with_the_order_of_its_runs() {
        let all = studies();
        let [admission, order] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(admission.effects.first.iter().flatten().count(), 5);
        assert!(
            admission.effects.warnings[0].contains("goes with the order of the runs"),
            "{:?}",
            admission.effects.warnings
        );
        assert!(order.effects.warnings.is_empty(), "{:?}", order.effects.warnings);
        let doc = studies_doc(&all).to_markdown();
        assert!(doc.contains("Of 14 published medians 7 come out"), "{doc}");
        assert!(doc.contains("8.25 \\[6.39, 8.86\\]") || doc.contains("8.25 [6.39, 8.86]"), "{doc}");
    }
}
