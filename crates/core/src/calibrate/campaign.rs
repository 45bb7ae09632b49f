//! What to offer next: a campaign of probes, each chosen by what those before it showed.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use super::observe::median_of;
use super::plans::{Plans, SHORT};
use super::seats::{Crowd, Seats, knee, seats};
use super::seen::{REPEATED, REPEATS, Trial};
use crate::time::Span;
use crate::work::{Plan, PlanError};

/// What a campaign measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Lengths of prompts in the grid, in tokens.
    pub inputs: Vec<u32>,
    /// Lengths of answers in the grid, taken in turns by its rounds.
    pub outputs: Vec<u32>,
    /// Rounds of the grid: how often each length is measured.
    pub rounds: u32,
    /// The most requests at once.
    pub max_concurrency: u32,
    /// Whether long contexts and prompts beside running answers are measured again, and numbers of requests between
    /// those that double around the knee.
    pub thorough: bool,
    /// The seed of prompts, orders and lengths.
    pub seed: u64,
    /// All prompts of the grid are the beginning of one text, as if somebody had not thought of the prefix cache.
    pub shared: bool,
    /// The longest that all probes may take together.
    pub budget: Option<Span>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            inputs: vec![16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048],
            outputs: vec![8, 24],
            rounds: 6,
            max_concurrency: 256,
            thorough: true,
            seed: 0,
            shared: false,
            budget: None,
        }
    }
}

impl Settings {
    /// A campaign of less than half the time: fewer lengths and rounds, nothing measured again, no search around the knee.
    #[must_use]
    pub fn quick() -> Self {
        let inputs = vec![16, 48, 96, 128, 256, 512, 1024, 2048];
        Self { inputs, outputs: vec![8, 16], rounds: 3, thorough: false, ..Self::default() }
    }

    fn check(&self) -> Result<(), SettingsError> {
        let sorted = self.inputs.is_sorted_by(|a, b| a < b);
        match () {
            () if self.inputs.len() < 2 || !sorted => Err(SettingsError::Inputs),
            () if self.inputs[0] == 0 || self.inputs.last().is_some_and(|last| *last > MAX_INPUT) => {
                Err(SettingsError::Inputs)
            }
            () if self.outputs.is_empty() || self.outputs.iter().any(|o| !(2..=MAX_OUTPUT).contains(o)) => {
                Err(SettingsError::Outputs)
            }
            () if self.rounds == 0 || self.rounds > MAX_ROUNDS => Err(SettingsError::Rounds),
            () if !(1..=MAX_CONCURRENCY).contains(&self.max_concurrency) => Err(SettingsError::Concurrency),
            () => Ok(()),
        }
    }
}

/// The longest prompt of a grid.
const MAX_INPUT: u32 = 1 << 20;
/// The longest answer of a grid.
const MAX_OUTPUT: u32 = 4096;
/// The most rounds.
const MAX_ROUNDS: u32 = 1000;
/// The most requests at once.
const MAX_CONCURRENCY: u32 = 4096;

/// Why there is no campaign, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The lengths of prompts.
    #[error("the grid needs two lengths of prompts or more, ascending, from 1 to {MAX_INPUT} tokens")]
    Inputs,
    /// The lengths of answers.
    #[error("answers of the grid have from 2 to {MAX_OUTPUT} tokens: the time between two is what is measured")]
    Outputs,
    /// The rounds.
    #[error("the grid has from 1 to {MAX_ROUNDS} rounds")]
    Rounds,
    /// The most requests at once.
    #[error("requests at once: from 1 to {MAX_CONCURRENCY}")]
    Concurrency,
    /// The first requests had no answers.
    #[error("none of the first {asked} requests was answered: {why}")]
    NoAnswer {
        /// Requests.
        asked: u32,
        /// What happened.
        why: String,
    },
    /// A plan could not be made: a defect of this program.
    #[error("a probe's plan: {0}")]
    Plan(String),
}

impl From<PlanError> for SettingsError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error.to_string())
    }
}

