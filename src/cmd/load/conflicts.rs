//! Flags of the work that do not go together, with the reason.

use super::work::WorkArgs;
use crate::cmd::BadUsage;

/// Refuses flags that do not go together, and says why.
pub(super) fn refuse(args: &WorkArgs) -> Result<(), BadUsage> {
    let given = given(args);
    let is_given = |flag: &&str| given.contains(flag);
    for (flags, excluded, why) in CONFLICTS {
        for flag in flags.iter().filter(|flag| is_given(flag)) {
            let others = excluded.iter().flat_map(|group| group.iter());
            if let Some(other) = others.into_iter().find(|other| *other != flag && is_given(other)) {
                return Err(BadUsage(format!("{flag} cannot be used with {other}: {why}")));
            }
        }
    }
    if EXTENT.iter().all(is_given) && !CLOSED.iter().all(is_given) {
        let problem = "--num-prompts cannot be used with --duration: each says how many requests come; with \
                       --concurrency the first that is reached ends the run";
        return Err(BadUsage(problem.to_owned()));
    }
    for (flag, needed, why) in NEEDS {
        if is_given(&flag) && !is_given(&needed) {
            return Err(BadUsage(format!("{flag} needs {needed}: {why}")));
        }
    }
    Ok(())
}

/// Flags that go the same way.
type Flags = &'static [&'static str];

const PLAN: Flags = &["--plan"];
const SCENARIO: Flags = &["--scenario"];
const TRACE: Flags = &["--trace"];
const TRACE_CUTS: Flags = &["--trace-speedup", "--trace-rows"];
const RATE: Flags = &["--request-rate"];
const EXTENT: Flags = &["--num-prompts", "--duration"];
const PATTERN: Flags = &["--arrival-pattern", "--burstiness"];
const SHAPES: Flags = &["--rate-steps", "--ramp", "--bursts"];
const CLOSED: Flags = &["--concurrency"];
const LENGTHS: Flags = &["--random-input-len", "--random-output-len", "--random-range-ratio"];
const PREFIX: Flags = &["--random-prefix-len"];
const PAIRS: Flags = &["--lengths-file"];
const DATASET: Flags = &["--dataset-path"];
const DATASET_USE: Flags = &["--dataset-name", "--sharegpt-output-len"];
const SEED: Flags = &["--seed"];
const GOODPUT: Flags = &["--goodput"];

/// Flags, the groups that each of them excludes, and why.
const CONFLICTS: [(Flags, &[Flags], &str); 7] = [
    (
        PLAN,
        &[
            SCENARIO,
            TRACE,
            TRACE_CUTS,
            RATE,
            EXTENT,
            PATTERN,
            SHAPES,
            CLOSED,
            LENGTHS,
            PREFIX,
            PAIRS,
            DATASET_USE,
            SEED,
            GOODPUT,
        ],
        "a plan is drawn already and is replayed as it is; --plan-only draws another",
    ),
    (
        SCENARIO,
        &[TRACE, TRACE_CUTS, PATTERN, SHAPES, LENGTHS, PREFIX, PAIRS, DATASET, DATASET_USE, GOODPUT],
        "the file says it; of the work in it, --seed, --request-rate, --concurrency, --num-prompts and --duration \
         can be changed",
    ),
    (
        TRACE,
        &[RATE, EXTENT, PATTERN, SHAPES, CLOSED, LENGTHS, PREFIX, PAIRS, DATASET, DATASET_USE, SEED],
        "a trace has its arrivals, lengths and prompts; --trace-speedup and --trace-rows change it",
    ),
    (
        CLOSED,
        &[RATE, PATTERN, SHAPES],
        "a worker sends when its last answer has ended, so a closed load has no arrivals; --max-concurrency puts a \
         bound on an open load",
    ),
    (SHAPES, &[RATE, PATTERN, SHAPES], "each of them says when requests come"),
    (PAIRS, &[LENGTHS, DATASET], "the file has the lengths"),
    (DATASET, &[LENGTHS, PREFIX], "prompts are the conversations' texts; --sharegpt-output-len sets their answers"),
];

/// Flags, what they are of no use without, and why.
const NEEDS: [(&str, &str, &str); 3] = [
    ("--trace-speedup", "--trace", "there is nothing to speed up"),
    ("--trace-rows", "--trace", "there are no rows"),
    ("--sharegpt-output-len", "--dataset-path", "there are no conversations"),
];

/// The flags that were given.
fn given(args: &WorkArgs) -> Vec<&'static str> {
    let all = [
        ("--plan", args.plan.is_some()),
        ("--scenario", args.scenario.is_some()),
        ("--trace", args.trace.is_some()),
        ("--trace-speedup", args.trace_speedup.is_some()),
        ("--trace-rows", args.trace_rows.is_some()),
        ("--request-rate", args.request_rate.is_some()),
        ("--num-prompts", args.num_prompts.is_some()),
        ("--duration", args.duration.is_some()),
        ("--arrival-pattern", args.arrival_pattern.is_some()),
        ("--burstiness", args.burstiness.is_some()),
        ("--rate-steps", !args.rate_steps.is_empty()),
        ("--ramp", args.ramp.is_some()),
        ("--bursts", args.bursts.is_some()),
        ("--concurrency", args.concurrency.is_some()),
        ("--random-input-len", args.random_input_len.is_some()),
        ("--random-output-len", args.random_output_len.is_some()),
        ("--random-range-ratio", args.random_range_ratio.is_some()),
        ("--random-prefix-len", args.random_prefix_len.is_some()),
        ("--lengths-file", args.lengths_file.is_some()),
        ("--dataset-name", args.dataset_name.is_some()),
        ("--dataset-path", args.dataset_path.is_some()),
        ("--sharegpt-output-len", args.sharegpt_output_len.is_some()),
        ("--seed", args.seed.is_some()),
        ("--goodput", args.limits.any()),
    ];
    all.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag).collect()
}
