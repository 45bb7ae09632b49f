//! What a run shows of the generator itself: looked at once a second while it goes.

use std::fs;
use std::num::NonZero;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use elasticserve_core::health::{Health, Lateness, LatenessCounts};
use elasticserve_core::time::Span;
use tokio::task::JoinSet;

/// Between two looks at CPU, descriptors and clocks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A shorter piece of time says little of CPU that is counted in hundredths of a second.
const SHORTEST_LOOK: Duration = Duration::from_millis(500);
/// Between two firings of the timer whose lateness is measured.
const TIMER_EVERY: Duration = Duration::from_millis(20);
/// What a timer of the runtime may be late by design: it counts in milliseconds and rounds up.
const TIMER_GRAIN: Span = Span::from_millis(1);

/// Watches the generator. Dropping it ends the watch.
pub(crate) struct Monitor {
    /// Dropped to end the thread.
    end: Sender<()>,
    looks: JoinHandle<Looks>,
    timer: JoinSet<()>,
    late: tokio::sync::watch::Receiver<Lateness>,
}

impl Monitor {
    /// Starts to watch, on a thread of its own and with a timer on the runtime.
    ///
    /// # Errors
    /// An [`io::Error`](std::io::Error) if the system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (end, ended) = channel();
        let looks = thread::Builder::new().name("load-health".into()).spawn(move || {
            let mut looks = Looks::start();
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                looks.look();
            }
            looks.look();
            looks
        })?;
        let (tell, late) = tokio::sync::watch::channel(Lateness::default());
        let mut timer = JoinSet::new();
        timer.spawn(async move {
            let mut counts = LatenessCounts::new();
            let mut due = tokio::time::Instant::now();
            loop {
                due += TIMER_EVERY;
                tokio::time::sleep_until(due).await;
                let late = tokio::time::Instant::now().saturating_duration_since(due);
                counts.add(Span::from_std(late).saturating_sub(TIMER_GRAIN));
                tell.send_replace(counts.lateness());
                // After a stall the timer starts anew: one stall is one lateness.
                due = due.max(tokio::time::Instant::now() - TIMER_EVERY);
            }
        });
        Ok(Self { end, looks, timer, late })
    }

    /// Ends the watch. What was seen of the sends is not in it.
    pub(crate) async fn end(self) -> Health {
        let Self { end, looks, mut timer, late } = self;
        drop(end);
        timer.shutdown().await;
        // The thread ends at once now that its channel is closed.
        let looks = looks.join().unwrap_or_else(|_| Looks::start());
        Health { runtime_delay: *late.borrow(), ..looks.health }
    }
}

/// What the looks have shown so far.
struct Looks {
    health: Health,
    at: Instant,
    wall: SystemTime,
    cpu: Option<Span>,
}

impl Looks {
    fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get) as u32;
        let health = Health { cores, descriptors_limit: descriptors_limit(), ..Health::default() };
        let mut looks = Self { health, at: Instant::now(), wall: SystemTime::now(), cpu: cpu_time() };
        looks.count_descriptors();
        looks
    }

    fn look(&mut self) {
        self.count_descriptors();
        let (at, wall) = (Instant::now(), SystemTime::now());
        let passed = at.saturating_duration_since(self.at);
        self.health.clock_step = self.health.clock_step.max(step(passed, self.wall, wall));
        (self.at, self.wall) = (at, wall);
        if passed < SHORTEST_LOOK {
            return;
        }
        let cpu = cpu_time();
        if let Some((now, before)) = cpu.zip(self.cpu) {
            let share = share_of(now.saturating_sub(before), passed, self.health.cores);
            self.health.cpu_peak = Some(self.health.cpu_peak.map_or(share, |peak| peak.max(share)));
        }
        self.cpu = cpu;
    }

    fn count_descriptors(&mut self) {
        // The look itself opens one.
        let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as u32);
        self.health.descriptors_peak = self.health.descriptors_peak.max(open);
    }
}

/// How far the wall clock moved beside the monotonic one, in either direction.
fn step(passed: Duration, before: SystemTime, now: SystemTime) -> Span {
    let off = match now.duration_since(before) {
        Ok(forward) => forward.abs_diff(passed),
        Err(back) => passed.saturating_add(back.duration()),
    };
    Span::from_std(off)
}

fn share_of(cpu: Span, passed: Duration, cores: u32) -> f64 {
    cpu.as_secs_f64() / (passed.as_secs_f64() * f64::from(cores.max(1)))
}

/// The soft limit on open descriptors; absent where the system does not say.
fn descriptors_limit() -> Option<u32> {
    parse_limits(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn parse_limits(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// CPU time of this process so far, user and system; absent where the system does not say.
pub(crate) fn cpu_time() -> Option<Span> {
    parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Linux counts CPU time for user space in hundredths of a second on every architecture.
const TICK_MS: u64 = 10;

/// `utime` and `stime` are fields 14 and 15; field 2 is the program's name in parentheses and may hold
/// anything, so counting starts after its last one (proc(5)).
fn parse_stat(text: &str) -> Option<Span> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Span::from_millis((user + system) * TICK_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_program_name() {
        let stat = "17 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 99";
        assert_eq!(parse_stat(stat), Some(Span::from_secs(3)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn the_limit_on_descriptors_is_the_soft_one_and_unlimited_is_no_number() {
        let line =
            |soft: &str| format!("Limit  Soft  Hard  Units\nMax open files            {soft}     4096    files\n");
        assert_eq!(parse_limits(&line("1024")), Some(1024));
        assert_eq!((parse_limits(&line("unlimited")), parse_limits("")), (None, None));
    }

    #[test]
    fn a_step_of_the_wall_clock_is_seen_in_both_directions_and_steady_time_is_none() {
        let second = Duration::from_secs(1);
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(step(second, before, before + second), Span::ZERO);
        assert_eq!(step(second, before, before + 61 * second), Span::from_secs(60));
        assert_eq!(step(second, before, before + Duration::from_millis(400)), Span::from_millis(600));
        assert_eq!(step(second, before, before - 60 * second), Span::from_secs(61));
    }

    #[test]
    fn cpu_is_a_share_of_all_cores() {
        assert!((share_of(Span::from_secs(3), Duration::from_secs(2), 2) - 0.75).abs() < 1e-12);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_runtime_that_is_held_up_shows_as_the_lateness_of_its_timers() {
        let monitor = Monitor::start().unwrap();
        // Once the timer runs, its only thread is taken from it.
        let mut late = monitor.late.clone();
        late.changed().await.unwrap();
        let mut held = JoinSet::new();
        held.spawn(async { thread::sleep(Duration::from_millis(300)) });
        held.join_next().await.unwrap().unwrap();
        late.changed().await.unwrap();
        let health = monitor.end().await;
        assert!(health.runtime_delay.max.unwrap() >= Span::from_millis(200), "{health:?}");
        assert!(health.descriptors_peak.unwrap() > 2 && health.descriptors_limit.unwrap() > 2, "{health:?}");
    }
}
