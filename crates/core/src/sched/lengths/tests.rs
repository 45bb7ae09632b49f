use std::collections::BTreeMap;

use super::curve::{BUCKETS, before, longest};
use super::*;
use crate::ids::TenantId;
use crate::rng::{Random, Stream};

#[test]
fn buckets_divide_all_lengths_and_none_is_wide() {
    let mut last = 0;
    for length in 1..=longest() {
        let b = bucket(length);
        assert!(b == last || b == last + 1, "{length}");
        assert!(before(b) < length && length <= before(b + 1), "{length}");
        let width = before(b + 1) - before(b);
        assert!(width == 1 || f64::from(width) / f64::from(before(b)) <= 1.0 / 16.0, "{length}");
        last = b;
    }
    assert_eq!((last, bucket(u32::MAX), bucket(0)), (BUCKETS - 1, BUCKETS - 1, 0));
}

/// Weeks in remission of 21 patients under 6-mercaptopurine (Freireich and others 1963), the standard example of
/// Kaplan and Meier's estimate; true where the end was seen.
const REMISSION: [(u32, bool); 21] = [
    (6, true),
    (6, true),
    (6, true),
    (6, false),
    (7, true),
    (9, false),
    (10, true),
    (10, false),
    (11, false),
    (13, true),
    (16, true),
    (17, false),
    (19, false),
    (20, false),
    (22, true),
    (23, true),
    (25, false),
    (32, false),
    (32, false),
    (34, false),
    (35, false),
];

#[test]
fn the_estimate_is_that_of_kaplan_and_meier_where_there_is_much_to_go_by() {
    let mut samples = Samples::default();
    for _ in 0..97 {
        REMISSION.iter().for_each(|&(weeks, ended)| samples.add(weeks, ended));
    }
    let curve = Curve::estimate(&samples, &Curve::prior());
    let published = [(6, 0.857), (7, 0.807), (10, 0.753), (13, 0.690), (16, 0.627), (22, 0.538), (23, 0.448)];
    for (weeks, survival) in published {
        let estimate = curve.longer_than(weeks);
        assert!((estimate - survival).abs() < 0.01, "{weeks}: {estimate}, not {survival}");
    }
    assert_eq!(curve.quantile(0.5), 23);
}

#[test]
fn running_answers_count_as_cut_where_they_are() {
    let (mut cut, mut running) = (Samples::default(), Samples::default());
    for (n, length) in (0..200).zip([40, 90, 150, 220].into_iter().cycle()) {
        cut.add(60 + n % 9, true);
        running.add(60 + n % 9, true);
        cut.add(length, false);
        running.moved(None, Some(bucket(length)));
    }
    let of = |samples: &Samples| Curve::estimate(samples, &Curve::prior()).mean();
    assert!((of(&cut) - of(&running)).abs() < 1e-9, "{} {}", of(&cut), of(&running));
    running.moved(Some(bucket(220)), None);
    assert!(of(&running) < of(&cut));
}

#[test]
fn a_curve_agrees_with_its_own_sums() {
    let mut random = Random::new(3, Stream::Test);
    let mut samples = Samples::default();
    for _ in 0..300 {
        samples.add(random.between(1, 3_000) as u32, random.between(0, 3) > 0);
    }
    let curve = Curve::estimate(&samples, &Curve::prior());
    let mut sum = 0.0;
    for k in 0..20_000u32 {
        assert!((curve.mean_within(k) - sum).abs() < 1e-6 * (1.0 + sum), "{k}: {} {sum}", curve.mean_within(k));
        sum += curve.longer_than(k);
        assert!(curve.longer_than(k) >= curve.longer_than(k + 1));
    }
    for share in [0.0, 0.01, 0.1, 0.4, 0.5, 0.9, 0.99] {
        let k = curve.quantile(share);
        assert!(1.0 - curve.longer_than(k) >= share - 1e-9, "{share}");
        assert!(k == 1 || 1.0 - curve.longer_than(k - 1) < share + 1e-9, "{share}");
    }
}

