//! The session model: users who each hold one conversation, turn by turn.
//!
//! A first turn has its planned time. A later one is planned for its think time after the answer before
//! it ended. A turn whose earlier turn brought no whole answer is never sent: the user has nothing to go
//! on with. Its row is `unsent_abort` and says why, and it stays in the denominator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, Plan};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::field::{Field, Outcome};
use crate::history::History;
use crate::request::Prepared;

/// The conversations of a plan.
pub(crate) struct Sessions {
    field: Arc<Field>,
    open: TaskTracker,
    shared: Arc<Shared>,
}

struct Shared {
    /// The places of each conversation's turns in the plan, in order.
    turns: BTreeMap<u32, Vec<u32>>,
    /// Conversations whose last turn is still to be sent.
    left: AtomicU32,
    all_sent: CancellationToken,
}

impl Sessions {
    /// The conversations of a field's plan, none of which has begun.
    pub(crate) fn new(field: &Arc<Field>, open: &TaskTracker) -> Self {
        let turns = turns_of(&field.plan);
        let left = AtomicU32::new(turns.len() as u32);
        let shared = Arc::new(Shared { turns, left, all_sent: CancellationToken::new() });
        if shared.turns.is_empty() {
            shared.all_sent.cancel();
        }
        Self { field: Arc::clone(field), open: open.clone(), shared }
    }

    /// Cancelled once every conversation's last turn has been sent or given up.
    pub(crate) fn all_sent(&self) -> CancellationToken {
        self.shared.all_sent.clone()
    }

    /// What the pacer does with a first turn whose time has come: a task for the whole conversation.
    pub(crate) fn starter(self) -> impl FnMut(Prepared) + Send + use<> {
        let runtime = Handle::current();
        move |first| {
            let (field, shared) = (Arc::clone(&self.field), Arc::clone(&self.shared));
            self.open.spawn_on(converse(field, shared, first), &runtime);
        }
    }
}

async fn converse(field: Arc<Field>, shared: Arc<Shared>, first: Prepared) {
    let session = field.plan.turn(&first.arrival).map_or(0, |turn| turn.session);
    let turns = shared.turns.get(&session).map_or(&[][..], Vec::as_slice);
    let mut planned = Tick::ZERO + first.arrival.at;
    let mut prepared = first;
    let mut history = History::default();
    for place in 1..=turns.len() {
        if place == turns.len() {
            shared.one_sent();
        }
        field.came_due();
        let outcome = match field.slots.take() {
            Some(slot) => field.serve(&prepared, planned, slot).await,
            None => field.turn_away(&prepared.arrival, planned, 0).await,
        };
        let rest = &turns[place..];
        let Some(next) = rest.first().and_then(|i| field.plan.arrivals().get(*i as usize)) else { return };
        planned = outcome.end + think(&field.plan, next);
        let end = outcome.end;
        match next_turn(&field, next, planned, &prepared.arrival, outcome, &mut history).await {
            Ok(made) => prepared = made,
            Err(why) => {
                give_up(&field, rest, end, &why).await;
                shared.one_sent();
                return;
            }
        }
    }
}

/// The request of the next turn when it is due, after the one that has ended; else why there is none.
async fn next_turn(
    field: &Field,
    next: &Arrival,
    planned: Tick,
    before: &Arrival,
    outcome: Outcome,
    history: &mut History,
) -> Result<Prepared, String> {
    if outcome.state != Terminal::Completed {
        return Err(format!("the turn before it ended as {}", outcome.state));
    }
    if is_over(field, planned) || !field.pause_until(planned).await {
        return Err("the run ended before it was due".to_owned());
    }
    let (requests, arrival) = (Arc::clone(&field.requests), *next);
    if !requests.carries_history() {
        // A long prompt takes milliseconds to write.
        let made = tokio::task::spawn_blocking(move || requests.prepare(arrival)).await;
        return made.map_err(|e| not_made(&e));
    }
    history.push(*before, outcome.answer);
    let past = std::mem::take(history);
    let made = tokio::task::spawn_blocking(move || (requests.prepare_turn(arrival, &past), past)).await;
    let (made, past) = made.map_err(|e| not_made(&e))?;
    *history = past;
    Ok(made)
}

fn not_made(error: &tokio::task::JoinError) -> String {
    format!("its request could not be made: {error}")
}

/// Writes the rows of turns that are never sent, as far as they would have come due. The first of them
/// follows what ended at `from`.
pub(crate) async fn give_up(field: &Field, turns: &[u32], from: Tick, why: &str) {
    let mut planned = from;
    for arrival in turns.iter().filter_map(|i| field.plan.arrivals().get(*i as usize)) {
        planned = planned + think(&field.plan, arrival);
        if is_over(field, planned) {
            return;
        }
        field.came_due();
        let mut row = field.unsent(arrival, planned);
        row.error = Some(why.to_owned());
        field.write(row).await;
    }
}

/// Whether a turn planned for then is no arrival of the run.
fn is_over(field: &Field, planned: Tick) -> bool {
    field.plan.header().window.is_some_and(|window| planned >= Tick::ZERO + window)
}

fn think(plan: &Plan, arrival: &Arrival) -> Span {
    plan.turn(arrival).map_or(Span::ZERO, |turn| turn.think)
}

/// The places of each conversation's turns in the plan, in order.
pub(crate) fn turns_of(plan: &Plan) -> BTreeMap<u32, Vec<u32>> {
    let mut turns: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for arrival in plan.arrivals() {
        if let Some(turn) = plan.turn(arrival) {
            turns.entry(turn.session).or_default().push(arrival.index);
        }
    }
    turns
}

impl Shared {
    fn one_sent(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all_sent.cancel();
        }
    }
}
