//! What this generator keeps up with on this machine, measured before a run against a null server.
//!
//! A trial offers requests like those of the plan at a constant rate for half a second, through the same
//! maker, pacer and connections as the run. It is clean if the p99 of the send lag is within the declared
//! tolerance and every request was answered. The null server shares the machine, so the ceiling is a low
//! estimate: MLPerf's LoadGen is tested in the same way, against a system under test that does nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use elasticserve_core::health::Ceiling;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::LoadConfig;
use crate::dial::Route;
use crate::field::Field;
use crate::maker::Maker;
use crate::null::NullServer;
use crate::offer::{LEAD, single};
use crate::pacer::Pacer;
use crate::progress::Progress;
use crate::request::Requests;
use crate::retry::Retries;
use crate::run::{Connections, LoadError};
use crate::slots::Slots;
use crate::tally::Tally;
use crate::validate::Validators;

/// How much of the generator's ceiling is measured before a run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CeilingCheck {
    /// Nothing.
    #[default]
    Off,
    /// Whether the generator keeps somewhat more than twice the plan's busiest second, and if not, what it
    /// keeps. For a plan that claims no rate there is nothing to check.
    Quick,
    /// The highest rate that it keeps, to within an eighth.
    Full,
}

/// How long a trial sends.
const TRIAL: Duration = Duration::from_millis(500);
/// How long what is open may take after that.
const PATIENCE: Duration = Duration::from_millis(500);
/// The lowest rate of a trial: fewer requests say nothing of a p99.
const LEAST: f64 = 200.0;
/// A search ends here at the latest: above what one process can be expected to do.
const MOST: f64 = 400_000.0;
/// Of the plan's busiest second. Above 2, since lateness moves arrivals over the edges of seconds.
const MARGIN: f64 = 2.5;
/// Requests of the plan whose shape the trials repeat.
const SHAPES: usize = 256;

/// Measures the ceiling; `None` if there is nothing to measure.
pub(crate) async fn measure(config: &LoadConfig, plan: &Plan) -> Result<Option<Ceiling>, LoadError> {
    let shapes: Vec<Arrival> = plan.arrivals().iter().take(SHAPES).copied().collect();
    let wanted = if plan.header().model.is_open() { busiest_second(plan) * MARGIN } else { 0.0 };
    if config.ceiling == CeilingCheck::Off || shapes.is_empty() {
        return Ok(None);
    }
    let null = NullServer::start(config.streaming).map_err(|e| LoadError::Thread(e.to_string()))?;
    let mut config = config.clone();
    config.url =
        format!("http://{}", null.addr()).parse().map_err(|e: crate::UrlError| LoadError::Request(e.to_string()))?;
    // The keys are for the server alone.
    (config.api_key, config.headers) = (None, Vec::new());
    let trials = Trials { config, shapes, null: &null };
    let first = wanted.max(LEAST);
    match trials.config.ceiling {
        CeilingCheck::Quick if wanted > 0.0 => trials.check(first).await.map(Some),
        CeilingCheck::Full => trials.search(first).await.map(Some),
        CeilingCheck::Quick | CeilingCheck::Off => Ok(None),
    }
}

/// The most arrivals that a plan has in one second of its clock.
fn busiest_second(plan: &Plan) -> f64 {
    let mut most = 0;
    let mut arrivals = plan.arrivals().iter().map(|a| a.at.as_nanos() / 1_000_000_000).peekable();
    while let Some(second) = arrivals.next() {
        let mut count = 1;
        while arrivals.next_if_eq(&second).is_some() {
            count += 1;
        }
        most = most.max(count);
    }
    f64::from(most)
}

struct Trials<'a> {
    config: LoadConfig,
    shapes: Vec<Arrival>,
    null: &'a NullServer,
}

