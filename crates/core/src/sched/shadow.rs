//! What another policy would have decided about the same requests.
//!
//! A second scheduler gets the same offers, and grants virtual seats. A seat is held for as long as the
//! request held its real one, if the live policy let it run, else for the time that is predicted of it. The
//! time per output token is that of the real engine: what the shadow would have made of it is not known, and
//! the more the two policies differ, the less its decisions mean in absolute terms.
//!
//! Nothing here reaches the live scheduler. Inputs are what the live one was told and answered; time passes
//! with the inputs, so there is no timer.

use std::collections::{BTreeMap, BTreeSet};

use super::estimate::{CostModel, LiveTpot, Need};
use super::{
    Action, BackendPolicy, Learned, LearnedError, Observation, Offer, OnMiss, Scheduler, Settings, Ticket, Used,
};
use crate::ids::{BackendId, RequestId, TenantId};
use crate::outcome::{How, RejectReason};
use crate::time::{Span, Tick};

/// The state of a shadow policy.
///
/// Its memory is bounded by what may wait and run: a request is kept while either side holds it.
#[derive(Debug)]
pub struct Shadow {
    scheduler: Scheduler,
    cost: CostModel,
    pace: LiveTpot,
    /// By the live scheduler's number.
    flights: BTreeMap<RequestId, Flight>,
    /// The live scheduler's number by the shadow's own.
    live: BTreeMap<RequestId, RequestId>,
    /// When virtual seats become free, by the live scheduler's number.
    ends: BTreeSet<(Tick, RequestId)>,
    /// The own numbers of backends that were added since the start, by the live scheduler's.
    places: BTreeMap<BackendId, BackendId>,
    /// Requests that really run.
    running: usize,
    counts: Vec<Counts>,
}

/// What the shadow has decided about a request so far.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Nothing yet: it waits.
    Waits,
    /// It let it run, after so long.
    Granted(Span),
    /// It turned it away, after so long.
    Refused(Span, RejectReason),
}

/// How often both policies decided what, of requests about which both did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Both let it run.
    pub both_admit: u64,
    /// Both turned it away.
    pub both_refuse: u64,
    /// Only the live one let it run.
    pub only_live: u64,
    /// Only the shadow let it run.
    pub only_shadow: u64,
}

#[derive(Debug)]
struct Flight {
    own: RequestId,
    lane: usize,
    arrived: Tick,
    need: Need,
    /// How it really ended and what it took, once that is known.
    ran: Option<(How, Used)>,
    live: Live,
    /// The seat that it holds in the shadow, and since when.
    seat: Option<(Ticket, Tick)>,
    /// When that seat becomes free, if that is known.
    ends: Option<Tick>,
    word: Word,
    counted: bool,
}

#[derive(Copy, Clone, Debug)]
enum Live {
    Waits,
    Runs(Tick),
    Ran(Span),
    Refused,
}

