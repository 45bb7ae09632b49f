//! A comparison for people: as text, and as a document.

use super::{Comparison, Direction, Effect, Effects, Figure, Finding, Kind, Pair, Unit, Verdict, tables};
use crate::chart::{self, Better, EffectGroup};
use crate::check::Latency;
use crate::check::text::wrap;
use crate::doc::{Doc, Section, Table, Tone};
use crate::fmt::{counted, one_line};
use crate::grid::grid;

impl Effects {
    /// What was found, for a terminal: the sentence first. Ends without a newline.
    #[must_use]
    pub fn text(&self) -> String {
        written(self, &[])
    }

    /// What was found, as a document.
    #[must_use]
    pub fn doc(&self) -> Doc {
        self.sections().into_iter().fold(self.opening(), Doc::section)
    }

    /// The answer with what is to be known before it is used, without sections.
    #[must_use]
    pub fn opening(&self) -> Doc {
        let [base, changed] = [&self.base, &self.changed].map(|name| one_line(name, 60));
        let doc = Doc::new("compare", format!("{base} against {changed}"), self.sentence.clone())
            .verdict(self.verdict.word(), tone(self.verdict))
            .subject(counted(self.pairs.len() as u32, "pair"));
        self.warnings.iter().fold(doc, |doc, warning| doc.point(Tone::Warn, warning.clone()))
    }

    /// The picture and the tables of the effects, and what the words mean, for a document that has more to tell.
    #[must_use]
    pub fn sections(&self) -> Vec<Section> {
        let picture = self.picture();
        let tables = [tables::overall(self), tables::tenants(self), tables::spread(self)];
        let effects = tables.into_iter().fold(Section::new("Effects"), Section::table);
        let mut all = Vec::new();
        all.extend(picture.map(|p| Section::new("What changed").picture(p.draw())));
        all.extend([effects, Section::new("Definitions").terms(definitions(self))]);
        all
    }

    /// The effects with their intervals; `None` without a pair.
    #[must_use]
    pub fn picture(&self) -> Option<chart::Effects> {
        let mut groups: Vec<EffectGroup> = Vec::new();
        for effect in self.effects.iter().filter(|e| e.difference.median.is_some() && self.is_drawn(&e.figure)) {
            let (name, better) = group(effect);
            let drawn = chart::Effect {
                name: effect.figure.label(),
                value: effect.difference.median.unwrap_or(0.0),
                low: effect.difference.interval.map(|i| i.low),
                high: effect.difference.interval.map(|i| i.high),
                n: effect.n as u64,
            };
            if let Some(group) = groups.iter_mut().find(|g| g.name == name) {
                group.effects.push(drawn);
            } else {
                let unit = effect.unit.of_differences();
                groups.push(EffectGroup { name, unit, better, effects: vec![drawn] });
            }
        }
        let few = self.effects.iter().filter_map(|e| e.difference.interval).any(|i| i.confidence < self.confidence);
        let margin = "A bar has its colour where it lies on one side of 0, even within the margin.";
        let range = "Intervals of five pairs and fewer are the range of the pairs and hold less than that.";
        (!groups.is_empty()).then(|| chart::Effects {
            title: "Median differences over the pairs".to_owned(),
            note: if few { format!("{margin} {range}") } else { margin.to_owned() },
            confidence: self.confidence,
            groups,
        })
    }

    /// Whether a figure is one of those that a reader looks for first; the tables hold all.
    fn is_drawn(&self, figure: &Figure) -> bool {
        let first = match figure.kind {
            Kind::Latency(of, p) => of != Latency::LongestGap && p == 95 && figure.tenant.is_none(),
            Kind::Failed | Kind::Throughput => false,
            Kind::FeasibleAttainment => figure.tenant.is_none(),
            _ => true,
        };
        first || *figure == self.figure
    }

    /// The pairs with what they say of the figure in question. `of` are those that [`Effects::of`] was given.
    #[must_use]
    pub fn pair_table(&self, of: &[Pair]) -> Table {
        let values = |p: &Pair| (p.base.get(&self.figure).copied(), p.changed.get(&self.figure).copied());
        tables::pairs(self, &of.iter().map(values).collect::<Vec<_>>())
    }
}