#[test]
fn a_declared_length_is_a_distribution_with_one_step() {
    let length = Length::Declared(70);
    assert_eq!((length.within(69), length.within(70), length.mean()), (0.0, 1.0, 70));
    assert_eq!((length.mean_within(20), length.mean_within(200)), (20.0, 70.0));
    assert_eq!(
        (length.quantile(0.0), length.quantile(0.4), length.few_after(30), length.few_after(90)),
        (70, 70, 40, 1)
    );
}

fn end(lengths: &mut Lengths, lane: usize, hint: Option<u32>, length: u32) {
    let tracked = lengths.started(lane, hint);
    lengths.ended(&tracked, length, true);
}

#[test]
fn a_tenant_leans_on_all_until_it_has_answers_of_its_own_and_a_hint_on_its_tenant() {
    let mut lengths = Lengths::new();
    let mean = |lengths: &Lengths, lane, hint| lengths.of(lane, None, hint).mean();
    assert!((240..=256).contains(&mean(&lengths, 0, None)), "the prior: {}", mean(&lengths, 0, None));
    lengths.ask(0, None);
    for _ in 0..400 {
        end(&mut lengths, 0, None, 100);
    }
    lengths.ask(1, None);
    let near = |value: u32, to: u32| value.abs_diff(to) <= to / 8;
    assert!(near(mean(&lengths, 1, None), 100), "what is new goes by all: {}", mean(&lengths, 1, None));
    for _ in 0..200 {
        end(&mut lengths, 1, None, 500);
    }
    assert!(near(mean(&lengths, 1, None), 500) && near(mean(&lengths, 0, None), 100));
    // A hint is taken for a bound until answers with it say otherwise.
    lengths.ask(1, Some(64));
    assert!(mean(&lengths, 1, Some(64)) <= 64);
    assert!(near(mean(&lengths, 1, Some(4_000)), 500), "a hint that was never seen goes by the tenant");
    for _ in 0..400 {
        end(&mut lengths, 1, Some(64), 300);
    }
    assert!(near(mean(&lengths, 1, Some(64)), 300), "{}", mean(&lengths, 1, Some(64)));
    assert_eq!(lengths.of(1, Some(9), Some(64)).mean(), 9, "what is declared holds");
}

#[test]
fn leaving_out_what_is_cut_would_make_answers_look_short() {
    let mut random = Random::new(8, Stream::Test);
    let (mut lengths, mut finished_only) = (Lengths::new(), Lengths::new());
    for lengths in [&mut lengths, &mut finished_only] {
        lengths.ask(0, None);
    }
    for _ in 0..2_000 {
        // Uniform lengths with a mean of 200.5, cut at 200.
        let length = random.between(1, 400) as u32;
        let tracked = lengths.started(0, None);
        lengths.ended(&tracked, length.min(200), length <= 200);
        if length <= 200 {
            end(&mut finished_only, 0, None, length);
        }
    }
    let half = |lengths: &Lengths| lengths.of(0, None, None).quantile(0.4);
    assert!(half(&lengths).abs_diff(160) < 12, "{}", half(&lengths));
    assert!(half(&finished_only) < 100, "{}", half(&finished_only));
}

#[test]
fn what_is_kept_is_bounded_whatever_comes() {
    let mut random = Random::new(4, Stream::Test);
    let mut lengths = Lengths::new();
    let mut running = Vec::new();
    for n in 0..30_000 {
        let (lane, hint) = (random.between(0, 9_000) as usize, Some(random.next_u64() as u32));
        lengths.ask(lane, hint);
        let mut tracked = lengths.started(lane, hint);
        lengths.seen(&mut tracked, n);
        running.push((tracked, n));
        if running.len() > 50 {
            let (tracked, seen) = running.swap_remove(random.between(0, 49) as usize);
            lengths.ended(&tracked, seen, n % 2 == 0);
        }
    }
    let hints: usize = lengths.tenants.values().map(|t| t.hints.len()).sum();
    assert_eq!((lengths.tenants.len(), hints), (MAX_TENANTS, MAX_HINTS_IN_ALL));
    assert_eq!(lengths.hints, hints);
    assert!(lengths.tenants.values().all(|t| t.hints.len() <= MAX_HINTS));
    assert!(lengths.all.samples.weight <= curve::MEMORY);
}