/// Something to offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Its name, unique within the campaign; [`Trial::name`] repeats it.
    pub name: String,
    /// What it is for, in a few words.
    pub what: String,
    /// What is offered.
    pub plan: Plan,
    /// Whether its prompts get a salt of their own, so that no run before has sent them.
    pub salted: bool,
    /// About how long it takes.
    pub expected: Span,
}

/// A step of a campaign.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    Pilot,
    Repeats,
    Grid(u32),
    Crowd(u32),
    Check(u32),
    /// Long contexts: a number, sequences, and by what the longest prompt is divided.
    Contexts(u32, u32, u32),
    Beside(u32),
}

/// A campaign: [`Campaign::next`] and [`Campaign::observe`] in turns, until there is no next.
#[derive(Clone, Debug)]
pub struct Campaign {
    settings: Settings,
    plans: Plans,
    todo: VecDeque<Stage>,
    /// What the last probe was.
    current: Option<Stage>,
    /// A first token and a step of a lone short request, in ms.
    pace: Option<(f64, f64)>,
    /// First tokens by length, in ms.
    firsts: BTreeMap<u32, f64>,
    crowds: Vec<Crowd>,
    refined: u32,
    skipped: Vec<String>,
    notes: Vec<String>,
}

/// Requests of the pilot.
const PILOT: [u32; 4] = [32, 33, 34, 35];
const PILOT_OUTPUT: u32 = 16;
/// Prompts of a crowd.
const CROWD_INPUT: u32 = 32;
/// About how long an answer of a crowd takes, in ms, and its bounds in tokens.
const CROWD_MS: f64 = 1500.0;
const CROWD_OUTPUT: (f64, f64) = (32.0, 128.0);
/// Answers of the burst that counts the seats, and of long contexts.
const CHECK_OUTPUT: u32 = 48;
const CONTEXT_OUTPUT: u32 = 40;
/// Sequences with long contexts.
const CONTEXTS: u32 = 8;
/// The longest that the prompts of long contexts may take, in ms.
const CONTEXT_MS: f64 = 15_000.0;
/// Prompts that come beside streams, in turns.
const BESIDE: [u32; 4] = [16, 128, 16, 512];
const BESIDE_COUNT: usize = 24;
/// Steps between them: not whole, so that they come at every moment of a step.
const BESIDE_STEPS: f64 = 7.37;
/// The longest stream beside which they come, in tokens.
const BESIDE_OUTPUT: f64 = 1000.0;
/// Numbers of requests at once that are tried between those that double.
const REFINED: u32 = 2;
/// Between two probes.
const PAUSE_MS: f64 = 150.0;

