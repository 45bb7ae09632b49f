//! Engines of known parameters, calibrated from outside on virtual time.

use super::*;
use crate::sim::{self, Setup};
use crate::slo::Slo;
use crate::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};

fn built_in() -> Profile {
    Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
}

/// An engine that is three times faster, with another bend, other overheads and an odd number of seats.
fn fast() -> Profile {
    let text = "name = 'fast'\nmodel = 'm'\n[step]\nbase_ms = 12.0\nkv_ms_per_token = 0.00009\nprefill_step_ms = 0.8\n\
                prefill_ms_per_token = 0.021\nroof_tokens = 150.0\nattention_ms = 2.0\n[overhead]\nin_ms = 2.0\nout_ms = 4.5\n\
                [engine]\nmax_seqs = 21\nblock_tokens = 32\ntoken_budget = 8192\npipeline_depth = 2\nprefix_cache = true\n";
    Profile::from_toml(text).unwrap()
}

/// An engine without a prefix cache that fixes one step at a time.
fn plain() -> Profile {
    let text = "name = 'plain'\nmodel = 'm'\n[step]\nbase_ms = 25.0\nkv_ms_per_token = 0.0008\nprefill_step_ms = 2.5\n\
                prefill_ms_per_token = 0.15\nroof_tokens = 40.0\nattention_ms = 9.0\n[overhead]\nin_ms = 1.0\nout_ms = 1.0\n\
                [engine]\nmax_seqs = 8\nblock_tokens = 16\ntoken_budget = 8192\npipeline_depth = 1\nprefix_cache = false\n";
    Profile::from_toml(text).unwrap()
}

/// A small model on a CPU, where each sequence has a cost of its own.
fn cpu() -> Profile {
    let text = "name = 'cpu'\nmodel = 'm'\n[step]\nbase_ms = 5.0\nkv_ms_per_token = 0.0008\nsequence_ms = 0.15\n\
                prefill_step_ms = 1.8\nprefill_ms_per_token = 0.018\nroof_tokens = 40.0\nattention_ms = 3.0\n[overhead]\n\
                in_ms = 1.5\nout_ms = 1.5\n[engine]\nmax_seqs = 32\nblock_tokens = 16\ntoken_budget = 8192\n\
                pipeline_depth = 1\nprefix_cache = false\n";
    Profile::from_toml(text).unwrap()
}

fn measure(bench: &mut Bench, settings: Settings) -> Vec<Trial> {
    let mut campaign = Campaign::new(settings).unwrap();
    let mut trials = Vec::new();
    while let Some(probe) = campaign.next(bench.now().since(crate::time::Tick::ZERO)).unwrap() {
        let trial = bench.play(&probe);
        campaign.observe(&trial).unwrap();
        trials.push(trial);
    }
    assert_eq!(campaign.skipped(), &[] as &[String]);
    trials
}

fn calibrate(profile: &Profile, settings: Settings) -> Calibration {
    Calibration::of(&measure(&mut Bench::new(profile), settings), 1).unwrap()
}

fn assert_close(what: &str, found: f64, truth: f64, part: f64) {
    assert!((found - truth).abs() <= part * truth.abs(), "{what}: found {found}, truth {truth}");
}

/// The same answers, each token later by what `more` says; of requests that follow each other the later ones move along.
fn disturbed(trials: &[Trial], mut more: impl FnMut() -> f64) -> Vec<Trial> {
    let mut trials = trials.to_vec();
    for trial in &mut trials {
        let mut moved = Span::ZERO;
        for seen in &mut trial.seen {
            seen.sent = seen.sent + moved;
            for token in &mut seen.tokens {
                *token = *token + moved + Span::from_millis_f64(more());
            }
            let end = seen.last();
            if trial.workers == Some(1) {
                moved += end.since(seen.end + moved);
            }
            seen.end = end;
        }
    }
    trials
}

/// All that can be known from outside comes within `part`, and what is counted is exact.
fn assert_recovered(found: &Calibration, truth: &Profile, part: f64) {
    let profile = found.profile("found", "m", &Assumed::default());
    assert_close("base", profile.base_ms, truth.base_ms, part);
    assert_close("kv", profile.kv_ms_per_token, truth.kv_ms_per_token, part);
    assert_close("sequence", profile.sequence_ms, truth.sequence_ms, part);
    assert_close("prefill step", profile.prefill_step_ms, truth.prefill_step_ms, part);
    assert_close("prefill token", profile.prefill_ms_per_token, truth.prefill_ms_per_token, part);
    assert_close("roof", profile.roof_tokens, truth.roof_tokens, part);
    assert_close("attention", profile.attention_ms, truth.attention_ms, part);
    let around = |p: &Profile| (p.overhead_in + p.overhead_out).as_millis_f64();
    assert_close("around", around(&profile), around(truth), part);
    assert_close("first token", found.fitted.first_token.value, around(truth) + truth.prefill_step_ms, part);
    assert_eq!(found.seats, Some(Seats::Exactly(truth.max_seqs)));
    assert_eq!((profile.pipeline_depth, profile.prefix_cache), (truth.pipeline_depth, truth.prefix_cache));
    if truth.prefix_cache {
        assert_eq!(profile.block_tokens, truth.block_tokens);
    }
    assert_eq!(found.shared, None);
    let knee = found.knee.as_ref().unwrap();
    assert!(knee.permits <= truth.max_seqs && knee.permits * 5 >= truth.max_seqs * 4, "{knee:?}");
}

