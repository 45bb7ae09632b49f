//! Whether the time to look up a key says anything about it (Welch's t-test, as in "Dude, is my code constant time?",
//! Reparaz, Balasch and Verbauwhede, 2017).
//!
//! `cargo bench --bench keys [-- SAMPLES]` looks up, in random order, keys that are unknown, that differ from a known one in
//! the first or in the last character, and that are known. The times of each kind are compared with those of unknown keys,
//! without the slowest hundredth, which is the machine's. A |t| of 10 or more ends it with exit code 1.
//!
//! That a known key is found is no secret: its answer is another one. Its time is printed, and not judged.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use elasticserve_core::rng::{Random, Stream};
use elasticserve_gateway::config::{Keys, RawConfig};
use elasticserve_gateway::secret::Secret;

/// Keys in the configuration.
const KEYS: usize = 1_000;
/// Look-ups that are timed as one sample: one alone is near the clock's own step.
const EACH: usize = 8;
const KINDS: [&str; 4] = ["unknown", "first character wrong", "last character wrong", "known"];

fn main() -> ExitCode {
    // `cargo test --benches` calls every bench with `--test`, to see that it starts.
    if std::env::args().any(|a| a == "--test") {
        return ExitCode::SUCCESS;
    }
    let samples = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(200_000);
    let mut random = Random::new(10, Stream::Test);
    let texts: Vec<String> = (0..KEYS).map(|_| text(&mut random)).collect();
    let keys = keys(&texts);
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..samples {
        let kind = random.between(0, 3) as usize;
        let secrets: Vec<Secret> = (0..EACH).map(|_| Secret::new(&shown(kind, &texts, &mut random)).unwrap()).collect();
        let began = Instant::now();
        for secret in &secrets {
            black_box(keys.find(black_box(secret)));
        }
        times[kind].push(began.elapsed().as_nanos() as f64);
    }
    times.iter_mut().for_each(trim);
    let mut worst = 0.0_f64;
    for (kind, sample) in KINDS.iter().zip(&times) {
        let t = welch(sample, &times[0]);
        // Who has a right key learns that from the answer.
        worst = if *kind == "known" { worst } else { worst.max(t.abs()) };
        let (mean, _) = moments(sample);
        say(&format!("{kind:<22} {:>8} samples {:>9.1} ns each   t {t:>7.2}", sample.len(), mean / EACH as f64));
    }
    if worst < 10.0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(random: &mut Random) -> String {
    format!("esk-{:016x}{:016x}", random.next_u64(), random.next_u64())
}

/// A key of a kind, made in the same way for all of them.
fn shown(kind: usize, texts: &[String], random: &mut Random) -> String {
    let fresh = text(random);
    let known = &texts[random.between(0, KEYS as u64 - 1) as usize];
    match kind {
        0 => fresh,
        1 => format!("x{}", &known[1..]),
        2 => format!("{}x", &known[..known.len() - 1]),
        _ => known.clone(),
    }
}

fn keys(texts: &[String]) -> Keys {
    let entry = |(n, text): (usize, &String)| {
        format!("[[tenants.keys]]\nid = 'k{n}'\nsha256 = '{}'\n", Secret::new(text).unwrap().digest())
    };
    let all: String = texts.iter().enumerate().map(entry).collect();
    let text = format!("[[backends]]\nurl = 'http://h'\n[[tenants]]\nname = 't'\n{all}");
    RawConfig::from_toml(&text).unwrap().check().unwrap().keys
}

/// Takes out the slowest hundredth.
fn trim(times: &mut Vec<f64>) {
    times.sort_by(f64::total_cmp);
    times.truncate(times.len() - times.len() / 100);
}

/// Mean and variance.
fn moments(sample: &[f64]) -> (f64, f64) {
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    (mean, sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0))
}

fn welch(a: &[f64], b: &[f64]) -> f64 {
    let ((mean_a, var_a), (mean_b, var_b)) = (moments(a), moments(b));
    let error = (var_a / a.len() as f64 + var_b / b.len() as f64).sqrt();
    if error == 0.0 { 0.0 } else { (mean_a - mean_b) / error }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
