//! What was found, as text, as JSON and as a document.

use elasticserve_core::search::{Answer, Evidence, Search, Stop, Tested, Unresolved, Verdict};
use elasticserve_core::stats::deviations;
use elasticserve_core::stats::proportion::wilson;
use elasticserve_report::chart::{Probe, Probes};
use elasticserve_report::check::{Metric, Share, Target};
use elasticserve_report::doc::{Doc, Section, Table, Tone};
use elasticserve_report::grid;
use serde_json::{Value, json};

/// The answer of a search, in its folder.
pub(super) const JSON_FILE: &str = "capacity.json";
const MISSING: &str = "–";

/// A search that has ended.
pub(super) struct Found<'a> {
    pub(super) subject: String,
    pub(super) simulated: bool,
    pub(super) targets: &'a [Target],
    pub(super) confidence: f64,
    pub(super) precision: f64,
    pub(super) search: &'a Search,
    pub(super) answer: Answer,
    pub(super) notes: &'a [String],
}

impl Found<'_> {
    pub(super) fn text(&self) -> String {
        let (columns, rows) = self.table();
        let verdict = if self.answer.unresolved.is_none() { "FOUND" } else { "UNRESOLVED" };
        let mut out = format!("{verdict}: {}\n{}\n\n", self.sentence(), self.subject);
        for line in self.beside() {
            out += &format!("{line}\n");
        }
        out.push('\n');
        out + &grid("rates that were tried", &columns, &rows)
    }

    pub(super) fn doc(&self) -> Doc {
        let (word, tone) =
            if self.answer.unresolved.is_none() { ("found", Tone::Good) } else { ("unresolved", Tone::Warn) };
        let targets: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        let mut doc = Doc::new("capacity", format!("Capacity at {}", targets.join(" and ")), self.sentence())
            .verdict(word, tone)
            .subject(&self.subject);
        if self.simulated {
            doc = doc.badge("simulated: no server was measured");
        }
        for line in self.beside() {
            doc = doc.point(Tone::Neutral, line);
        }
        let (columns, rows) = self.table();
        let mut table = Table::new("Rates that were tried", "offered").numbers(columns);
        for (name, cells) in rows {
            table = table.row(name, cells);
        }
        doc.section(Section::new("Probes").pictures(self.picture()))
            .section(Section::new("Figures").table(table))
            .section(Section::new("What happened besides").list(self.notes.iter().cloned()))
            .section(Section::new("Definitions").terms(self.terms()))
    }

    pub(super) fn json(&self) -> Value {
        let tested = |t: &Tested| {
            json!({
                "rate": t.rate,
                "verdict": word(t.verdict),
                "probes": t.probes(),
                "targets": t.evidence.iter().map(|e| json!({
                    "share": e.share(), "arrivals": e.arrivals(), "counts_as": e.counts_as(),
                    "shares": e.trials().iter().map(|trial| trial.share()).collect::<Vec<_>>(),
                })).collect::<Vec<_>>(),
            })
        };
        json!({
            "format": 1,
            "subject": self.subject,
            "simulated": self.simulated,
            "targets": self.targets.iter().map(Target::to_string).collect::<Vec<_>>(),
            "confidence": self.confidence,
            "precision": self.precision,
            "resolved": self.answer.unresolved.is_none(),
            "met_per_s": self.answer.met,
            "missed_per_s": self.answer.missed,
            "estimate_per_s": self.answer.estimate,
            "sentence": self.sentence(),
            "probes": self.probes(),
            "rates": self.search.tested().iter().map(tested).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    fn probes(&self) -> u32 {
        self.search.tested().iter().map(Tested::probes).sum()
    }

    /// The answer.
    fn sentence(&self) -> String {
        let targets: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        let targets = targets.join(" and ");
        let interval = match (self.answer.met, self.answer.missed) {
            (Some(met), Some(missed)) => {
                format!("{targets} is met up to {met}/s and missed from {missed}/s: the knee lies between them.")
            }
            (Some(met), None) => format!("{targets} is met up to {met}/s; no rate was shown to miss it."),
            (None, Some(missed)) => format!("{targets} is missed from {missed}/s; no rate was shown to meet it."),
            (None, None) => format!("No rate was shown to meet {targets} or to miss it."),
        };
        match self.answer.unresolved {
            None => interval,
            Some(why) => format!("{interval} {}", self.reason(why)),
        }
    }

    fn reason(&self, why: Unresolved) -> String {
        match why {
            Unresolved::MetAtHighest => "No higher rate may be tried: raise --max-rate.".to_owned(),
            Unresolved::MissedAtLowest => "No lower rate may be tried: lower --min-rate.".to_owned(),
            Unresolved::NotMonotone { missed, met } => {
                format!("There is no single knee: {missed}/s misses, yet {met}/s meets.")
            }
            Unresolved::OutOfProbes { open: Some(rate) } => self.too_few(rate),
            Unresolved::OutOfProbes { open: None } => {
                "The probes are used up: more of them, by --max-probes, narrow it.".to_owned()
            }
            Unresolved::Stopped(Stop::Time) => "Its time is over: --time gives more.".to_owned(),
            Unresolved::Stopped(Stop::Interrupted) => "The search was interrupted.".to_owned(),
            Unresolved::Stopped(Stop::Generator(rate)) => {
                format!(
                    "The generator could not offer {rate}/s within its tolerances, which says nothing of the server."
                )
            }
            Unresolved::Stopped(Stop::Server) => "The server does not answer any more.".to_owned(),
        }
    }

    /// Why the probes of a rate do not tell.
    fn too_few(&self, rate: f64) -> String {
        let all = self.search.at(rate).map_or(&[][..], |t| &t.evidence);
        // Of several targets the one that is not told: a rate without a verdict has one.
        let open = self.targets.iter().zip(all).find(|(_, e)| e.verdict() == Verdict::Open);
        let Some((target, evidence, share)) = open.and_then(|(t, e)| Some((t, e, e.share()?))) else {
            return "The probes are used up.".to_owned();
        };
        format!(
            "The probes are used up, and n is too small: at {rate}/s {} arrivals in {} probes, which count as {:.0} \
             independent ones, had {}: {:.1}%, and that does not tell.",
            evidence.arrivals(),
            evidence.trials().len(),
            evidence.counts_as(),
            share_of(target),
            share * 100.0
        )
    }

    /// What stands under the answer.
    fn beside(&self) -> Vec<String> {
        let error = (1.0 - self.confidence) / 2.0 * 100.0;
        let mut lines = vec![format!(
            "Each end is wrong with a chance of at most {}%. Probes: {}, at so many rates: {}.",
            trimmed(error),
            self.probes(),
            self.search.tested().len()
        )];
        if let Some(estimate) = self.answer.estimate {
            lines.push(format!(
                "The shares that were seen cross the target at about {estimate:.3}/s; this figure comes without a confidence."
            ));
        }
        if self.answer.unresolved.is_some() {
            lines.extend(self.notes.last().cloned());
        }
        lines
    }

    fn table(&self) -> (Vec<String>, Vec<(String, Vec<String>)>) {
        let mut columns = vec!["verdict".to_owned(), "probes".to_owned(), "arrivals".to_owned(), "count as".to_owned()];
        for target in self.targets {
            columns.extend([share_of(target), "lowest to highest".to_owned()]);
        }
        let rows = self.search.tested().iter().map(|t| {
            let first = t.evidence.first();
            let mut cells = vec![
                word(t.verdict).to_owned(),
                t.probes().to_string(),
                first.map_or(0, Evidence::arrivals).to_string(),
                first.map_or(0.0, Evidence::counts_as).round().to_string(),
            ];
            for evidence in &t.evidence {
                let percent = |share: f64| format!("{:.1}%", share * 100.0);
                let shares = || evidence.trials().iter().map(|trial| trial.share());
                let ends = shares().min_by(f64::total_cmp).zip(shares().max_by(f64::total_cmp));
                cells.push(evidence.share().map_or_else(|| MISSING.to_owned(), percent));
                cells.push(ends.map_or_else(
                    || MISSING.to_owned(),
                    |(low, high)| format!("{:.1}–{:.1}%", low * 100.0, high * 100.0),
                ));
            }
            (format!("{}/s", t.rate), cells)
        });
        (columns, rows.collect())
    }

    /// One picture for each target.
    fn picture(&self) -> Vec<elasticserve_report::chart::Picture> {
        let z = deviations(self.confidence);
        let pictures = self.targets.iter().enumerate().map(|(place, target)| {
            let probe = |t: &Tested| {
                let evidence = t.evidence.get(place)?;
                let attainment = evidence.share()?;
                Some(Probe {
                    rate: t.rate,
                    attainment,
                    ends: Some(wilson(attainment, evidence.counts_as(), z)),
                    n: evidence.arrivals(),
                    keeps: match evidence.verdict() {
                        Verdict::Met => Some(true),
                        Verdict::Missed => Some(false),
                        Verdict::Open => None,
                    },
                })
            };
            Probes {
                title: format!("{target} over the offered rate"),
                target: target.required_share().unwrap_or(target.limit),
                probes: self.search.tested().iter().filter_map(probe).collect(),
                between: [self.answer.met, self.answer.missed],
                note:
                    "A mark is a rate with all its probes. Bars are intervals of a fixed sample (Wilson), for the eye; \
                       the verdicts are of a test that may be looked at after each probe and asks for more."
                        .to_owned(),
            }
            .draw()
        });
        pictures.collect()
    }

    fn terms(&self) -> Vec<(&'static str, String)> {
        vec![
            ("Share", "of all planned arrivals of a probe; for a quantile, the share within its bound".to_owned()),
            (
                "Count as",
                "how many independent arrivals there are: arrivals beside each other share a queue, so they share \
                 their fate. It is their number divided by twice the autocorrelation time of their latencies, and no \
                 more than agrees with the spread between probes"
                    .to_owned(),
            ),
            (
                "Met, missed",
                format!(
                    "by a test that stays valid however often it is looked at; each verdict is wrong with a chance of \
                     at most {}%",
                    trimmed((1.0 - self.confidence) / 2.0 * 100.0)
                ),
            ),
        ]
    }
}

/// What the shares of a target are shares of.
fn share_of(target: &Target) -> String {
    let tenant = target.tenant.as_ref().map_or_else(String::new, |tenant| format!("[{tenant}]"));
    match target.metric {
        Metric::Share(Share::Rejected) => format!("not rejected{tenant}"),
        Metric::Share(Share::Failed) => format!("not failed{tenant}"),
        Metric::Share(_) | Metric::Goodput => format!("{}{tenant}", target.metric.name()),
        Metric::Quantile(quantile) => {
            let of = if quantile.completed_only { "completed " } else { "" };
            let text = target.to_string();
            let bound = text.rsplit("≤ ").next().unwrap_or(&text);
            format!("{of}{}{tenant} within {bound}", quantile.of.name())
        }
    }
}

/// A verdict in a word.
pub(super) const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Open => "open",
        Verdict::Missed => "missed",
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
