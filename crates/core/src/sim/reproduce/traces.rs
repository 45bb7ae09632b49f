//! Recorded arrivals that come with the program.

use crate::time::Span;

macro_rules! recorded {
    ($($seed:literal $count:literal $file:literal),+ $(,)?) => {
        [$(($seed, $count, include_str!(concat!("../../../../../reference/traces/", $file)))),+]
    };
}

/// Seed, count and file of the arrivals that `vllm bench serve` draws, at 1 request/s.
const VLLM_BENCH: [(u64, u32, &str); 8] = recorded![
    7 50 "vllm_bench_seed7_n50_unit_rate.csv",
    7 200 "vllm_bench_seed7_n200_unit_rate.csv",
    11 200 "vllm_bench_seed11_n200_unit_rate.csv",
    23 200 "vllm_bench_seed23_n200_unit_rate.csv",
    37 200 "vllm_bench_seed37_n200_unit_rate.csv",
    53 200 "vllm_bench_seed53_n200_unit_rate.csv",
    71 200 "vllm_bench_seed71_n200_unit_rate.csv",
    101 200 "vllm_bench_seed101_n200_unit_rate.csv",
];

/// Arrivals, tenants and lengths of the tenant runs.
const TENANTS: [(u64, u32, &str); 5] = recorded![
    11 200 "m3_seed11.csv",
    23 200 "m3_seed23.csv",
    37 200 "m3_seed37.csv",
    53 200 "m3_seed53.csv",
    71 200 "m3_seed71.csv",
];

const MIXED: [(u64, u32, &str); 1] = recorded![101 200 "vllm_bench_mixed_seed101_lengths.csv"];

/// The times at which `vllm bench serve` sends so many requests for a seed at a rate in requests/s, `None`
/// where none are recorded: 200 for the seeds 7, 11, 23, 37, 53, 71 and 101, and 50 for 7.
#[must_use]
pub fn vllm_bench(seed: u64, count: u32, rate: f64) -> Option<Vec<Span>> {
    let rows = find(&VLLM_BENCH, seed, count)?;
    rows.map(|row| row.get(1)?.parse::<f64>().ok().map(|unit| Span::from_secs_f64(unit / rate))).collect()
}

/// Prompt and answer lengths of the mixed workload in the order of the arrivals, `None` where none are recorded: 200 for
/// the seed 101.
#[must_use]
pub fn mixed_lengths(seed: u64, count: u32) -> Option<Vec<(u32, u32)>> {
    find(&MIXED, seed, count)?.map(|row| Some((row.get(1)?.parse().ok()?, row.get(2)?.parse().ok()?))).collect()
}

/// An arrival of a tenant run.
pub(super) struct TenantArrival {
    pub(super) at: Span,
    pub(super) tenant: &'static str,
    pub(super) input: u32,
    pub(super) output: u32,
}

/// The arrivals of a tenant run, `None` where none are recorded.
pub(super) fn tenants(seed: u64, count: u32) -> Option<Vec<TenantArrival>> {
    let arrival = |row: Vec<&'static str>| {
        Some(TenantArrival {
            at: Span::from_secs_f64(row.get(1)?.parse().ok()?),
            tenant: row.get(2)?,
            input: row.get(3)?.parse().ok()?,
            output: row.get(4)?.parse().ok()?,
        })
    };
    find(&TENANTS, seed, count)?.map(arrival).collect()
}

fn find(
    files: &[(u64, u32, &'static str)],
    seed: u64,
    count: u32,
) -> Option<impl Iterator<Item = Vec<&'static str>> + use<>> {
    let (_, _, text) = files.iter().find(|(s, c, _)| (*s, *c) == (seed, count))?;
    Some(text.lines().skip(1).map(|line| line.trim().split(',').collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_file_can_be_read_in_full() {
        for (seed, count, _) in VLLM_BENCH {
            assert_eq!(vllm_bench(seed, count, 1.0).unwrap().len(), count as usize, "{seed}");
        }
        for (seed, count, _) in TENANTS {
            assert_eq!(tenants(seed, count).unwrap().len(), count as usize, "{seed}");
        }
        assert_eq!(mixed_lengths(101, 200).unwrap()[0], (342, 194));
        assert!(vllm_bench(8, 200, 1.0).is_none());
    }

    #[test]
    fn the_first_arrivals_at_16_per_second_are_those_of_the_published_run() {
        let at: Vec<f64> = vllm_bench(7, 200, 16.0).unwrap().iter().take(3).map(|t| t.as_secs_f64()).collect();
        for (got, expected) in at.iter().zip([0.005_332_91, 0.107_034_25, 0.145_798_58]) {
            assert!((got - expected).abs() < 1e-8, "{got}");
        }
    }
}