#[test]
fn parameters_of_four_engines_are_found_again_on_virtual_time() {
    for truth in [built_in(), fast(), plain(), cpu()] {
        assert_recovered(&calibrate(&truth, Settings::default()), &truth, 0.01);
    }
}

#[test]
fn a_quick_campaign_finds_the_same_engine_in_a_third_of_the_time() {
    let truth = built_in();
    let took = |settings: Settings| {
        let mut bench = Bench::new(&truth);
        let trials = measure(&mut bench, settings);
        (bench.now().as_nanos(), Calibration::of(&trials, 1).unwrap())
    };
    let (quick, found) = took(Settings::quick());
    let (full, _) = took(Settings::default());
    assert_recovered(&found, &truth, 0.03);
    assert!(2 * quick < full, "{quick} of {full} ns");
}

#[test]
fn an_engine_that_was_found_again_predicts_an_overload_of_the_true_one() {
    for truth in [built_in(), fast()] {
        let found = calibrate(&truth, Settings::quick()).profile("found", "m", &Assumed::default());
        let rate = 1.4 * 1000.0 / (truth.base_ms * 64.0) * f64::from(truth.max_seqs);
        let spec = PlanSpec {
            seed: 11,
            process: ArrivalProcess::Poisson { rate },
            extent: Extent::Count(300),
            input: Lengths { low: 64, high: 768 },
            output: Lengths { low: 16, high: 112 },
            tenants: vec![PlanTenant::new("t", 1.0, Slo::default())],
        };
        let plan = Plan::generate(&spec).unwrap();
        let figures = |profile: &Profile| {
            let setup = Setup { engines: vec![profile.clone()], gateway: None, warm: Vec::new() };
            let mut rows = Vec::new();
            sim::run(&plan, &setup, |row| rows.push(row)).unwrap();
            let mut ttft: Vec<f64> = rows.iter().filter_map(|r| Some(r.ttft()?.as_millis_f64())).collect();
            ttft.sort_by(f64::total_cmp);
            let end = rows.iter().filter_map(|r| r.end).max().unwrap();
            (crate::stats::quantile(&ttft, 0.95).unwrap(), end.as_nanos() as f64)
        };
        let (true_ttft, true_end) = figures(&truth);
        let (ttft, end) = figures(&found);
        assert!(true_ttft > 1000.0, "an overload, or the queue forgives every error: {true_ttft}");
        assert_close("TTFT p95", ttft, true_ttft, 0.03);
        assert_close("the last end", end, true_end, 0.01);
    }
}

/// The published cost model was fitted to prompts of 64, 256, 512 and 960 tokens that were the beginning of one text,
/// so each computed only its tail: 0.02864 ms a token where the engine takes 0.0732 beyond its roof.
#[test]
fn prompts_that_share_a_text_make_the_slope_two_and_a_half_times_too_small_and_it_is_said() {
    let settings = |shared| Settings {
        inputs: vec![64, 256, 512, 960],
        outputs: vec![32],
        rounds: 1,
        max_concurrency: 1,
        shared,
        ..Settings::default()
    };
    let silent = |shared| {
        let mut bench = Bench::new(&built_in()).without_cached_counts();
        Calibration::of(&measure(&mut bench, settings(shared)), 1).unwrap()
    };
    let (honest, spoiled) = (silent(false), silent(true));
    let (true_slope, slope) = (honest.line.unwrap().slope, spoiled.line.unwrap().slope);
    assert_close("the published slope", slope, 0.02864, 0.15);
    assert_close("too small by", true_slope / slope, 2.6, 0.1);
    assert_eq!(honest.shared, None);
    assert!(matches!(spoiled.shared, Some(Shared::Timed { .. })), "{:?}", spoiled.shared);

    // A server that counts what it found gives the true slope away.
    let trials = measure(&mut Bench::new(&built_in()), settings(true));
    let counted = Calibration::of(&trials, 1).unwrap();
    assert!(matches!(counted.shared, Some(Shared::Counted { prompts: 7, of: 8, .. })), "{:?}", counted.shared);
    assert_close("counted", counted.fitted.prefill_token.unwrap().value, built_in().prefill_ms_per_token, 0.1);
}

#[test]
fn a_few_slow_answers_change_nothing() {
    let truth = built_in();
    let trials = measure(&mut Bench::new(&truth), Settings::default());
    let (mut random, mut late) = (crate::rng::Random::new(5, crate::rng::Stream::Test), 0.0);
    // One token in sixty comes 30 ms late, and those after it catch up.
    let pauses = disturbed(&trials, || {
        late = if random.unit() < 1.0 / 60.0 { 30.0 } else { late / 4.0 };
        late
    });
    let found = Calibration::of(&pauses, 1).unwrap();
    assert_close("base", found.fitted.base.value, truth.base_ms, 0.01);
    assert_close("kv", found.fitted.kv.unwrap().value, truth.kv_ms_per_token, 0.05);
    assert_close("prefill token", found.fitted.prefill_token.unwrap().value, truth.prefill_ms_per_token, 0.05);
    assert_eq!(found.seats, Some(Seats::Exactly(truth.max_seqs)));
}

