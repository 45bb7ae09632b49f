use super::*;

/// The published admission study: goodput without and with a queue budget, and which ran first.
const GOODPUT: [(f64, f64, Side); 5] = [
    (1.37, 10.23, Side::Base),
    (1.70, 8.09, Side::Changed),
    (1.43, 9.68, Side::Base),
    (1.50, 8.79, Side::Changed),
    (1.35, 9.62, Side::Base),
];

fn pairs(kind: Kind, figures: impl IntoIterator<Item = (f64, f64, Option<Side>)>) -> Vec<Pair> {
    let pair = |(place, (base, changed, first)): (usize, (f64, f64, Option<Side>))| Pair {
        name: format!("pair {place}"),
        base: [(Figure::all(kind), base)].into(),
        changed: [(Figure::all(kind), changed)].into(),
        first,
    };
    figures.into_iter().enumerate().map(pair).collect()
}

fn of(kind: Kind, differences: &[f64]) -> Effects {
    let figures = differences.iter().map(|d| (0.5, 0.5 + d, None));
    Effects::of("old", "new", &pairs(kind, figures), &Question::of(Figure::all(kind)))
}

fn published() -> Effects {
    let figures = GOODPUT.map(|(base, changed, first)| (base, changed, Some(first)));
    Effects::of("control", "candidate", &pairs(Kind::Goodput, figures), &Question::of(Figure::all(Kind::Goodput)))
}

#[test]
fn the_published_goodput_is_better_with_its_published_interval() {
    let effects = published();
    let effect = &effects.effects[0];
    let round = |v: f64| (v * 100.0).round() / 100.0;
    assert_eq!(effect.difference.median.map(round), Some(8.25));
    for [low, high] in [
        effect.difference.interval.map(|i| [i.low, i.high]).unwrap(),
        effect.difference.bootstrap.map(|i| [i.low, i.high]).unwrap(),
    ] {
        assert_eq!([low, high].map(round), [6.39, 8.86]);
    }
    assert_eq!(effect.difference.interval.unwrap().confidence, 0.9375);
    assert_eq!((effects.verdict, effect.sign_p), (Verdict::Better, Some(0.0625)));
    let start = "candidate is better: goodput 9.62/s with candidate against 1.43/s with control: +8.25/s in the median \
        of 5 pairs (93.8% interval +6.39 to +8.86).";
    assert_eq!(effects.sentence, start);
}

#[test]
fn an_effect_that_goes_with_the_order_is_flagged() {
    let effects = published();
    // SciPy: ttest_ind([6.39, 7.29], [8.86, 8.25, 8.27]).
    let test = effects.effects[0].order.changed_first.unwrap();
    assert!((test.value - (6.84 - 8.46)).abs() < 1e-9 && (test.p - 0.031_431_504_4).abs() < 1e-9, "{test:?}");
    assert_eq!(effects.warnings.len(), 1, "{:?}", effects.warnings);
    assert!(effects.warnings[0].contains("1.62/s lower where candidate ran first (p = 0.0314)"));
}

#[test]
fn an_order_that_never_changes_is_said_to_hide_what_it_does() {
    let figures = GOODPUT.map(|(base, changed, _)| (base, changed, Some(Side::Base)));
    let effects = Effects::of("a", "b", &pairs(Kind::Goodput, figures), &Question::of(Figure::all(Kind::Goodput)));
    assert!(effects.warnings[0].contains("a ran first in every pair"), "{:?}", effects.warnings);
}

#[test]
fn a_drift_over_the_pairs_is_flagged() {
    let effects = of(Kind::Attainment, &[0.01, 0.035, 0.048, 0.071, 0.09, 0.11]);
    assert!(effects.warnings[0].contains("drifts: it grows by 2.0 points"), "{:?}", effects.warnings);
}

#[test]
fn the_verdict_follows_from_where_the_interval_lies() {
    let verdict = |kind, differences: &[f64]| of(kind, differences).verdict;
    let up = [0.05, 0.06, 0.04, 0.07, 0.05];
    let down = up.map(|d: f64| -d);
    assert_eq!([verdict(Kind::Attainment, &up), verdict(Kind::Attainment, &down)], [Verdict::Better, Verdict::Worse]);
    assert_eq!([verdict(Kind::Failed, &up), verdict(Kind::Failed, &down)], [Verdict::Worse, Verdict::Better]);
    // Within 2 points on either side, though never 0.
    assert_eq!(verdict(Kind::Attainment, &[0.01, 0.015, 0.012, 0.011, 0.019]), Verdict::NoDifference);
    assert_eq!(verdict(Kind::Attainment, &[0.0; 5]), Verdict::NoDifference);
    assert_eq!(verdict(Kind::Attainment, &[0.05, 0.06, -0.01, 0.07, 0.05]), Verdict::Undecided);
    // What is turned away may be what keeps the rest in time.
    let rejected = of(Kind::Rejected, &up);
    assert_eq!((rejected.verdict, rejected.effects[0].finding), (Verdict::Undecided, Finding::Higher));
    assert!(rejected.sentence.contains("neither better nor worse"), "{}", rejected.sentence);
}