impl Campaign {
    /// A campaign that has not begun.
    ///
    /// # Errors
    /// [`SettingsError`] says what is out of range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let early = settings.rounds.min(2);
        let mut todo = VecDeque::from([Stage::Pilot, Stage::Repeats]);
        todo.extend((0..early).map(Stage::Grid));
        if settings.max_concurrency > 1 {
            todo.push_back(Stage::Crowd(if settings.thorough { 2 } else { 4 }));
            let contexts = [(CONTEXTS, 1), (CONTEXTS, 2), (CONTEXTS / 2, 1), (CONTEXTS, 1)];
            let contexts = (1..).zip(contexts).map(|(number, (sequences, by))| Stage::Contexts(number, sequences, by));
            todo.extend(contexts.take(if settings.thorough { 4 } else { 1 }));
            todo.extend([1, 4].map(Stage::Beside).into_iter().take(if settings.thorough { 2 } else { 1 }));
        }
        todo.extend((early..settings.rounds).map(Stage::Grid));
        Ok(Self {
            plans: Plans::new(settings.seed, settings.shared),
            settings,
            todo,
            current: None,
            pace: None,
            firsts: BTreeMap::new(),
            crowds: Vec::new(),
            refined: 0,
            skipped: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// The next probe; `None` at the end. `elapsed` is what the campaign took so far: a probe that would end beyond the
    /// budget is left out.
    ///
    /// # Errors
    /// [`SettingsError::Plan`]: a defect of this program.
    pub fn next(&mut self, elapsed: Span) -> Result<Option<Probe>, SettingsError> {
        while let Some(stage) = self.todo.pop_front() {
            let Some(probe) = self.probe(stage)? else { continue };
            let ends = elapsed + probe.expected;
            if self.settings.budget.is_some_and(|budget| ends > budget) && stage != Stage::Pilot {
                self.skipped.push(probe.name);
                continue;
            }
            self.current = Some(stage);
            return Ok(Some(probe));
        }
        self.current = None;
        Ok(None)
    }

    /// Takes what came of the last probe.
    ///
    /// # Errors
    /// [`SettingsError::NoAnswer`] if the server did not answer the first requests: there is no use in going on.
    pub fn observe(&mut self, trial: &Trial) -> Result<(), SettingsError> {
        let (answered, failed) = (trial.seen.len() as u32, trial.failed);
        let why = || trial.failure.clone().unwrap_or_else(|| "nothing came back".to_owned());
        match self.current.take() {
            Some(Stage::Pilot) if answered == 0 => return Err(SettingsError::NoAnswer { asked: failed, why: why() }),
            Some(Stage::Pilot) => self.pilot(trial),
            Some(Stage::Grid(_)) => self.grid(trial),
            Some(Stage::Crowd(_) | Stage::Check(_)) => self.crowd(trial),
            _ => {}
        }
        if failed > 0 {
            self.notes.push(format!(
                "{}: {failed} of {} requests had no answer ({})",
                trial.name,
                answered + failed,
                why()
            ));
        }
        Ok(())
    }

    /// About how long the rest takes, as far as it is known.
    #[must_use]
    pub fn left(&self) -> Span {
        // With a copy, so that the prompts of probes to come stay as they are.
        let mut copy = self.clone();
        let mut left = Span::ZERO;
        while let Some(stage) = copy.todo.pop_front() {
            left += copy.probe(stage).ok().flatten().map_or(Span::ZERO, |probe| probe.expected);
            if let Stage::Crowd(workers) = stage
                && copy.crowds.iter().all(|c| !c.is_full())
                && workers * 2 <= self.settings.max_concurrency.min(64)
            {
                copy.todo.push_front(Stage::Crowd(workers * 2));
            }
        }
        left
    }

    /// What went wrong without ending the campaign.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Probes that did not fit into the budget.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn probe(&mut self, stage: Stage) -> Result<Option<Probe>, SettingsError> {
        let probe = match stage {
            Stage::Pilot => {
                let plan = self.plans.one_by_one(&PILOT, PILOT_OUTPUT)?;
                self.made("pilot", "the first requests", plan, 10_000.0)
            }
            Stage::Repeats => {
                let lengths = self.repeated_lengths();
                let output = 2;
                let plan = self.plans.repeated(&lengths, output)?;
                let each: f64 = lengths.iter().map(|l| self.lone_ms(*l, output)).sum();
                self.made(REPEATS, "is a prompt known that was sent before?", plan, each * f64::from(REPEATED))
            }
            Stage::Grid(round) => {
                let output = self.settings.outputs[round as usize % self.settings.outputs.len()];
                let lengths = self.plans.shuffled(&self.settings.inputs, round);
                let plan = self.plans.one_by_one(&lengths, output)?;
                let expected = lengths.iter().map(|l| self.lone_ms(*l, output)).sum();
                let what = format!("one request at a time, {} lengths, answers of {output}", lengths.len());
                self.made(&format!("grid-{}", round + 1), &what, plan, expected)
            }
            Stage::Crowd(workers) => return self.crowd_probe(workers),
            Stage::Check(count) => {
                let plan = self.plans.burst(count, SHORT, CHECK_OUTPUT)?;
                let expected = 2.0 * self.lone_ms(SHORT, CHECK_OUTPUT);
                self.made(&format!("seats-{count}"), &format!("{count} at once: how many run?"), plan, expected)
            }
            Stage::Contexts(number, sequences, by) => return self.contexts_probe(number, sequences, by),
            Stage::Beside(streams) => return self.beside_probe(streams),
        };
        Ok(Some(probe))
    }

    fn made(&self, name: &str, what: &str, plan: Plan, expected_ms: f64) -> Probe {
        let salted = !self.settings.shared || name == REPEATS;
        let expected = Span::from_millis_f64(expected_ms + PAUSE_MS);
        Probe { name: name.to_owned(), what: what.to_owned(), plan, salted, expected }
    }

    fn crowd_probe(&mut self, workers: u32) -> Result<Option<Probe>, SettingsError> {
        let Some(count) = NonZeroU32::new(workers.min(self.settings.max_concurrency)) else { return Ok(None) };
        let output = (CROWD_MS / self.step_ms()).clamp(CROWD_OUTPUT.0, CROWD_OUTPUT.1) as u32;
        let plan = self.plans.crowd(count, CROWD_INPUT, output)?;
        let what = format!("{count} at once, {} requests", 3 * count.get());
        // Those that wait for a seat make it longer.
        let waves = 3.5 * f64::from(count.get()) / f64::from(self.seats().unwrap_or(count.get()).min(count.get()));
        let expected = waves * self.lone_ms(CROWD_INPUT, output) * 1.1;
        Ok(Some(self.made(&format!("crowd-{count}"), &what, plan, expected)))
    }

    fn contexts_probe(&mut self, number: u32, sequences: u32, by: u32) -> Result<Option<Probe>, SettingsError> {
        let count = sequences.min(self.seats().unwrap_or(sequences)).max(1);
        let (floor, _) = self.pace();
        let fits = |(_, first): &(&u32, &f64)| f64::from(count) * (**first - floor) <= CONTEXT_MS;
        let Some((&longest, &first)) = self.firsts.iter().rev().find(fits) else { return Ok(None) };
        let input = (longest / by).max(1);
        let plan = self.plans.burst(count, input, CONTEXT_OUTPUT)?;
        let what = format!("{count} at once with contexts of {input}");
        let expected = f64::from(count) * (first - floor).max(0.0) + self.lone_ms(SHORT, CONTEXT_OUTPUT) * 1.3;
        Ok(Some(self.made(&format!("contexts-{number}"), &what, plan, expected)))
    }

    fn beside_probe(&mut self, streams: u32) -> Result<Option<Probe>, SettingsError> {
        let streams = streams.min(self.seats().unwrap_or(streams).saturating_sub(1));
        let (floor, step) = self.pace();
        let longest = self.firsts.keys().next_back().copied().unwrap_or(SHORT);
        if streams == 0 {
            return Ok(None);
        }
        let mut prompts = Vec::new();
        let mut at = floor + 4.0 * step;
        let most = step * BESIDE_OUTPUT.min(f64::from(longest));
        for input in BESIDE.into_iter().cycle().take(BESIDE_COUNT).map(|input| input.min(longest)) {
            let first = self.firsts.range(input..).next().map_or(floor, |(_, first)| *first);
            let next = at + BESIDE_STEPS * step + 2.0 * first;
            if next > most {
                break;
            }
            prompts.push((Span::from_millis_f64(at), input));
            at = next;
        }
        if prompts.is_empty() {
            return Ok(None);
        }
        let output = (at / step) as u32 + 8;
        let plan = self.plans.beside(streams, output, &prompts)?;
        let what = format!("{} prompts beside {streams} running", prompts.len());
        Ok(Some(self.made(&format!("beside-{streams}"), &what, plan, at * 1.3)))
    }

    /// Near the longest prompt, so that blocks of any usual size come to different numbers.
    fn repeated_lengths(&self) -> Vec<u32> {
        let longest = self.settings.inputs.last().copied().unwrap_or(SHORT);
        [16, 40, 176].into_iter().map(|less| longest.saturating_sub(less).max(longest / 2)).collect()
    }

    fn pilot(&mut self, trial: &Trial) {
        // The first may have met a server that was still warming up.
        let rest = if trial.seen.len() > 1 { &trial.seen[1..] } else { &trial.seen[..] };
        let first = median_of(rest.iter().map(|s| s.ttft().as_millis_f64())).unwrap_or(1.0);
        let step = |s: &super::Seen| {
            Some(s.last().since(s.first()).as_millis_f64() / f64::from(s.output.checked_sub(1).filter(|n| *n > 0)?))
        };
        let step = median_of(rest.iter().filter_map(step)).unwrap_or(first);
        self.pace = Some((first, step.max(1e-3)));
        let short = rest.iter().filter(|s| s.output < s.asked).count();
        if short > 0 {
            self.notes.push(format!(
                "{short} of {} answers ended before the length that was asked for: the server does not take ignore_eos, so fewer steps are seen",
                rest.len()
            ));
        }
        if rest.iter().all(|s| !s.counted) {
            self.notes.push(
                "the server does not count tokens (usage): lengths of prompts are as asked for, answers by event"
                    .to_owned(),
            );
        }
    }

    fn grid(&mut self, trial: &Trial) {
        for seen in &trial.seen {
            let ms = seen.ttft().as_millis_f64();
            let first = self.firsts.entry(seen.input).or_insert(ms);
            *first = first.min(ms);
        }
        // What the server refused once it will refuse again.
        if trial.failed > 0 && !trial.seen.is_empty() {
            let longest = trial.seen.iter().map(|s| s.input).max().unwrap_or(0);
            let kept: Vec<u32> = self.settings.inputs.iter().copied().filter(|i| *i <= longest + longest / 4).collect();
            if kept.len() >= 2 {
                self.settings.inputs = kept;
            }
        }
    }

    fn crowd(&mut self, trial: &Trial) {
        let Some(crowd) = Crowd::of(trial) else { return };
        let (full, offered, closed) = (crowd.is_full(), crowd.offered, crowd.tokens_per_s.is_some());
        self.crowds.push(crowd);
        let running = self.crowds.iter().map(|c| c.running).max().unwrap_or(0);
        if closed && !full && self.crowds.iter().all(|c| !c.is_full()) {
            if offered < self.settings.max_concurrency {
                self.todo.push_front(Stage::Crowd((offered * 2).min(self.settings.max_concurrency)));
            }
            return;
        }
        let count = running + (running / 4).max(2);
        let checked = self.crowds.iter().any(|c| c.tokens_per_s.is_none() && c.offered >= count);
        if !checked && count <= self.settings.max_concurrency.max(running + 2) {
            self.todo.push_front(Stage::Check(count));
            return;
        }
        if !full && !closed && offered < self.settings.max_concurrency {
            // The burst had room for all: the crowd before it was held back by something else than seats.
            self.todo.push_front(Stage::Crowd((offered * 2).min(self.settings.max_concurrency)));
            return;
        }
        self.refine();
    }

    /// Tries the seats themselves, then the middle between the knee and the next smaller number that was tried.
    fn refine(&mut self) {
        let Some(seats) = seats(&self.crowds).filter(|_| self.settings.thorough && self.refined < REFINED) else {
            return;
        };
        let tried = |count: u32| self.crowds.iter().any(|c| c.offered == count && c.tokens_per_s.is_some());
        let (_, step) = self.pace();
        let next = if seats.count() > 1 && !tried(seats.count()) {
            Some(seats.count())
        } else {
            let found = knee(&self.crowds, seats, Some(1000.0 / step));
            found.map(|k| k.above.midpoint(k.permits)).filter(|middle| *middle > 1 && !tried(*middle))
        };
        if let Some(count) = next {
            self.refined += 1;
            self.todo.push_front(Stage::Crowd(count));
        }
    }

    fn seats(&self) -> Option<u32> {
        seats(&self.crowds).map(Seats::count)
    }

    fn pace(&self) -> (f64, f64) {
        self.pace.unwrap_or((100.0, 50.0))
    }

    fn step_ms(&self) -> f64 {
        self.pace().1
    }

    /// About how long a lone request takes, in ms.
    fn lone_ms(&self, input: u32, output: u32) -> f64 {
        let (first, step) = self.pace();
        let known = self.firsts.range(input..).next().map(|(_, first)| *first);
        // Before the grid a prompt token is taken to cost a thousandth of what a first token does.
        let first = known.unwrap_or(first * (1.0 + f64::from(input) / 1000.0));
        first + step * f64::from(output.saturating_sub(1))
    }
}
