//! What goes into the scheduler and what comes out of it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::estimate::CostModel;
use super::order::Order;
use super::predict::Predict;
use super::price::Price;
use crate::ids::{BackendId, RequestId, TenantId};
use crate::outcome::{How, RejectReason};
use crate::slo::Slo;
use crate::time::{Span, Tick};

/// The most backends of one scheduler at a time: as many as [`BackendId`] can number. More are left out.
pub const MAX_BACKENDS: usize = 1 << 16;

/// What a scheduler is built from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Permits of each backend, of [`MAX_BACKENDS`] at most: the requests that it may work on at once.
    pub backends: Vec<u32>,
    /// The tenants; a request names one by its place.
    pub tenants: Vec<TenantPolicy>,
    /// Who goes next.
    pub order: Order,
    /// The most requests that may wait.
    pub depth: usize,
    /// The most bytes of request bodies that may wait.
    pub max_bytes: u64,
    /// How long a request may wait, unless it asks for less; `None` for as long as it takes.
    pub budget: Option<Span>,
    /// What a request takes: by this it is charged, compared and predicted.
    pub cost: CostModel,
    /// What turns away requests that cannot meet their limits; `None` for nothing.
    pub predict: Option<Predict>,
    /// What also turns away requests that cost the others more than they are worth; without effect unless
    /// `predict` is set.
    pub price: Option<Price>,
    /// How long a class may hold back what came before it, under [`Order::Priority`].
    pub guard: Span,
    /// How much more work for each seat a backend may have than the least loaded one, to be given a request whose
    /// [`Offer::affinity`] is for it.
    pub affinity_slack: Span,
}

/// What the scheduler knows of a backend.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BackendPolicy {
    /// The requests that it may work on at once.
    pub permits: u32,
    /// How much faster a seat of it works than one of weight 1: of equal work, it is given so many times as much.
    pub weight: NonZeroU32,
    /// What a request takes there, where that is not [`Settings::cost`].
    pub cost: Option<CostModel>,
    /// Tells it from the others in the choice by affinity. One that comes back with the same number gets the same keys.
    pub identity: u64,
}

impl BackendPolicy {
    /// So many permits of the usual kind.
    #[must_use]
    pub const fn new(permits: u32, identity: u64) -> Self {
        Self { permits, weight: NonZeroU32::MIN, cost: None, identity }
    }
}

/// What the scheduler knows of a tenant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TenantPolicy {
    /// The tenant's share of the seats relative to the others, where the order honours it.
    pub weight: NonZeroU32,
    /// The most permits that the tenant may hold at once; with 0 all that it offers is refused.
    pub max_permits: Option<u32>,
    /// The most requests of the tenant that may wait. What would start at once does not wait.
    pub max_queued: Option<u32>,
    /// The most bytes of its bodies that may wait.
    pub max_queued_bytes: Option<u64>,
    /// Its class under [`Order::Priority`], 0 the first; a request may ask for a later one.
    pub class: u32,
    /// Its limits. Under [`Order::LeastSlack`] a request with tighter ones goes no earlier for them; with
    /// `None` it does.
    pub slo: Option<Slo>,
    /// What becomes of its running work whose deadline is lost.
    pub on_miss: OnMiss,
}

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            weight: NonZeroU32::MIN,
            max_permits: None,
            max_queued: None,
            max_queued_bytes: None,
            class: 0,
            slo: None,
            on_miss: OnMiss::default(),
        }
    }
}

/// What becomes of running work once it cannot meet its limits any more: no token seen within its TTFT, or no
/// end within its E2E.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMiss {
    /// It goes on to its end.
    #[default]
    Finish,
    /// The caller is told to cut it: [`Action::Abort`].
    Abort,
}

impl Settings {
    /// First come, first served over the given backends, for a single tenant, without a wait limit.
    #[must_use]
    pub fn fcfs(backends: Vec<u32>) -> Self {
        Self {
            backends,
            tenants: vec![TenantPolicy::default()],
            order: Order::Fcfs,
            depth: 256,
            max_bytes: 256 << 20,
            budget: None,
            cost: CostModel::default(),
            predict: None,
            price: None,
            guard: Span::from_secs(10),
            affinity_slack: Span::ZERO,
        }
    }
}

/// A request that asks to be scheduled.
#[derive(Copy, Clone, Debug)]
pub struct Offer {
    /// Whose it is. A place that does not exist is treated as the last tenant.
    pub tenant: TenantId,
    /// The size of its body, which is held while it waits.
    pub bytes: u64,
    /// The class that it asks for under [`Order::Priority`]; never one before its tenant's. `None` for that.
    pub class: Option<u32>,
    /// How long it is willing to wait; the shorter of this and [`Settings::budget`] holds.
    pub budget: Option<Span>,
    /// Prompt tokens.
    pub input: u32,
    /// Answer tokens, if it declares exactly how many; 0 counts as 1.
    pub output: Option<u32>,
    /// Anything else that says something about the length of its answer, such as `max_tokens`. Requests with the
    /// same hint are taken to be alike; it is never taken for the length.
    pub hint: Option<u32>,
    /// Its limits.
    pub slo: Slo,
    /// Requests with the same number are better off on the same backend: those of a session, or with a prefix in
    /// common. It decides only between backends that are about equally loaded, never who goes next.
    pub affinity: Option<u64>,
    /// Whether its client was turned away before and asks again. Where waits are bounded, by [`Settings::budget`] or by
    /// a prediction and its own limits, it goes behind what its tenant asks for the first time: by the clock of who
    /// waits for it, it is late already, and it would make another one late. Where nothing ends the wait it takes its turn.
    pub again: bool,
}

