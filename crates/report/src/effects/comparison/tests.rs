use std::sync::OnceLock;

use elasticserve_core::engine::Profile;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;

use super::*;
use crate::Run;
use crate::effects::{Figure, Kind, PairError, Verdict, pair};
use crate::fixture;

/// The published overload without and with the gateway, once: 32 and 128 of 200 good.
fn sides() -> &'static [Measured; 2] {
    static SIDES: OnceLock<[Measured; 2]> = OnceLock::new();
    SIDES.get_or_init(|| fixture::pair().map(|run| Measured::of("run", &run, None)))
}

/// The runs of a seed: their plan is told from others by it, and the side without the change ran first.
fn seeded(seed: u64) -> (Measured, Measured) {
    let [mut base, mut changed] = sides().clone();
    for (place, run) in [&mut base, &mut changed].into_iter().enumerate() {
        run.name = format!("seed{seed}");
        run.manifest.plan.seed = seed;
        run.manifest.plan_hash = format!("hash {seed}");
        run.manifest.started = Some(format!("2026-01-{seed:02}T00:0{place}:00.000Z"));
        run.manifest.metadata.insert("salt".into(), format!("{seed} {place}"));
    }
    (base, changed)
}

fn five() -> Paired {
    Paired { pairs: (1..=5).map(seeded).collect(), alone: Vec::new() }
}

fn compare(paired: &Paired, allow: &[&str]) -> Result<Comparison, Refused> {
    let allow: Vec<String> = allow.iter().map(|a| (*a).to_owned()).collect();
    Comparison::of("direct", "gateway", paired, &allow, &Question::of(Figure::all(Kind::Attainment)))
}

#[test]
fn pairs_of_one_plan_are_compared_in_the_order_in_which_they_ran() {
    let (mut base, mut changed): (Vec<_>, Vec<_>) = [3, 1, 2].map(seeded).into_iter().unzip();
    let (extra, _) = seeded(9);
    base.push(extra);
    changed.reverse();
    let paired = pair(base, changed, &[]).unwrap();
    let names: Vec<&str> = paired.pairs.iter().map(|(a, _)| a.name.as_str()).collect();
    assert_eq!((names, paired.alone.clone()), (vec!["seed1", "seed2", "seed3"], vec!["seed9".to_owned()]));
    let found = compare(&paired, &[]).unwrap();
    assert_eq!(found.effects.pairs, ["seed 1", "seed 2", "seed 3"]);
    assert_eq!(found.effects.first, [Some(Side::Base); 3]);
    let attainment = found.effects.effect(&Figure::all(Kind::Attainment)).unwrap();
    assert!(attainment.differences.iter().all(|d| (d - 0.48).abs() < 1e-12), "{attainment:?}");
    assert!(found.text().contains("no figure: seed9"), "{}", found.text());
}

#[test]
fn several_runs_of_one_plan_pair_in_the_order_in_which_they_ran() {
    let again = |run: &Measured, day: u32| {
        let mut run = run.clone();
        run.name = format!("day{day}");
        run.manifest.started = Some(format!("2026-02-{day:02}T00:00:00.000Z"));
        run
    };
    let (base, changed) = seeded(1);
    let paired = pair(vec![again(&base, 5), base], vec![again(&changed, 6), changed], &[]).unwrap();
    let names: Vec<_> = paired.pairs.iter().map(|(a, b)| (a.name.as_str(), b.name.as_str())).collect();
    assert_eq!(names, [("seed1", "seed1"), ("day5", "day6")]);
}

#[test]
fn where_the_clock_does_not_tell_the_order_the_place_does() {
    let placed = |seed, places: [u32; 2]| {
        let (mut base, mut changed) = seeded(seed);
        for (run, place) in [&mut base, &mut changed].into_iter().zip(places) {
            (run.manifest.started, run.place) = (None, Some(place));
        }
        (base, changed)
    };
    let (base, changed) = [placed(1, [3, 2]), placed(2, [0, 1])].into_iter().unzip();
    let found = compare(&pair(base, changed, &[]).unwrap(), &[]).unwrap();
    assert_eq!(found.effects.pairs, ["seed 2", "seed 1"]);
    assert_eq!(found.effects.first, [Some(Side::Base), Some(Side::Changed)]);
}

#[test]
fn named_pairs_are_those_and_no_others() {
    let (base, changed): (Vec<_>, Vec<_>) = (1..=3).map(seeded).unzip();
    let given = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        names.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    let paired = pair(base.clone(), changed.clone(), &given(&[("seed1", "seed2")])).unwrap();
    assert_eq!((paired.pairs.len(), paired.alone.len()), (1, 4));
    // They were offered different work.
    let refused = compare(&paired, &[]).unwrap_err().to_string();
    assert!(refused.contains("plan_hash: hash 1 against hash 2") && refused.contains("--allow plan_hash"), "{refused}");
    assert!(compare(&paired, &["plan_hash"]).is_ok());
    let error = |names| pair(base.clone(), changed.clone(), &given(names)).unwrap_err();
    assert_eq!(error(&[("seed1", "seed1"), ("seed1", "seed2")]), PairError::Twice("seed1".into()));
    let unknown = error(&[("seed1", "seed7")]).to_string();
    assert!(unknown.contains("'seed7'") && unknown.contains("seed1, seed2, seed3"), "{unknown}");
}