#[test]
fn many_hints_push_out_those_with_few_samples_only() {
    let mut lengths = Lengths::new();
    lengths.ask(0, Some(7_000));
    for _ in 0..20 {
        end(&mut lengths, 0, Some(7_000), 50);
    }
    for hint in 0..1_000 {
        lengths.ask(0, Some(hint));
    }
    assert!(lengths.tenants[&0].hints.contains_key(&7_000));
}

/// Lengths of two tenants, one of them with hints.
fn learned() -> Lengths {
    let mut random = Random::new(6, Stream::Test);
    let mut lengths = Lengths::new();
    for n in 0..3_000 {
        let (lane, hint) = ((n % 2) as usize, Some(256).filter(|_| n % 4 == 0));
        lengths.ask(lane, hint);
        let tracked = lengths.started(lane, hint);
        lengths.ended(&tracked, random.between(1, 5_000) as u32, n % 5 > 0);
    }
    lengths
}

#[test]
fn what_was_learned_survives_in_a_stable_text() {
    let lengths = learned();
    let name = |t: TenantId| Some(format!("tenant-{}", t.0));
    let text = serde_json::to_string(&lengths.learned(name)).unwrap();
    let kept: Learned = serde_json::from_str(&text).unwrap();
    let mut restored = Lengths::new();
    let place = |name: &str| name.strip_prefix("tenant-")?.parse().ok();
    restored.restore(&kept, place).unwrap();
    assert!(serde_json::to_string(&restored.learned(name)).unwrap() == text);
    let counts = |lengths: &Lengths, lane| lengths.summary(lane).map(|s| (s.finished, s.cut));
    assert_eq!(counts(&restored, 0), Some((1_200, 300)));
    for (lane, hint) in [(0, None), (0, Some(256)), (1, None), (5, None)] {
        let of = |lengths: &Lengths| lengths.of(lane, None, hint).mean();
        assert!(of(&restored).abs_diff(of(&lengths)) <= of(&lengths) / 20, "{lane} {hint:?}");
    }
    // A tenant that is gone is left out, and its name may be another's place.
    let mut moved = Lengths::new();
    moved.restore(&kept, |name| (name == "tenant-1").then_some(7)).unwrap();
    assert_eq!((counts(&moved, 7), moved.tenants.len()), (counts(&lengths, 1), 1));
}

#[test]
fn a_state_that_is_wrong_is_refused_with_the_reason_and_changes_nothing() {
    let mut lengths = learned();
    let name = |t: TenantId| Some(format!("tenant-{}", t.0));
    let text = serde_json::to_string(&lengths.learned(name)).unwrap();
    let many: BTreeMap<u32, ()> = (0..17).map(|n| (n, ())).collect();
    let hints = many.keys().map(|n| format!("\"{n}\":{{\"finished\":[],\"cut\":[],\"seen\":[0,0]}}"));
    let hints = format!("\"hints\":{{{}}}", hints.collect::<Vec<_>>().join(","));
    for (from, to, says) in [
        ("\"version\":1", "\"version\":2", "version 2 of the learned lengths is not known"),
        ("\"finished\":[[", "\"finished\":[[0,1.0],[", "lengths must rise"),
        ("\"finished\":[[", "\"finished\":[[99999999,1.0],[", "lengths must rise"),
        ("\"cut\":[[", "\"cut\":[[1,-1.0],[", "counts must be above 0"),
        ("\"cut\":[[", "\"cut\":[[1,9999.0],[", "2048 at most"),
        ("\"hints\":{", &format!("{hints},\"x\":{{"), "unknown field"),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert!(wrong != text, "{from} is not there");
        let error = match serde_json::from_str::<Learned>(&wrong) {
            Ok(kept) => lengths.restore(&kept, |_| Some(0)).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(says), "{to}: {error}");
    }
    assert!(serde_json::to_string(&lengths.learned(name)).unwrap() == text);
}