impl Comparison {
    /// What was found, for a terminal: the sentence first. Ends without a newline.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = written(&self.effects, &self.tables());
        if let Some(remark) = self.remark() {
            out.push_str("\n\n");
            wrap(&mut out, "", &remark);
            out.truncate(out.trim_end().len());
        }
        out
    }

    /// What was found, as a document.
    #[must_use]
    pub fn doc(&self) -> Doc {
        let mut doc = self.effects.opening();
        if let Some(remark) = self.remark() {
            doc = doc.point(Tone::Neutral, remark);
        }
        let mut sections = self.effects.sections();
        let runs = self.tables().into_iter().fold(Section::new("Runs"), Section::table);
        sections.insert(sections.len().saturating_sub(1), runs);
        sections.into_iter().fold(doc, Doc::section)
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.pairs.clone(), tables::ceilings(self), tables::differences(self)]
    }

    /// What was left out.
    fn remark(&self) -> Option<String> {
        (!self.alone.is_empty()).then(|| {
            let names: Vec<String> = self.alone.iter().map(|n| one_line(n, 40)).collect();
            format!("Without a partner, and in no figure: {}.", names.join(", "))
        })
    }
}

pub(super) fn written(all: &Effects, more: &[Table]) -> String {
    let mut out = String::new();
    wrap(&mut out, &format!("{}: ", all.verdict.word().to_uppercase()), &all.sentence);
    for warning in &all.warnings {
        wrap(&mut out, "! ", warning);
    }
    let tables = [tables::overall(all), tables::tenants(all), tables::spread(all)];
    for table in tables.iter().chain(more).filter(|t| !t.rows.is_empty()) {
        out.push('\n');
        let columns: Vec<String> = table.columns.iter().map(|c| c.head.clone()).collect();
        let cells = |row: &crate::doc::Row| row.cells.iter().map(|c| c.text.clone()).collect();
        let rows: Vec<(String, Vec<String>)> = table.rows.iter().map(|r| (r.name.clone(), cells(r))).collect();
        out.push_str(&grid(&table.title, &columns, &rows));
    }
    out.truncate(out.trim_end().len());
    out
}

const fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Bad,
        Verdict::NoDifference => Tone::Neutral,
        Verdict::Undecided => Tone::Warn,
    }
}

/// Effects on one scale: of one unit and direction, and of one latency.
fn group(effect: &Effect) -> (String, Better) {
    let name = match (effect.figure.kind, effect.unit) {
        (Kind::Latency(of, _), _) => of.name().replace('_', " ").to_uppercase(),
        (Kind::Rejected, _) => "turned away".to_owned(),
        (Kind::Failed, _) => "failed".to_owned(),
        (_, Unit::Share) => "attainment".to_owned(),
        (_, Unit::PerSecond) => "rates".to_owned(),
        _ => "fairness".to_owned(),
    };
    let better = match effect.direction {
        Direction::Up => Better::Higher,
        Direction::Down => Better::Lower,
        Direction::Open => Better::Neither,
    };
    (name, better)
}

fn definitions(all: &Effects) -> Vec<(String, String)> {
    let percent = super::figure::percent(all.confidence);
    let mut terms = vec![
        ("difference", "The median over the pairs of what the figure is with the change less what it is without. It is not the difference of the two medians.".to_owned()),
        ("interval", format!("Of the median, between order statistics and interpolated (Hettmansperger and Sheather 1986): it covers {percent} whatever the distribution, from six pairs on. Of five pairs it is their range, which covers 93.8%; of fewer it covers less, and nothing is decided.")),
        ("by bootstrap", format!("The percentile interval of the median over {} resamples of the pairs with seed {}; of up to nine pairs over every possible resample.", crate::fmt::count(u64::from(all.resamples)), all.seed)),
        ("better, worse", "The whole interval lies on that side of 0, and reaches beyond the margin.".to_owned()),
        ("margin", "A difference that is too small to matter.".to_owned()),
        ("no difference shown", "The whole interval lies within the margin.".to_owned()),
        ("more pairs", "How many would, with a chance of 80%, put the whole interval on one side of 0 or within the margin, if the differences go on with this median and deviation.".to_owned()),
        ("smallest shown", "The minimum detectable effect: the difference that so many pairs show with a chance of 80%, at this deviation.".to_owned()),
        ("sign p", "The two-sided sign test: how likely so many differences of one sign would be by chance. Five of one sign have 0.0625.".to_owned()),
        ("order p, drift p", "How likely chance alone would make the difference go as much with which side ran first, or with time (Student's t).".to_owned()),
        ("latencies", "Of completed answers alone: who turns more away may answer the rest faster.".to_owned()),
    ];
    if all.effect(&Figure::all(Kind::FeasibleAttainment)).is_some_and(|e| e.finding != Finding::Undecided || e.n > 0) {
        terms.push(("feasible", "An arrival whose limits an engine of the given profile keeps that has nothing else to do and the prompt in its cache. No policy answers more in time.".to_owned()));
    }
    terms.into_iter().map(|(term, meaning)| (term.to_owned(), meaning)).collect()
}