impl Default for Offer {
    /// A request of one token by the first tenant, without limits.
    fn default() -> Self {
        Self {
            tenant: TenantId::default(),
            bytes: 0,
            class: None,
            budget: None,
            input: 1,
            output: Some(1),
            hint: None,
            slo: Slo::default(),
            affinity: None,
            again: false,
        }
    }
}

/// What a tenant has at one moment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantLoad {
    /// Requests that wait.
    pub queued: usize,
    /// Bytes of their bodies.
    pub queued_bytes: u64,
    /// Permits that it holds.
    pub in_use: u32,
}

/// A request was turned away.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The request.
    pub id: RequestId,
    /// Why.
    pub reason: RejectReason,
    /// The bound that was reached, with [`RejectReason::TenantLimit`].
    pub limit: Option<TenantLimit>,
    /// When another try has a chance: by the measured rate at which the tenant's permits come back while it
    /// waits for more, else by that of all permits; `None` before either is known.
    pub retry_after: Option<Span>,
}

/// A bound on what waits of one tenant, with its size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TenantLimit {
    /// [`TenantPolicy::max_queued`].
    Queued(u32),
    /// [`TenantPolicy::max_queued_bytes`].
    QueuedBytes(u64),
}

/// What [`Scheduler::poll`](super::Scheduler::poll) asks the caller to do.
#[derive(Debug)]
#[must_use]
pub enum Action {
    /// Send the request to the ticket's backend.
    Grant(Ticket),
    /// Turn the waiting request away.
    Expire(Rejection),
    /// Cut the running request and give its ticket back as [`How::Aborted`]: its deadline is lost. It is
    /// said once for each, and holds its permit until the ticket is back.
    Abort(RequestId),
    /// Give up the request that failed over: there is no other backend any more, or its deadline is lost. It has
    /// ended with this.
    Strand(RequestId),
}

/// What work that ended really took, as far as it is known.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Prompt tokens.
    pub input: Option<u32>,
    /// Answer tokens that were made, whole answer or not.
    pub output: Option<u32>,
}

/// The right to occupy one seat of one backend. Not copyable; give it back with
/// [`Scheduler::release`](super::Scheduler::release).
#[derive(Debug)]
#[must_use = "a ticket holds a permit until it is released"]
pub struct Ticket {
    pub(super) id: RequestId,
    pub(super) backend: BackendId,
    pub(super) tenant: TenantId,
    pub(super) granted: Tick,
    pub(super) waited: Span,
    pub(super) moved: bool,
}

impl Ticket {
    /// The request that may go.
    #[must_use]
    pub const fn id(&self) -> RequestId {
        self.id
    }
    /// Whose it is.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }
    /// Where it may go.
    #[must_use]
    pub const fn backend(&self) -> BackendId {
        self.backend
    }
    /// When it was granted.
    #[must_use]
    pub const fn granted(&self) -> Tick {
        self.granted
    }
    /// How long it waited, from its arrival on.
    #[must_use]
    pub const fn waited(&self) -> Span {
        self.waited
    }
    /// Whether it replaces one that failed over.
    #[must_use]
    pub const fn has_moved(&self) -> bool {
        self.moved
    }
}

/// Counters since the start. At rest `offers` equals the sum of all endings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests offered.
    pub offers: u64,
    /// Turned away at arrival, by reason.
    pub rejected: BTreeMap<RejectReason, u64>,
    /// Turned away while waiting, by reason.
    pub expired: BTreeMap<RejectReason, u64>,
    /// Withdrawn while waiting.
    pub cancelled: u64,
    /// Granted a permit.
    pub granted: u64,
    /// Granted another one because the first backend failed.
    pub moved: u64,
    /// Permits given back, by how the work ended.
    pub released: BTreeMap<How, u64>,
}

impl Totals {
    /// Adds those of another scheduler.
    pub fn add(&mut self, other: &Self) {
        fn add<K: Copy + Ord>(sum: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
            more.iter().for_each(|(key, n)| *sum.entry(*key).or_default() += n);
        }
        self.offers += other.offers;
        self.cancelled += other.cancelled;
        self.granted += other.granted;
        self.moved += other.moved;
        add(&mut self.rejected, &other.rejected);
        add(&mut self.expired, &other.expired);
        add(&mut self.released, &other.released);
    }
}
