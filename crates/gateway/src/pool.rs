//! Pools: backends that serve the same models, behind one scheduler each.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use elasticserve_core::gate::{Breaker, Gate, Health, Standing};
use elasticserve_core::ids::{BackendId, TenantId};
use elasticserve_core::sched::{AuditError, LengthSummary, Totals};
use elasticserve_core::time::Tick;
use tokio::sync::Notify;

use crate::admit::{Admission, View};
use crate::clock::Clock;
use crate::config::{Backend, Config, Watch};
use crate::endpoint::{Effect, Endpoint, EndpointView, Source};

/// All pools of a gateway. Their number and names hold for its life; their backends come and go.
#[derive(Debug)]
pub(crate) struct Pools {
    all: Vec<Arc<Pool>>,
    /// Told when an endpoint has been added.
    pub(crate) added: Notify,
    /// Told when another configuration is in effect.
    pub(crate) rewritten: Notify,
}

/// Backends that serve the same models.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) admission: Arc<Admission>,
    clock: Clock,
    /// By the scheduler's number. A place is overwritten only when the scheduler gives its number away again.
    endpoints: RwLock<Vec<Arc<Endpoint>>>,
    numbers: Arc<AtomicU32>,
    /// Told when the time of the next change may be another one.
    paced: Notify,
}

/// What a pool looks like at one moment.
#[derive(Debug)]
pub(crate) struct PoolView {
    pub(crate) name: String,
    pub(crate) view: View,
    pub(crate) backends: Vec<EndpointView>,
    /// What is known of the lengths of each tenant's answers.
    pub(crate) lengths: Vec<Option<LengthSummary>>,
}

impl Pools {
    /// The pools of a configuration, with all backends that have an address.
    pub(crate) fn new(config: &Config, clock: Clock) -> Arc<Self> {
        let numbers = Arc::new(AtomicU32::new(config.backends.len() as u32));
        let pool = |(place, pool): (usize, &crate::config::Pool)| {
            let (settings, shadow) = (config.scheduler_of(place), config.shadow_of(place));
            Arc::new(Pool {
                name: pool.name.clone(),
                admission: Admission::new(&settings, shadow.as_ref(), clock),
                clock,
                endpoints: RwLock::default(),
                numbers: Arc::clone(&numbers),
                paced: Notify::new(),
            })
        };
        let pools = Arc::new(Self {
            all: config.pools.iter().enumerate().map(pool).collect(),
            added: Notify::new(),
            rewritten: Notify::new(),
        });
        pools.adopt(config, false);
        pools
    }

    /// Goes by another configuration: adds and removes backends that are written down with their addresses, and
    /// changes those that stay. `slowly` is whether new ones start slowly.
    pub(crate) fn adopt(&self, config: &Config, slowly: bool) {
        for (place, pool) in self.all.iter().enumerate() {
            let written = config.backends.iter().enumerate().filter(|(_, b)| b.pool == place && b.look_up.is_none());
            pool.reconcile(&Source::Written, written, &config.watch, slowly);
        }
        self.added.notify_one();
    }

    /// Goes by other settings from the next decision on, with the backends of `config`. What is looked up by name
    /// follows once `rewritten` is told.
    pub(crate) fn reload(&self, config: &Config) {
        for (place, pool) in self.all.iter().enumerate() {
            pool.admission.reload(&config.scheduler_of(place), config.shadow_of(place).as_ref());
        }
        self.adopt(config, true);
    }

    pub(crate) fn all(&self) -> &[Arc<Pool>] {
        &self.all
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Arc<Pool>> {
        self.all.get(place)
    }

    /// Whether any backend has answered its last probe.
    pub(crate) fn any_up(&self) -> bool {
        self.all.iter().any(|pool| pool.is_up())
    }

    /// The pools without a backend that answers.
    pub(crate) fn down(&self) -> Vec<&str> {
        self.all.iter().filter(|pool| !pool.is_up()).map(|pool| pool.name.as_str()).collect()
    }

    pub(crate) fn drain(&self) {
        self.all.iter().for_each(|pool| pool.admission.drain());
    }

    pub(crate) fn views(&self, tenants: usize) -> Vec<PoolView> {
        self.all.iter().map(|pool| pool.view(tenants)).collect()
    }

    /// The sums over all schedulers.
    pub(crate) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for pool in &self.all {
            sum.add(&pool.admission.totals());
        }
        sum
    }

    pub(crate) fn audit(&self) -> Result<(), AuditError> {
        self.all.iter().try_for_each(|pool| pool.admission.audit())
    }

    /// Runs all timers, for ever.
    pub(crate) async fn run_timers(&self) {
        let mut timers = tokio::task::JoinSet::new();
        for pool in &self.all {
            timers.spawn(Arc::clone(&pool.admission).run_timer());
            timers.spawn(Arc::clone(pool).pace());
        }
        // They end only with this.
        while timers.join_next().await.is_some() {}
    }
}

