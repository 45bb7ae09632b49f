//! R29: a gateway, two engines and their clients, each a process or a connection of its own, while a nemesis stops,
//! kills, cuts, delays, starves and reconfigures them by a seeded plan; and a checker of all that was seen.
//!
//! `NEMESIS_PLANS`, `NEMESIS_SECONDS` (of each plan) and `NEMESIS_SEED` make it longer, or repeat what has failed;
//! `scripts/nemesis` sets them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test that cannot go on says so")]

mod checker;
mod client;
mod faults;
mod proxy;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use faults::{Fault, Plan};

/// After the last fault everything must be as before within this time.
const RECOVERY: Duration = Duration::from_secs(5);

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

#[expect(clippy::print_stdout, reason = "what a run of half an hour is doing, and its figures")]
fn tell(text: &str) {
    println!("{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_nemesis_does_each_request_ends_once_with_its_own_tokens_and_is_counted_as_its_client_saw_it() {
    let (plans, seconds) = (setting("NEMESIS_PLANS", 10), setting("NEMESIS_SECONDS", 3));
    let first = setting("NEMESIS_SEED", 1);
    let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
    let mut ends: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + plans {
        let plan = Plan::new(seed, Duration::from_secs(seconds));
        let told = world::run(&plan).await;
        let wrong = checker::violations(&told.history);
        assert!(wrong.is_empty(), "{} violations: {wrong:#?}\n{plan}", wrong.len());
        assert!(told.recovered <= RECOVERY, "it took {:?} to recover\n{plan}", told.recovered);
        for fault in plan.faults() {
            *faults.entry(fault).or_default() += 1;
        }
        for sent in &told.history.sent {
            *ends.entry(sent.saw.name()).or_default() += 1;
        }
        tell(&format!("seed {seed}: {} requests, recovered in {:?}", told.history.sent.len(), told.recovered));
    }
    tell(&format!("faults: {faults:?}\nends: {ends:?}"));
    assert_eq!(faults.len(), Fault::COUNT, "a fault never occurred: {faults:?}");
    // A run in which nothing broke has shown nothing.
    for end in ["whole", "broken", "left", "refused"] {
        assert!(ends.get(end).is_some_and(|n| *n > 0), "nothing was {end}: {ends:?}");
    }
}