impl Shadow {
    /// A shadow of the given policy over the same backends and tenants.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let mut settings = settings.clone();
        // What is cut is known only of what really ran, and then the real end says so.
        settings.tenants.iter_mut().for_each(|t| t.on_miss = OnMiss::Finish);
        Self {
            scheduler: Scheduler::new(&settings),
            cost: settings.cost,
            pace: LiveTpot::new(settings.cost.idle_tpot),
            flights: BTreeMap::new(),
            live: BTreeMap::new(),
            ends: BTreeSet::new(),
            places: BTreeMap::new(),
            running: 0,
            counts: vec![Counts::default(); settings.tenants.len().max(1)],
        }
    }

    /// A shadow that starts beside a scheduler at work: with empty queue and seats, with the lengths that were learned
    /// there, and with what the shadow before it had counted.
    #[must_use]
    pub fn beside(live: &Scheduler, settings: &Settings, before: Option<Self>) -> Self {
        let mut shadow = Self::new(settings);
        shadow.running = live.running.len();
        shadow.scheduler.draining = live.draining;
        shadow.scheduler.backends = live.backends.vacated();
        shadow.scheduler.lengths = live.lengths.clone();
        if let Some(before) = before {
            let lanes = shadow.counts.len().max(before.counts.len());
            (shadow.counts, shadow.pace) = (before.counts, before.pace);
            shadow.counts.resize(lanes, Counts::default());
            shadow.pace.idles_at(settings.cost.idle_tpot);
            shadow.scheduler.follow(shadow.pace.get());
        }
        shadow
    }

    /// Takes over what was learned before; see [`Scheduler::restore`].
    ///
    /// # Errors
    /// A [`LearnedError`] that says what is wrong with it.
    pub fn restore(
        &mut self,
        learned: &Learned,
        tenant: impl Fn(&str) -> Option<TenantId>,
    ) -> Result<(), LearnedError> {
        self.scheduler.restore(learned, tenant)
    }

    /// A request was offered: the live scheduler gave it a number and queued it, or refused it.
    pub fn offered(&mut self, now: Tick, id: RequestId, offer: &Offer, queued: bool) -> Word {
        self.advance(now);
        let (own, word) = match self.scheduler.offer(now, *offer) {
            Ok(own) => (own, Word::Waits),
            Err(rejection) => (rejection.id, Word::Refused(Span::ZERO, rejection.reason)),
        };
        let flight = Flight {
            own,
            lane: offer.tenant.index().min(self.counts.len() - 1),
            arrived: now,
            need: self.scheduler.waiting(now, own, offer).need,
            ran: None,
            live: if queued { Live::Waits } else { Live::Refused },
            seat: None,
            ends: None,
            word,
            counted: false,
        };
        self.flights.insert(id, flight);
        if word == Word::Waits {
            self.live.insert(own, id);
        }
        self.poll(now);
        self.settle(id).unwrap_or(word)
    }

    /// The live scheduler granted a permit.
    pub fn granted(&mut self, now: Tick, id: RequestId) {
        self.running += 1;
        self.change(now, id, |flight| {
            flight.live = Live::Runs(now);
            // Its real end will tell when its virtual seat is free, unless that was taken before.
            flight.seat.as_ref().is_some_and(|(_, since)| *since >= now).then_some(None)
        });
    }

    /// The live scheduler turned a waiting request away.
    pub fn refused(&mut self, now: Tick, id: RequestId) -> Option<Word> {
        self.change(now, id, |flight| {
            flight.live = Live::Refused;
            None
        })
    }

    /// A request that really ran has ended.
    pub fn ended(&mut self, now: Tick, id: RequestId, how: How, used: Used) -> Option<Word> {
        self.running = self.running.saturating_sub(1);
        let word = self.change(now, id, |flight| {
            let Live::Runs(since) = flight.live else { return None };
            let service = now.since(since);
            flight.live = Live::Ran(service);
            flight.ran = Some((how, used));
            flight.seat.as_ref().map(|(_, since)| Some((*since + service).max(now)))
        });
        if self.running == 0 {
            self.pace.reset();
            self.follow(now);
        }
        // Nobody waits for it any more, there as here.
        if how != How::Finished && word == Some(Word::Waits) {
            self.give_up(now, id);
        }
        word
    }

    /// A request was withdrawn while it waited.
    pub fn withdrawn(&mut self, now: Tick, id: RequestId) -> Option<Word> {
        self.advance(now);
        let word = self.flights.get(&id)?.word;
        self.give_up(now, id);
        Some(word)
    }

    /// Something was seen of a request that really runs.
    pub fn observe(&mut self, now: Tick, id: RequestId, observation: Observation) {
        self.advance(now);
        if let Some(gap) = observation.gap
            && observation.tokens > 0
        {
            self.pace.observe(Span::from_nanos(gap.as_nanos() / u64::from(observation.tokens)), self.running);
            self.follow(now);
        }
        if let Some(flight) = self.flights.get(&id).filter(|f| f.seat.is_some()) {
            self.scheduler.observe(now, flight.own, observation);
        }
        self.poll(now);
    }

    /// A backend changed; see [`Scheduler::set_backend`].
    pub fn set_backend(&mut self, now: Tick, id: BackendId, permits: u32, up: bool) {
        self.advance(now);
        self.scheduler.set_backend(now, self.place(id), permits, up);
        self.poll(now);
    }

    /// A backend was added, which the live scheduler knows by this number; see [`Scheduler::add_backend`].
    pub fn add_backend(&mut self, now: Tick, id: BackendId, policy: BackendPolicy) {
        self.advance(now);
        if let Some(own) = self.scheduler.add_backend(now, policy) {
            // Virtual seats are vacated at other times than real ones, and so are numbers.
            self.places.insert(id, own);
        }
        self.poll(now);
    }

    /// A backend was removed; see [`Scheduler::remove_backend`].
    pub fn remove_backend(&mut self, now: Tick, id: BackendId) {
        self.advance(now);
        self.scheduler.remove_backend(now, self.place(id));
        self.poll(now);
    }

    /// A backend changed; see [`Scheduler::change_backend`].
    pub fn change_backend(&mut self, now: Tick, id: BackendId, policy: BackendPolicy) {
        self.scheduler.change_backend(now, self.place(id), policy);
    }

    /// The own number of a backend of the live scheduler's.
    fn place(&self, id: BackendId) -> BackendId {
        self.places.get(&id).copied().unwrap_or(id)
    }

    /// The live scheduler drains; see [`Scheduler::drain`].
    pub fn drain(&mut self, now: Tick) {
        self.advance(now);
        self.scheduler.drain(now);
        self.poll(now);
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Tick) {
        loop {
            let end = self.ends.first().map(|(at, _)| *at);
            let Some(at) = [end, self.scheduler.next_timer()].into_iter().flatten().min().filter(|at| *at < now) else {
                return;
            };
            self.poll(at);
        }
    }

    /// What was decided about the requests of a tenant.
    #[must_use]
    pub fn counts(&self, tenant: TenantId) -> Counts {
        self.counts.get(tenant.index()).copied().unwrap_or_default()
    }

    /// Requests that either side holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.flights.len()
    }

    /// Changes what is known of a request's real fate, and acts on it. `change` may say anew when its
    /// virtual seat becomes free: at a time, or at its real end.
    fn change(
        &mut self,
        now: Tick,
        id: RequestId,
        change: impl FnOnce(&mut Flight) -> Option<Option<Tick>>,
    ) -> Option<Word> {
        self.advance(now);
        let flight = self.flights.get_mut(&id)?;
        let before = flight.word;
        if let Some(ends) = change(flight) {
            set_end(&mut self.ends, flight, id, ends);
        }
        self.poll(now);
        // With its seat it may be forgotten at once.
        self.settle(id).or(Some(before))
    }

    /// Frees the seats that are due and acts on what the shadow decides.
    fn poll(&mut self, now: Tick) {
        loop {
            if let Some((at, id)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
                self.ends.remove(&(at, id));
                self.leave_seat(at, id);
                continue;
            }
            let Some(action) = self.scheduler.poll(now) else { return };
            let own = match &action {
                Action::Grant(ticket) => ticket.id(),
                Action::Expire(rejection) => rejection.id,
                // Nothing is cut or fails here.
                Action::Abort(_) | Action::Strand(_) => continue,
            };
            let Some(id) = self.live.remove(&own) else { continue };
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            let waited = now.since(flight.arrived);
            match action {
                Action::Grant(ticket) => {
                    flight.word = Word::Granted(waited);
                    flight.seat = Some((ticket, now));
                    let ends = match flight.live {
                        Live::Runs(_) => None,
                        Live::Ran(service) => Some(now + service),
                        Live::Waits | Live::Refused => Some(now + self.cost.e2e(&flight.need, self.pace.get())),
                    };
                    set_end(&mut self.ends, flight, id, ends);
                }
                Action::Expire(rejection) => flight.word = Word::Refused(waited, rejection.reason),
                Action::Abort(_) | Action::Strand(_) => {}
            }
            self.settle(id);
        }
    }

    fn leave_seat(&mut self, now: Tick, id: RequestId) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.ends = None;
        if let Some((ticket, _)) = flight.seat.take() {
            // Of what never ran, or runs on, no length is known.
            let (how, used) = flight.ran.unwrap_or((How::Abandoned, Used::default()));
            self.scheduler.release(now, ticket, how, used);
        }
        self.settle(id);
    }

    /// Forgets a request that nobody waits for any more.
    fn give_up(&mut self, now: Tick, id: RequestId) {
        let Some(mut flight) = self.flights.remove(&id) else { return };
        set_end(&mut self.ends, &mut flight, id, None);
        if self.live.remove(&flight.own).is_some() {
            self.scheduler.cancel(now, flight.own);
        }
        if let Some((ticket, _)) = flight.seat {
            self.scheduler.release(now, ticket, How::ClientGone, Used::default());
        }
        self.poll(now);
    }

    /// Counts a request about which both have decided, and forgets one that neither holds any more.
    fn settle(&mut self, id: RequestId) -> Option<Word> {
        let flight = self.flights.get_mut(&id)?;
        let word = flight.word;
        let live = match flight.live {
            Live::Waits => None,
            Live::Runs(_) | Live::Ran(_) => Some(true),
            Live::Refused => Some(false),
        };
        let shadow = match word {
            Word::Waits => None,
            Word::Granted(_) => Some(true),
            Word::Refused(..) => Some(false),
        };
        let Some(verdicts) = live.zip(shadow) else { return Some(word) };
        if !std::mem::replace(&mut flight.counted, true)
            && let Some(counts) = self.counts.get_mut(flight.lane)
        {
            *match verdicts {
                (true, true) => &mut counts.both_admit,
                (false, false) => &mut counts.both_refuse,
                (true, false) => &mut counts.only_live,
                (false, true) => &mut counts.only_shadow,
            } += 1;
        }
        if flight.seat.is_none() && matches!(flight.live, Live::Ran(_) | Live::Refused) {
            self.flights.remove(&id);
        }
        Some(word)
    }

    fn follow(&mut self, now: Tick) {
        self.scheduler.follow(self.pace.get());
        self.poll(now);
    }
}

/// Says anew when a virtual seat becomes free; `None` for not before something else happens.
fn set_end(all: &mut BTreeSet<(Tick, RequestId)>, flight: &mut Flight, id: RequestId, ends: Option<Tick>) {
    if let Some(old) = std::mem::replace(&mut flight.ends, ends) {
        all.remove(&(old, id));
    }
    if let Some(new) = ends {
        all.insert((new, id));
    }
}

#[cfg(test)]
mod tests;