impl Pool {
    /// Brings the backends of a source in line with what there should be; each comes with its place in the
    /// configuration, which is its number at the start. `slowly` is whether that is over, and new ones start slowly.
    pub(crate) fn reconcile<'a>(
        &self,
        source: &Source,
        wanted: impl Iterator<Item = (usize, &'a Backend)>,
        watch: &Watch,
        slowly: bool,
    ) {
        let (mut stale, others): (Vec<_>, Vec<_>) = self.living().into_iter().partition(|e| e.source == *source);
        let (mut kept, mut new) = (others, Vec::new());
        for (number, backend) in wanted {
            let same = |e: &Arc<Endpoint>| {
                let old = &e.backend;
                // Whoever is shown another key, or trusted by another root, is another one.
                (&old.authority, &old.base_path, &old.engine)
                    == (&backend.authority, &backend.base_path, &backend.engine)
                    && (&old.credential, &old.tls) == (&backend.credential, &backend.tls)
            };
            match stale.iter().position(same) {
                Some(place) => {
                    let endpoint = stale.swap_remove(place);
                    self.admission.change_backend(endpoint.seat, backend.policy());
                    self.change(&endpoint, |gate, _| gate.set(watch.gate, backend.seats()));
                    kept.push(endpoint);
                }
                None => new.push((number, backend)),
            }
        }
        // Where nobody else takes work there is nothing to spare.
        let now = self.clock.now();
        let slowly_now = slowly && kept.iter().any(|e| e.is_open(now));
        for (number, backend) in new {
            let number = if *source == Source::Written && !slowly {
                number as u32
            } else {
                self.numbers.fetch_add(1, Ordering::Relaxed)
            };
            self.add(number, backend, source, watch, slowly_now);
        }
        stale.iter().for_each(|endpoint| self.remove(endpoint));
    }

    fn add(&self, number: u32, backend: &Backend, source: &Source, watch: &Watch, slowly: bool) {
        let mut all = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        // Who is granted a permit of it waits at the lock until it is in its place.
        let Some(seat) = self.admission.add_backend(backend.policy()) else { return };
        let endpoint =
            Arc::new(Endpoint::new(self.clock.now(), number, seat, backend.clone(), source.clone(), watch.gate));
        match all.get_mut(seat.index()) {
            Some(place) => *place = Arc::clone(&endpoint),
            None => all.push(Arc::clone(&endpoint)),
        }
        drop(all);
        tracing::info!(pool = self.name, backend = endpoint.name(), number, "backend was added");
        if slowly {
            self.change(&endpoint, |gate, now| gate.start_slowly(now));
        }
    }

    fn remove(&self, endpoint: &Endpoint) {
        tracing::info!(pool = self.name, backend = endpoint.name(), number = endpoint.number, "backend was removed");
        endpoint.retire(|| self.admission.remove_backend(endpoint.seat));
    }

    /// The endpoint of a permit.
    pub(crate) fn endpoint(&self, seat: BackendId) -> Option<Arc<Endpoint>> {
        let all = self.endpoints.read().unwrap_or_else(PoisonError::into_inner);
        all.get(seat.index()).cloned()
    }

    /// The endpoints that have not been removed, in the order of their numbers.
    pub(crate) fn living(&self) -> Vec<Arc<Endpoint>> {
        let all = self.endpoints.read().unwrap_or_else(PoisonError::into_inner);
        let mut living: Vec<_> = all.iter().filter(|e| !e.gone.is_cancelled()).cloned().collect();
        living.sort_unstable_by_key(|e| e.number);
        living
    }

    /// The endpoints that may answer a question about the server: those that are up, then those that are not known
    /// to be down.
    pub(crate) fn open(&self) -> Vec<Arc<Endpoint>> {
        let now = self.clock.now();
        let mut open = self.living();
        open.retain(|e| e.is_open(now));
        open.sort_by_key(|e| e.health() != Health::Up);
        open
    }

    pub(crate) fn is_up(&self) -> bool {
        self.living().iter().any(|e| e.health() == Health::Up)
    }

    /// Whether a backend in trouble is the only one that could take work; nobody asks of others.
    pub(crate) fn is_alone(&self, endpoint: &Endpoint) -> bool {
        let now = self.clock.now();
        let another = |other: &Arc<Endpoint>| other.number != endpoint.number && other.is_open(now);
        endpoint.is_troubled(now) && !self.living().iter().any(another)
    }

    /// Puts something into a backend's gate and tells the scheduler what follows.
    pub(crate) fn change(&self, endpoint: &Endpoint, input: impl FnOnce(&mut Gate, Tick)) {
        if self.put(endpoint, input).moved {
            self.paced.notify_one();
        }
    }

    fn put(&self, endpoint: &Endpoint, input: impl FnOnce(&mut Gate, Tick)) -> Effect {
        let now = self.clock.now();
        let apply = |standing: Standing| self.admission.set_permits(endpoint.seat, standing.permits, standing.up);
        let effect = endpoint.change(now, |gate| input(gate, now), apply);
        if effect.told {
            self.tell(endpoint, now);
        }
        effect
    }

    fn tell(&self, endpoint: &Endpoint, now: Tick) {
        let view = endpoint.view(now, (0, 0));
        let (pool, backend, breaker) = (&self.name, &view.name, view.breaker.name());
        if view.health == Health::Down || view.breaker == Breaker::Open {
            tracing::warn!(pool, backend, health = ?view.health, breaker, "backend takes no work");
        } else {
            tracing::info!(pool, backend, health = ?view.health, breaker, "backend takes work");
        }
    }

    pub(crate) fn view(&self, tenants: usize) -> PoolView {
        let now = self.clock.now();
        let backends = self.living().iter().map(|e| e.view(now, self.admission.permits(e.seat))).collect();
        let lengths = (0..tenants).map(|place| self.admission.lengths(TenantId(place as u16))).collect();
        PoolView { name: self.name.clone(), view: self.admission.view(), backends, lengths }
    }

    /// Tells the scheduler what changes because time passes, for ever.
    async fn pace(self: Arc<Self>) {
        loop {
            let next = self.living().iter().filter_map(|e| self.put(e, |_, _| ()).next).min();
            match next.map(|at| self.clock.instant(at)) {
                Some(Some(instant)) => tokio::select! {
                    () = tokio::time::sleep_until(instant) => {}
                    () = self.paced.notified() => {}
                },
                _ => self.paced.notified().await,
            }
        }
    }
}
