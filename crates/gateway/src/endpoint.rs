//! A backend at run time: what it is given, and how it fares.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elasticserve_core::gate::{Breaker, Gate, GateRules, Health, Pass, Standing, Verdict};
use elasticserve_core::ids::BackendId;
use elasticserve_core::time::{Span, Tick};
use tokio_util::sync::CancellationToken;

use crate::config::Backend;
use crate::pool::Pool;

/// Where a backend comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It is written down with its address.
    Written,
    /// It is an address of that name.
    Found(String),
}

/// One backend of a pool, from when it is added until it is removed and its last work has ended.
///
/// The scheduler may give its number to another one then; who holds an endpoint holds this one for good.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Its number for clients and logs: the place in the configuration, or one after all of those. Never given twice.
    pub(crate) number: u32,
    /// The scheduler's number, as long as it has not been removed.
    pub(crate) seat: BackendId,
    pub(crate) backend: Backend,
    pub(crate) source: Source,
    /// Cancelled when it is removed.
    pub(crate) gone: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    /// What the scheduler was told last.
    applied: Standing,
    /// When its engine's metrics were read last, or it was added; `None` if they are not to be read.
    metrics_at: Option<Tick>,
}

/// What an endpoint looks like at one moment.
#[derive(Clone, Debug)]
pub(crate) struct EndpointView {
    pub(crate) name: String,
    pub(crate) health: Health,
    pub(crate) breaker: Breaker,
    /// Permits in use and granted in total now.
    pub(crate) permits: (u32, u32),
    pub(crate) foreign: u32,
    /// How old its engine's metrics are, if they are to be read.
    pub(crate) metrics_age: Option<Span>,
}

impl Endpoint {
    pub(crate) fn new(
        now: Tick,
        number: u32,
        seat: BackendId,
        backend: Backend,
        source: Source,
        rules: GateRules,
    ) -> Self {
        let gate = Gate::new(rules, backend.seats());
        let applied = Standing { up: true, permits: backend.seats() };
        let metrics_at = backend.engine.as_ref().map(|_| now);
        let state = Mutex::new(State { gate, applied, metrics_at });
        Self { number, seat, backend, source, gone: CancellationToken::new(), state }
    }

    /// Its name in logs and metrics.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.backend.authority, self.backend.base_path)
    }

    pub(crate) fn health(&self) -> Health {
        self.lock().gate.health()
    }

    /// Whether it takes work now.
    pub(crate) fn is_open(&self, now: Tick) -> bool {
        self.lock().gate.standing(now).up
    }

    pub(crate) fn view(&self, now: Tick, permits: (u32, u32)) -> EndpointView {
        let state = self.lock();
        EndpointView {
            name: self.name(),
            health: state.gate.health(),
            breaker: state.gate.breaker(now),
            permits,
            foreign: state.gate.foreign(now),
            metrics_age: state.metrics_at.map(|at| now.since(at)),
        }
    }

    /// Puts something into the gate, and hands what follows to `apply` while nobody else may change it, unless the
    /// endpoint has been removed.
    pub(crate) fn change(&self, now: Tick, input: impl FnOnce(&mut Gate), apply: impl FnOnce(Standing)) -> Effect {
        let mut state = self.lock();
        let before = (state.gate.health(), state.gate.breaker(now));
        let next = state.gate.next_change(now);
        input(&mut state.gate);
        let standing = state.gate.standing(now);
        if standing != state.applied && !self.gone.is_cancelled() {
            state.applied = standing;
            apply(standing);
        }
        let told = before != (state.gate.health(), state.gate.breaker(now));
        let after = state.gate.next_change(now);
        Effect { told, next: after, moved: next != after }
    }

    /// Removes it: `remove` takes its number from it, and nothing is applied to that after.
    pub(crate) fn retire(&self, remove: impl FnOnce()) {
        let _state = self.lock();
        self.gone.cancel();
        remove();
    }

    /// Whether it is not well, so that what it does next may bring it back.
    pub(crate) fn is_troubled(&self, now: Tick) -> bool {
        let state = self.lock();
        state.gate.health() == Health::Down || state.gate.breaker(now) != Breaker::Closed
    }

    pub(crate) fn metrics_read(&self, now: Tick) {
        self.lock().metrics_at = Some(now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A gate is consistent between its calls, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What follows from an input into a gate.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Effect {
    /// Whether health or breaker are others than before.
    pub(crate) told: bool,
    /// When the standing changes next by itself, and whether that is another time than before.
    pub(crate) next: Option<Tick>,
    pub(crate) moved: bool,
}

/// A request's time at a backend. Dropping it tells the gate that the request has left.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) endpoint: Arc<Endpoint>,
    pool: Arc<Pool>,
    pass: Option<Pass>,
}

impl Stay {
    pub(crate) fn begin(pool: Arc<Pool>, endpoint: Arc<Endpoint>) -> Self {
        let mut pass = None;
        pool.change(&endpoint, |gate, _| pass = Some(gate.enter()));
        Self { endpoint, pool, pass }
    }

    /// Says how the backend fared with it.
    pub(crate) fn judge(&self, verdict: Verdict) {
        if let Some(pass) = &self.pass {
            let alone = self.pool.is_alone(&self.endpoint);
            self.pool.change(&self.endpoint, |gate, now| gate.judge(now, pass, verdict, alone));
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.pool.change(&self.endpoint, |gate, _| gate.left(pass));
        }
    }
}