impl Trials<'_> {
    /// Whether a rate is kept; if not, the highest that is, halving.
    async fn check(&self, wanted: f64) -> Result<Ceiling, LoadError> {
        let mut rate = wanted;
        // A stall of the machine within one trial is not the generator's limit.
        if self.is_clean(rate).await? || self.is_clean(rate).await? {
            return Ok(self.ceiling(rate, false));
        }
        while rate > LEAST / 8.0 {
            rate /= 2.0;
            if self.is_clean(rate).await? {
                return Ok(self.ceiling(rate, true));
            }
        }
        Ok(self.ceiling(0.0, true))
    }

    /// The highest rate that is kept: doubled until one is not, then halved in between three times.
    async fn search(&self, first: f64) -> Result<Ceiling, LoadError> {
        let mut clean = self.check(first).await?;
        if clean.is_highest {
            return Ok(clean);
        }
        let mut unclean = clean.per_s * 2.0;
        while unclean <= MOST && self.is_clean(unclean).await? {
            clean.per_s = unclean;
            unclean *= 2.0;
        }
        for _ in 0..3 {
            let between = f64::midpoint(clean.per_s, unclean.min(MOST));
            if self.is_clean(between).await? {
                clean.per_s = between;
            } else {
                unclean = between;
            }
        }
        Ok(self.ceiling(clean.per_s, true))
    }

    fn ceiling(&self, per_s: f64, is_highest: bool) -> Ceiling {
        Ceiling { per_s, clean_lag: self.config.tolerances.send_lag_p99, is_highest }
    }

    async fn is_clean(&self, rate: f64) -> Result<bool, LoadError> {
        let (tally, planned) = self.trial(rate).await?;
        let lag = tally.send_lag().p99.unwrap_or(Span::MAX);
        tracing::debug!(rate, %lag, answered = tally.answered(), planned, "a trial against the null server");
        Ok(tally.answered() == planned && lag <= self.config.tolerances.send_lag_p99)
    }

    async fn trial(&self, rate: f64) -> Result<(Tally, u32), LoadError> {
        let plan = Arc::new(self.plan(rate)?);
        let planned = plan.header().count;
        let requests =
            Requests::new(&self.config, "null", &plan, "null").map_err(|e| LoadError::Request(e.to_string()))?;
        let requests = Arc::new(requests);
        let failed = |e: std::io::Error| LoadError::Thread(e.to_string());
        let made = Maker::start(Arc::clone(&plan), Arc::clone(&requests), |_| true).map_err(failed)?.filled().await;
        let clock = Clock::starting_in(LEAD);
        let exchanges =
            Arc::new(Connections::new(&self.config, Route { addresses: vec![self.null.addr()], tls: None }).at(clock));
        let _cut_if_dropped = exchanges.cut.clone().drop_guard();
        let (rows, mut queue) = mpsc::channel(1024);
        let mut counting = JoinSet::new();
        counting.spawn(async move {
            let mut tally = Tally::new(planned);
            while let Some(row) = queue.recv().await {
                tally.count(&row);
            }
            tally
        });
        let field = Arc::new(Field {
            exchanges: Arc::clone(&exchanges),
            plan,
            requests,
            progress: Arc::new(Progress::new()),
            slots: Slots::new(None),
            retries: Retries { most: 0, seed: 0 },
            validators: Validators::new(&[]),
            rows,
            stopping: CancellationToken::new(),
            due: AtomicU32::new(0),
        });
        let open = TaskTracker::new();
        let mut pacer = Pacer::start(made, clock, single(&field, &open)).map_err(failed)?;
        let end = clock.instant(Tick::ZERO + Span::from_std(TRIAL + PATIENCE));
        // A generator that is far behind does not send the rest.
        if tokio::time::timeout_at(end.into(), pacer.done()).await.is_err() {
            pacer.stop();
            let _ = pacer.done().await;
        }
        open.close();
        if tokio::time::timeout_at(end.into(), open.wait()).await.is_err() {
            exchanges.cut.cancel();
            open.wait().await;
        }
        drop(field);
        let tally = counting.join_next().await.and_then(Result::ok);
        Ok((tally.unwrap_or_else(|| Tally::new(planned)), planned))
    }

    /// Arrivals at a constant rate with the shapes of the plan's own.
    fn plan(&self, rate: f64) -> Result<Plan, LoadError> {
        let count = (TRIAL.as_secs_f64() * rate) as u32;
        let arrivals = (1..=count).zip(self.shapes.iter().cycle()).map(|(place, like)| {
            let at = Span::from_secs_f64(f64::from(place) / rate);
            Arrival { at, tenant: 0, ..*like }
        });
        let tenant = PlanTenant { name: "null".to_owned(), share: 1.0, ..PlanTenant::default() };
        let plan = Plan::recorded("null", rate, Span::from_std(TRIAL), vec![tenant], arrivals.collect());
        plan.map_err(|e| LoadError::Request(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(times_ms: &[u64]) -> Plan {
        let arrival =
            |ms: &u64| Arrival { index: 0, at: Span::from_millis(*ms), tenant: 0, input: 4, output: 1, prompt: 1 };
        let tenant = PlanTenant { name: "t".to_owned(), share: 1.0, ..PlanTenant::default() };
        let window = Span::from_secs(4);
        Plan::recorded("test", 1.0, window, vec![tenant], times_ms.iter().map(arrival).collect()).unwrap()
    }

    fn config(check: CeilingCheck, lag: Span) -> LoadConfig {
        let mut config = LoadConfig::new("t", "http://nowhere.invalid".parse().unwrap(), "m");
        config.ceiling = check;
        config.tolerances.send_lag_p99 = lag;
        config
    }

    #[test]
    fn the_busiest_second_is_the_one_with_the_most_arrivals() {
        assert_eq!(busiest_second(&plan(&[0, 999, 1000, 1500, 1999, 3000])), 3.0);
        assert_eq!(busiest_second(&plan(&[])), 0.0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_rate_that_is_kept_is_a_lower_bound_and_one_that_is_not_leaves_none() {
        let busy = plan(&vec![500; 100]);
        let kept = measure(&config(CeilingCheck::Quick, Span::from_secs(60)), &busy).await.unwrap().unwrap();
        assert_eq!((kept.per_s, kept.is_highest), (250.0, false));
        // Nothing is sent without any lag at all.
        let none = measure(&config(CeilingCheck::Quick, Span::ZERO), &busy).await.unwrap().unwrap();
        assert_eq!((none.per_s, none.is_highest), (0.0, true));
        assert_eq!(measure(&config(CeilingCheck::Off, Span::ZERO), &busy).await.unwrap(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_plan_that_claims_no_rate_has_none_to_check() {
        let supply = plan(&[0; 10]).as_supply(std::num::NonZeroU32::MIN, None);
        assert_eq!(measure(&config(CeilingCheck::Quick, Span::from_secs(60)), &supply).await.unwrap(), None);
    }
}