#[test]
fn what_differs_in_the_manifests_is_refused_with_both_values_unless_allowed() {
    type Change = fn(&mut elasticserve_core::ledger::Manifest);
    let changes: [(&str, &str, Change); 13] = [
        ("target.model", "small", |m| m.target.model = "small".into()),
        ("target.endpoint", "/v1/x", |m| m.target.endpoint = "/v1/x".into()),
        ("target.streaming", "true", |m| m.target.streaming = true),
        ("target.version", "0.22", |m| m.target.version = Some("0.22".into())),
        ("plan.tenants", "9 s", |m| m.plan.tenants[0].slo.e2e = Some(Span::from_secs(9))),
        ("simulated", "false", |m| m.simulated = false),
        ("time_scale", "4", |m| m.time_scale = 4.0),
        ("tool_version", "9.9", |m| m.tool_version = "9.9".into()),
        ("warmups", "7", |m| m.warmups = 7),
        ("prompts_salted", "false", |m| m.prompts_salted = false),
        ("timeouts", "ttft 5 s", |m| m.timeouts.ttft = Span::from_secs(5)),
        ("max_in_flight", "64", |m| m.max_in_flight = Some(64)),
        ("metadata.image_digest", "sha256:1", |m| {
            m.metadata.insert("image_digest".into(), "sha256:1".into());
        }),
    ];
    for (key, value, change) in changes {
        let mut paired = five();
        for (base, _) in &mut paired.pairs {
            base.manifest.target.version = Some("0.21".into());
        }
        for (_, changed) in &mut paired.pairs {
            changed.manifest.target.version = Some("0.21".into());
            change(&mut changed.manifest);
        }
        let refused = compare(&paired, &[]).expect_err(key).to_string();
        let said = refused.lines().find(|l| l.trim_start().starts_with(key)).unwrap_or_default();
        assert!(said.contains(value) && said.contains(" against "), "{key}: {refused}");
        assert_eq!(refused.lines().count(), 3, "{key}, once for five pairs: {refused}");
        let allowed = compare(&paired, &[key]).unwrap();
        let warning = allowed.effects.warnings.iter().find(|w| w.contains(key)).unwrap();
        assert!(warning.contains("as allowed") && warning.contains(value), "{warning}");
    }
}

#[test]
fn what_may_be_the_change_itself_is_shown_and_stands_against_nothing() {
    let mut paired = five();
    for (_, changed) in &mut paired.pairs {
        changed.manifest.target.url = "http://127.0.0.1:8080".into();
        changed.manifest.target.version = Some("0.21".into());
        changed.manifest.metadata.insert("policy".into(), "wfq".into());
    }
    let found = compare(&paired, &[]).unwrap();
    let keys: Vec<&str> = found.differences.iter().map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["metadata.policy", "target.url", "target.version"]);
    assert!(found.text().contains("metadata.policy"), "{}", found.text());
}

#[test]
fn pairs_that_were_measured_on_different_servers_are_refused() {
    let mut paired = five();
    let (base, changed) = &mut paired.pairs[3];
    for run in [base, changed] {
        run.manifest.target.model = "other".into();
    }
    let refused = compare(&paired, &[]).unwrap_err().to_string();
    assert!(refused.contains("target.model:  in seed1, other in seed4"), "{refused}");
    assert!(compare(&paired, &["target.model"]).is_ok());
}

#[test]
fn runs_that_are_not_valid_are_refused() {
    let [_, mut late] = fixture::pair();
    for row in &mut late.rows {
        row.send_started = Some(row.planned + Span::from_millis(50));
    }
    let mut paired = five();
    paired.pairs[1].1.invalid = Measured::of("run", &late, None).invalid;
    let refused = compare(&paired, &[]).unwrap_err().to_string();
    assert!(refused.contains("seed2 (gateway) is not valid: the p99 of the send lag"), "{refused}");
    assert!(refused.contains("--allow valid"), "{refused}");
    assert!(compare(&paired, &["valid"]).unwrap().effects.warnings.iter().any(|w| w.contains("seed2 (gateway)")));
    let [mut torn, _] = fixture::pair();
    torn.rows.pop();
    assert!(Measured::of("run", &torn, None).invalid[0].contains("rows are missing"));
}

