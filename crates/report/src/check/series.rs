//! What a target says of each arrival, for a search over rates.

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::search::Series;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;

use super::cohort::Cohort;
use super::target::{Metric, Share, Target};
use crate::Run;

impl Target {
    /// The share of arrivals that must be served as the target asks: a quantile bounds one too.
    ///
    /// # Errors
    /// Says why the target cannot be searched for, and what would be right.
    pub fn required_share(&self) -> Result<f64, String> {
        let share = match self.metric {
            Metric::Share(Share::Attainment | Share::Completed) => self.limit,
            Metric::Share(Share::Rejected | Share::Failed) => 1.0 - self.limit,
            Metric::Quantile(quantile) => quantile.p,
            Metric::Goodput => {
                return Err(
                    "goodput grows with the rate before it falls, so no rate is the highest that reaches it by \
                            being low enough: bound a share or a quantile, such as attainment>=0.95"
                        .to_owned(),
                );
            }
        };
        if share >= 1.0 {
            return Err("no number of requests shows that not one in any number misses: leave some room, such as \
                        0.999 in place of 1"
                .to_owned());
        }
        if share <= 0.0 {
            return Err("every rate meets it".to_owned());
        }
        Ok(share)
    }

    /// Whether each arrival of a run was served as the target asks, and how badly, in order of arrival.
    #[must_use]
    pub fn series(&self, run: &Run) -> Series {
        self.series_of(run.outcomes().into_iter().map(|row| (row, run.slo(row))))
    }

    /// The same of rows in order of arrival, the last attempt of each, with their limits.
    #[must_use]
    pub fn series_of<'a>(&self, rows: impl IntoIterator<Item = (&'a Row, Slo)>) -> Series {
        let about = |row: &&Row| self.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant);
        let rows: Vec<(&Row, Slo)> = rows.into_iter().filter(|(row, _)| about(row)).collect();
        let cohort = Cohort::of_rows(0.0, rows.iter().copied());
        let hits = cohort.hits(&self.metric, self.limit);
        match self.metric {
            Metric::Quantile(quantile) => {
                let severity = cohort.values(&quantile).into_iter().map(|value| value / self.limit.max(1e-9));
                Series { hits, severity: severity.collect() }
            }
            Metric::Share(share) => {
                // A share that must not be passed is one of what must not happen.
                let bad = matches!(share, Share::Rejected | Share::Failed);
                let hits = hits.into_iter().map(|hit| hit != bad).collect();
                Series { hits, severity: rows.iter().map(|(row, slo)| severity(row, slo)).collect() }
            }
            Metric::Goodput => Series { hits, severity: rows.iter().map(|(row, slo)| severity(row, slo)).collect() },
        }
    }
}

/// The latency that comes closest to its limit or is furthest beyond, as a part of it; without limits the time to the
/// end in seconds. Infinite for what was not answered in full.
fn severity(row: &Row, slo: &Slo) -> f64 {
    if row.state != Terminal::Completed {
        return f64::INFINITY;
    }
    let part = |limit: Option<Span>, value: Option<Span>| Some(value?.as_secs_f64() / limit?.as_secs_f64().max(1e-9));
    let parts = [part(slo.ttft, row.ttft()), part(slo.tpot, row.tpot()), part(slo.e2e, row.e2e())];
    let worst = parts.into_iter().flatten().max_by(f64::total_cmp);
    worst.or(row.e2e().map(Span::as_secs_f64)).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Tick;

    const SLO: Slo = Slo { ttft: Some(Span::from_millis(1000)), tpot: None, e2e: Some(Span::from_secs(10)) };

    fn answered(index: u32, ttft_ms: u64, e2e_ms: u64) -> Row {
        let ms = |n: u64| Some(Tick::from_nanos(n * 1_000_000));
        let mut row = Row::new(index, if index.is_multiple_of(2) { "gold" } else { "rest" }, Tick::ZERO, 10, 5);
        row.state = Terminal::Completed;
        (row.first_content, row.last_content, row.end, row.output_tokens) =
            (ms(ttft_ms), ms(e2e_ms), ms(e2e_ms), Some(5));
        row
    }

    fn series(target: &str, rows: &[Row]) -> Series {
        target.parse::<Target>().unwrap().series_of(rows.iter().map(|row| (row, SLO)))
    }

    fn rows() -> [Row; 3] {
        let mut refused = Row::new(2, "gold", Tick::ZERO, 10, 5);
        refused.state = Terminal::Rejected;
        [answered(0, 500, 2000), answered(1, 900, 20_000), refused]
    }

    #[test]
    fn an_arrival_is_as_bad_as_the_worst_of_its_latencies() {
        let got = series("attainment>=0.9", &rows());
        assert_eq!(got, Series { hits: vec![true, false, false], severity: vec![0.5, 2.0, f64::INFINITY] });
        assert_eq!(series("attainment[rest]>=0.9", &rows()).hits, [false]);
    }

    #[test]
    fn what_must_not_happen_is_a_hit_where_it_did_not() {
        assert_eq!(series("rejected<=0.1", &rows()).hits, [true, true, false]);
    }

    #[test]
    fn a_quantile_is_the_share_within_its_bound() {
        let got = series("ttft_p99<=600", &rows());
        assert_eq!(got.hits, [true, false, false]);
        assert_eq!(got.severity, [500.0 / 600.0, 1.5, f64::INFINITY]);
        assert_eq!(series("completed_ttft_p99<=600", &rows()).hits, [true, false]);
    }

    #[test]
    fn a_target_says_which_share_it_asks_for_or_why_none() {
        let share = |text: &str| text.parse::<Target>().unwrap().required_share();
        assert_eq!(share("attainment>=0.95"), Ok(0.95));
        assert_eq!(share("ttft_p99<=1000"), Ok(0.99));
        assert_eq!(share("rejected<=0.25"), Ok(0.75));
        for (text, says) in [
            ("goodput>=9", "bound a share"),
            ("attainment>=1", "0.999"),
            ("rejected<=0", "0.999"),
            ("attainment>=0", "every rate"),
        ] {
            assert!(share(text).is_err_and(|e| e.contains(says)), "{text}");
        }
    }
}