#[test]
fn four_pairs_decide_nothing_and_say_what_is_missing() {
    let effects = of(Kind::Attainment, &[0.5, 0.51, 0.49, 0.5]);
    assert_eq!((effects.verdict, effects.effects[0].more), (Verdict::Undecided, Some(More::Pairs(1))));
    assert_eq!(effects.effects[0].detectable, None);
    assert!(effects.sentence.contains("Fewer than 5 pairs decide nothing"), "{}", effects.sentence);
    assert!(effects.sentence.contains("About 1 more pair would"), "{}", effects.sentence);
    let alone = of(Kind::Attainment, &[0.5]);
    assert_eq!((alone.effects[0].more, alone.effects[0].difference.interval), (Some(More::Pairs(4)), None));
    let nothing = of(Kind::Attainment, &[]);
    assert!(nothing.sentence.contains("nothing to compare"), "{}", nothing.sentence);
}

#[test]
fn what_is_undecided_says_how_many_more_pairs_would_decide() {
    // A median of 3 points with a deviation of about 6: shown by more pairs than there are.
    let effects = of(Kind::Attainment, &[0.03, -0.05, 0.11, 0.01, 0.05]);
    let Some(More::Pairs(more)) = effects.effects[0].more else { panic!("{effects:?}") };
    let deviation = effects.effects[0].deviation.unwrap();
    let all = more + 5;
    // The number at which an effect of this size is the smallest that shows, from the other side.
    let least = |n| elasticserve_core::stats::power::detectable(n, deviation, 0.95, 0.8).unwrap();
    assert!(least(all) <= 0.03 && least(all - 1) > 0.03, "{all}: {} {}", least(all), least(all - 1));
    // As good as nothing at the very margin takes more than anybody runs.
    let margin = of(Kind::Attainment, &[0.02, -0.48, 0.52, 0.02, 0.02, 0.3, -0.3]);
    assert_eq!(margin.effects[0].more, Some(More::MoreThan(993)));
}

#[test]
fn figures_are_told_over_the_pairs_that_have_them_on_both_sides() {
    let mut all = pairs(Kind::Goodput, GOODPUT.map(|(b, c, _)| (b, c, None)));
    all[0].base.insert(Figure::all(Kind::Jain), 0.7);
    all[1].base.insert(Figure::of("gold", Kind::Attainment), 0.5);
    all[1].changed.insert(Figure::of("gold", Kind::Attainment), 0.6);
    all[2].changed.remove(&Figure::all(Kind::Goodput));
    let effects = Effects::of("a", "b", &all, &Question::of(Figure::all(Kind::Goodput)));
    let told: Vec<(String, usize)> = effects.effects.iter().map(|e| (e.figure.to_string(), e.n)).collect();
    assert_eq!(told, [("goodput".to_owned(), 4), ("attainment[gold]".to_owned(), 1)]);
}

#[test]
fn what_is_zero_in_every_run_is_no_effect_unless_it_is_asked_about() {
    let mut all = pairs(Kind::Goodput, GOODPUT.map(|(b, c, _)| (b, c, None)));
    for pair in &mut all {
        pair.base.insert(Figure::all(Kind::Failed), 0.0);
        pair.changed.insert(Figure::all(Kind::Failed), 0.0);
    }
    let told = |all: &[Pair], kind| Effects::of("a", "b", all, &Question::of(Figure::all(kind))).effects.len();
    assert_eq!((told(&all, Kind::Goodput), told(&all, Kind::Failed)), (1, 2));
    all[4].changed.insert(Figure::all(Kind::Failed), 0.1);
    let effects = Effects::of("a", "b", &all, &Question::of(Figure::all(Kind::Goodput)));
    assert_eq!(effects.effect(&Figure::all(Kind::Failed)).map(|e| e.n), Some(5));
}

#[test]
fn a_ratio_is_told_only_where_every_side_without_is_above_zero() {
    let ratio = |base: f64| {
        let figures = [(base, 1.0, None), (2.0, 3.0, None), (4.0, 4.0, None)];
        let effects = Effects::of("a", "b", &pairs(Kind::Goodput, figures), &Question::of(Figure::all(Kind::Goodput)));
        effects.effects[0].ratio.and_then(|r| r.median)
    };
    assert_eq!((ratio(0.5), ratio(0.0)), (Some(1.5), None));
}

#[test]
fn the_json_tells_a_missing_figure_as_null() {
    let json = serde_json::to_value(of(Kind::Attainment, &[0.1])).unwrap();
    assert_eq!((&json["verdict"], &json["figure"]), (&"undecided".into(), &"attainment".into()));
    let effect = &json["effects"][0];
    assert!(effect["difference"]["interval"].is_null() && effect["deviation"].is_null(), "{effect}");
    assert_eq!(effect["more"], serde_json::json!({"pairs": 4}));
}