#[test]
fn what_one_side_may_have_found_in_the_cache_is_flagged() {
    let warnings = |change: &dyn Fn(&mut Measured, &mut Measured)| {
        let mut paired = five();
        for (base, changed) in &mut paired.pairs {
            change(base, changed);
        }
        compare(&paired, &[]).unwrap().effects.warnings
    };
    let of = |said: &[String], what: &str| said.iter().any(|w| w.contains(what));
    let none = warnings(&|_, _| ());
    assert!(!of(&none, "cache gave") && !of(&none, "salt"), "{none:?}");
    let unsalted = warnings(&|a, b| (a.manifest.prompts_salted, b.manifest.prompts_salted) = (false, false));
    assert!(of(&unsalted, "Prompts are not salted in 5 pairs"), "{unsalted:?}");
    let shared = warnings(&|a, b| b.manifest.metadata = a.manifest.metadata.clone());
    assert!(of(&shared, "the same salt in 5 pairs"), "{shared:?}");
    let warm = warnings(&|a, b| (a.cached, b.cached) = (Some(0.02), Some(0.97)));
    assert!(of(&warm, "gave 2.0% of the prompt tokens of seed1 and 97.0% of seed1"), "{warm:?}");
    let alike = warnings(&|a, b| (a.cached, b.cached) = (Some(0.02), Some(0.05)));
    assert!(!of(&alike, "cache gave"), "{alike:?}");
}

/// Of two tenants the one's limit is below what 64 tokens take of an idle engine: 40 ms each, 2.5 s.
fn with_hopeless() -> [Run; 2] {
    ["direct", "gateway"].map(|name| {
        let mut run = fixture::simulated(name, name == "gateway", &[("gold", 1.0), ("batch", 1.0)]);
        run.manifest.plan.tenants[0].slo = Slo { e2e: Some(Span::from_secs(2)), ..Slo::default() };
        run
    })
}

#[test]
fn a_ceiling_tells_what_no_policy_could_have_served() {
    let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    let [base, changed] = with_hopeless().map(|run| Measured::of("run", &run, Some(&profile)));
    let [all, gold, batch] = base.ceilings.as_slice() else { panic!("{:?}", base.ceilings) };
    assert_eq!((all.planned, gold.feasible, batch.feasible), (200, 0, batch.planned));
    assert_eq!((all.feasible, all.good_beyond), (batch.planned, 0));
    let good = changed.values[&Figure::of("batch", Kind::Attainment)] * f64::from(batch.planned);
    let feasible = changed.values[&Figure::all(Kind::FeasibleAttainment)];
    assert!((feasible - good / f64::from(all.feasible)).abs() < 1e-12);
    assert!(!changed.values.contains_key(&Figure::of("gold", Kind::FeasibleAttainment)));
    let found = compare(&Paired { pairs: vec![(base, changed)], alone: vec![] }, &[]).unwrap();
    assert_eq!((found.ceilings[1].feasible, found.ceilings[1].range), (0, [0.0, 0.0]));
    assert!(found.text().contains("could have served in time"), "{}", found.text());
}

#[test]
fn a_profile_that_is_slower_than_the_engine_is_told() {
    let mut profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    profile.base_ms *= 6.0;
    let sides = fixture::pair().map(|run| Measured::of("run", &run, Some(&profile)));
    let [base, changed] = sides;
    let found = compare(&Paired { pairs: vec![(base, changed)], alone: vec![] }, &[]).unwrap();
    let said = found.effects.warnings.iter().find(|w| w.contains("slower than the engine was"));
    assert!(said.is_some_and(|w| w.starts_with("160 answers")), "{:?}", found.effects.warnings);
}

#[test]
fn text_and_document_tell_the_same_sentence_and_the_same_numbers() {
    let found = compare(&five(), &[]).unwrap();
    assert_eq!(found.effects.verdict, Verdict::Better);
    let (text, doc) = (found.text(), found.doc());
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.starts_with(&format!("BETTER: {}", found.effects.sentence)), "{text}");
    let (page, twin) = (doc.to_html(), doc.to_markdown());
    for told in ["16.0%", "64.0%", "+48.0 points", "no difference shown"] {
        assert!(page.contains(told) && twin.contains(told), "{told}: {twin}");
        assert!(told == "no difference shown" || text.contains(told), "{told}: {text}");
    }
    assert!(page.contains("<svg"));
}

#[test]
fn names_from_the_data_cannot_steer_a_terminal_or_a_page() {
    let mut paired = five();
    for (base, changed) in &mut paired.pairs {
        base.name = "<b>\u{1b}[2J".into();
        changed.manifest.metadata.insert("<i>\u{7}".into(), "<script>\n".into());
    }
    paired.alone = vec!["<u>\u{1b}".into()];
    let question = Question::of(Figure::all(Kind::Attainment));
    let found = Comparison::of("<a>\u{1b}", "<c>", &paired, &[], &question).unwrap();
    assert!(!found.text().chars().any(|c| c.is_control() && c != '\n'));
    let page = found.doc().to_html();
    assert!(!["<b>\u{fffd}", "<script>", "<u>", "<a>", "<c>", "<i>\u{fffd}"].iter().any(|tag| page.contains(tag)));
}
