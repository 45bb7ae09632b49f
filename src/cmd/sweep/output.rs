//! A sweep as text, as JSON and as a document.

use std::path::Path;

use elasticserve_report::chart;
use elasticserve_report::check::Target;
use elasticserve_report::doc::{Doc, Section, Table, Tone};
use elasticserve_report::{Summary, SweepLine, SweepPoint, grid, write_file};
use serde_json::{Value, json};

use super::{Point, knee_of};
use crate::cmd::say_error;

const MISSING: &str = "–";

/// A sweep that has ended.
pub(super) struct Swept<'a> {
    pub(super) subject: String,
    pub(super) simulated: bool,
    pub(super) target: &'a Target,
    pub(super) required: f64,
    pub(super) points: &'a [Point],
}

impl Swept<'_> {
    pub(super) fn text(&self) -> String {
        let (columns, rows) = self.table();
        let invalid: String = self.invalid().map(|why| format!("does not count: {why}\n")).collect();
        format!("{}\n{}\n\n{}{invalid}", self.answer(), self.subject, grid("means over the seeds", &columns, &rows))
    }

    pub(super) fn json(&self) -> Value {
        let point = |p: &Point| {
            json!({
                "rate": p.rate,
                "share": p.share(),
                "runs": p.runs.iter().map(|(share, summary)| json!({
                    "share": share, "plan_hash": summary.plan_hash, "attainment": summary.figures.attainment,
                    "goodput_per_s": goodput(summary), "completed_per_s": throughput(summary),
                })).collect::<Vec<_>>(),
                "invalid": p.invalid,
            })
        };
        json!({
            "format": 1,
            "subject": self.subject,
            "simulated": self.simulated,
            "target": self.target.to_string(),
            "knee_per_s": knee_of(self.points, self.required),
            "rates": self.points.iter().map(point).collect::<Vec<_>>(),
        })
    }

    /// Writes JSON, page and Markdown into the folder of the sweep.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        write_file(&folder.join("sweep.json"), &(serde_json::to_string_pretty(&self.json())? + "\n"))?;
        let page = folder.join("sweep.html");
        self.doc().write(Some(&page), Some(&folder.join("sweep.md")))?;
        say_error(&format!("wrote {}", page.display()));
        Ok(())
    }

    fn doc(&self) -> Doc {
        let mut doc =
            Doc::new("sweep", format!("{} over offered rate", self.target), self.answer()).subject(&self.subject);
        if self.simulated {
            doc = doc.badge("simulated: no server was measured");
        }
        for why in self.invalid() {
            doc = doc.point(Tone::Warn, format!("Does not count: {why}"));
        }
        let (columns, rows) = self.table();
        let mut table = Table::new("Means over the seeds", "offered").numbers(columns);
        for (name, cells) in rows {
            table = table.row(name, cells);
        }
        let line = SweepLine {
            name: "measured".to_owned(),
            points: self.points.iter().filter_map(point).collect(),
            knee: knee_of(self.points, self.required),
        };
        let pictures = chart::sweep(&[line], self.required, "the smallest to the largest of the seeds");
        doc.section(Section::new("Pictures").pictures(pictures)).section(Section::new("Figures").table(table))
    }

    fn invalid(&self) -> impl Iterator<Item = &str> {
        self.points.iter().flat_map(|p| p.invalid.iter().map(String::as_str))
    }

    fn answer(&self) -> String {
        let of = format!(
            "of {} (the highest rate up to which, at every rate of the sweep, the mean reaches it)",
            self.target
        );
        match (knee_of(self.points, self.required), self.points.last()) {
            (Some(knee), Some(last)) if knee == last.rate => {
                format!("The knee {of} is not below {knee}/s, the highest rate that was tried.")
            }
            (Some(knee), _) => format!("The knee {of} is {knee}/s."),
            (None, Some(_)) => format!("There is no knee {of}: the lowest rate misses it, or no run of it counts."),
            (None, None) => "No rate was tried.".to_owned(),
        }
    }

    fn table(&self) -> (Vec<String>, Vec<(String, Vec<String>)>) {
        let columns =
            ["runs", "throughput /s", "goodput /s", "attainment", "lowest to highest", "rejected", "TTFT p95, ms"];
        let rows = self.points.iter().map(|p| {
            let mean = |of: &dyn Fn(&Summary) -> Option<f64>, decimals: usize, scale: f64, unit: &str| {
                spread(p, of)
                    .map_or_else(|| MISSING.to_owned(), |[mean, ..]| format!("{:.decimals$}{unit}", mean * scale))
            };
            let range = spread(p, &|s| s.figures.attainment);
            let cells = vec![
                p.runs.len().to_string(),
                mean(&throughput, 2, 1.0, ""),
                mean(&goodput, 2, 1.0, ""),
                mean(&|s| s.figures.attainment, 1, 100.0, "%"),
                range.map_or_else(
                    || MISSING.to_owned(),
                    |[_, low, high]| format!("{:.1}–{:.1}%", low * 100.0, high * 100.0),
                ),
                mean(&|s| Some(f64::from(s.figures.rejected) / f64::from(s.figures.planned.max(1))), 1, 100.0, "%"),
                mean(&|s| Some(s.figures.latencies.ttft.p95? * s.time_scale), 0, 1.0, ""),
            ];
            (format!("{}/s", p.rate), cells)
        });
        (columns.map(str::to_owned).to_vec(), rows.collect())
    }
}

fn point(p: &Point) -> Option<SweepPoint> {
    Some(SweepPoint {
        rate: p.rate,
        throughput: spread(p, &throughput),
        goodput: spread(p, &goodput)?,
        attainment: spread(p, &|s| s.figures.attainment)?,
        n: p.runs.len() as u64,
    })
}

/// Completions per second, in the time of the plan.
fn throughput(summary: &Summary) -> Option<f64> {
    Some(summary.completed_per_s? / summary.time_scale)
}

/// Good answers per second of the window, in the time of the plan.
fn goodput(summary: &Summary) -> Option<f64> {
    Some(summary.figures.goodput_per_s? / summary.time_scale)
}

/// Mean, smallest and largest over the runs that have the figure.
fn spread(p: &Point, of: &dyn Fn(&Summary) -> Option<f64>) -> Option<[f64; 3]> {
    let values: Vec<f64> = p.runs.iter().filter_map(|(_, s)| of(s)).collect();
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    Some([values.iter().sum::<f64>() / values.len() as f64, low, high])
}