#[test]
fn intervals_hold_the_truth_where_times_are_disturbed() {
    let truth = built_in();
    let trials = measure(&mut Bench::new(&truth), Settings { max_concurrency: 1, ..Settings::default() });
    let mut held = 0;
    let repetitions = 40;
    for seed in 0..repetitions {
        let mut random = crate::rng::Random::new(seed, crate::rng::Stream::Test);
        let noisy = disturbed(&trials, || 0.3 * random.exponential());
        let found = Calibration::of(&noisy, seed).unwrap();
        let (low, high) = found.fitted.prefill_token.unwrap().interval.unwrap();
        held += u32::from(low <= truth.prefill_ms_per_token && truth.prefill_ms_per_token <= high);
        assert!(found.fitted.base.error.unwrap() < 0.2, "{:?}", found.fitted.base);
    }
    // 95 % of 40 is 38; 33 or fewer have a chance of 1 in 600.
    assert!(held > 33, "{held} of {repetitions}");
}

#[test]
fn a_profile_that_was_written_can_be_read_and_says_what_was_assumed() {
    let found = calibrate(&built_in(), Settings::quick());
    let assumed = Assumed::default();
    let profile = found.profile("found \"1\"", "m", &assumed);
    let parameters = found.parameters(&profile, &assumed);
    let text = profile_text(&profile, &parameters, "Calibrated.\n\nTwice.");
    let back = Profile::from_toml(&text).unwrap();
    assert_eq!((&back.name, back.max_seqs, back.prefix_cache), (&profile.name, 32, true));
    assert_close("base", back.base_ms, profile.base_ms, 1e-3);
    assert_close("kv", back.kv_ms_per_token, profile.kv_ms_per_token, 1e-3);
    assert!(text.starts_with("# Calibrated.\n#\n# Twice.\n"), "{text}");
    for (key, says) in
        [("base_ms", "fitted ± "), ("in_ms", "as a sum only"), ("token_budget", "assumed"), ("max_seqs", "observed")]
    {
        let line = text.lines().find(|l| l.starts_with(key)).unwrap();
        assert!(line.contains(says), "{line}");
    }
}

#[test]
fn a_budget_leaves_out_what_does_not_fit_and_names_it() {
    let mut bench = Bench::new(&built_in());
    let budget = Span::from_secs(30);
    let mut campaign = Campaign::new(Settings { budget: Some(budget), ..Settings::default() }).unwrap();
    while let Some(probe) = campaign.next(bench.now().since(crate::time::Tick::ZERO)).unwrap() {
        let trial = bench.play(&probe);
        campaign.observe(&trial).unwrap();
    }
    assert!(campaign.skipped().iter().any(|name| name.starts_with("grid-")), "{:?}", campaign.skipped());
    assert!(bench.now().since(crate::time::Tick::ZERO) < Span::from_secs(36), "{}", bench.now().as_nanos());
}

#[test]
fn a_server_that_answers_nothing_ends_the_campaign_with_its_own_words() {
    let mut campaign = Campaign::new(Settings::default()).unwrap();
    let probe = campaign.next(Span::ZERO).unwrap().unwrap();
    let failure = Some("http_error, HTTP 404".to_owned());
    let error = campaign.observe(&Trial { name: probe.name, failed: 4, failure, ..Trial::default() }).unwrap_err();
    assert!(error.to_string().contains("HTTP 404"), "{error}");
}

#[test]
fn what_is_out_of_range_is_refused() {
    let refuse = |settings: Settings| Campaign::new(settings).unwrap_err();
    assert_eq!(refuse(Settings { inputs: vec![64], ..Settings::default() }), SettingsError::Inputs);
    assert_eq!(refuse(Settings { inputs: vec![64, 64], ..Settings::default() }), SettingsError::Inputs);
    assert_eq!(refuse(Settings { outputs: vec![1], ..Settings::default() }), SettingsError::Outputs);
    assert_eq!(refuse(Settings { rounds: 0, ..Settings::default() }), SettingsError::Rounds);
    assert_eq!(refuse(Settings { max_concurrency: 0, ..Settings::default() }), SettingsError::Concurrency);
}

#[test]
fn answers_whose_events_hold_several_tokens_are_refused_with_the_reason() {
    let mut trials = measure(&mut Bench::new(&built_in()), Settings { max_concurrency: 1, ..Settings::quick() });
    for seen in trials.iter_mut().flat_map(|t| &mut t.seen) {
        seen.tokens = vec![seen.first(), seen.last()];
        seen.output = 9;
    }
    let error = Calibration::of(&trials, 1).unwrap_err();
    assert!(error.to_string().contains("an event of its own"), "{error}");
}
