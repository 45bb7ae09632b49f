use super::*;

fn spec() -> PlanSpec {
    PlanSpec {
        seed: 7,
        process: ArrivalProcess::Poisson { rate: 16.0 },
        extent: Extent::Count(200),
        input: Lengths::fixed(256),
        output: Lengths::around(64, 0.5),
        tenants: vec![
            PlanTenant { name: "a".into(), share: 1.0, slo: Slo::default() },
            PlanTenant { name: "b".into(), share: 3.0, slo: Slo::default() },
        ],
    }
}

#[test]
fn a_plan_read_back_is_the_same_plan() {
    let plan = Plan::generate(&spec()).unwrap();
    let again = Plan::from_ndjson(&plan.to_ndjson()).unwrap();
    assert_eq!(plan, again);
    assert_eq!(plan.hash(), again.hash());
}

#[test]
fn a_seed_gives_one_plan_and_another_seed_another() {
    let plan = Plan::generate(&spec()).unwrap();
    assert_eq!(plan.hash(), Plan::generate(&spec()).unwrap().hash());
    let other = Plan::generate(&PlanSpec { seed: 8, ..spec() }).unwrap();
    assert_ne!(plan.hash(), other.hash());
}

#[test]
fn a_counted_poisson_plan_ends_at_count_over_rate() {
    let plan = Plan::generate(&spec()).unwrap();
    assert_eq!(plan.arrivals().last().unwrap().at, Span::from_millis(12_500));
    assert_eq!(plan.header().window, Span::from_millis(12_500));
}

#[test]
fn poisson_gaps_pass_a_kolmogorov_smirnov_test() {
    for rate in [10.0, 1000.0] {
        let n = 20_000u32;
        let process = ArrivalProcess::Poisson { rate };
        let plan = Plan::generate(&PlanSpec { process, extent: Extent::Count(n), ..spec() }).unwrap();
        let mut gaps: Vec<f64> =
            plan.arrivals().windows(2).map(|w| (w[1].at.saturating_sub(w[0].at)).as_secs_f64()).collect();
        gaps.sort_by(f64::total_cmp);
        let m = gaps.len() as f64;
        let distance = (0u32..).zip(&gaps).map(|(i, gap)| {
            let cdf = 1.0 - libm::exp(-gap * rate);
            (cdf - f64::from(i) / m).abs().max((cdf - f64::from(i + 1) / m).abs())
        });
        // Kolmogorov's critical value at the level 0.001.
        let critical = 1.949 / m.sqrt();
        assert!(distance.fold(0.0, f64::max) < critical, "rate {rate}");
    }
}

#[test]
fn shares_and_lengths_are_what_was_asked() {
    let plan = Plan::generate(&PlanSpec { extent: Extent::Count(20_000), ..spec() }).unwrap();
    let b = plan.arrivals().iter().filter(|a| a.tenant == 1).count() as f64 / 20_000.0;
    assert!((b - 0.75).abs() < 0.0124, "{b}"); // four standard errors
    assert!(plan.arrivals().iter().all(|a| (32..=96).contains(&a.output)));
    let mean = plan.arrivals().iter().map(|a| f64::from(a.output)).sum::<f64>() / 20_000.0;
    assert!((mean - 64.0).abs() < 0.54, "{mean}");
}

#[test]
fn faster_time_scales_arrivals_window_and_slo_alike() {
    let mut spec = spec();
    spec.tenants[0].slo.ttft = Some(Span::from_millis(1000));
    let plan = Plan::generate(&spec).unwrap();
    let fast = plan.sped_up(4.0);
    assert_eq!(fast.header().window, Span::from_millis(3125));
    assert_eq!(fast.header().process.rate(), 64.0);
    assert_eq!(fast.header().tenants[0].slo.ttft, Some(Span::from_millis(250)));
    assert_eq!(fast.arrivals().last().unwrap().at, Span::from_millis(3125));
}

#[test]
fn a_bad_plan_is_refused_with_the_reason() {
    let rate = PlanSpec { process: ArrivalProcess::Poisson { rate: 0.0 }, ..spec() };
    assert!(Plan::generate(&rate).unwrap_err().to_string().contains("request rate"));
    let input = PlanSpec { input: Lengths::fixed(0), ..spec() };
    assert!(Plan::generate(&input).unwrap_err().to_string().contains("input"));
    let text = Plan::generate(&spec()).unwrap().to_ndjson();
    let cut: String = text.lines().take(100).map(|l| format!("{l}\n")).collect();
    assert!(Plan::from_ndjson(&cut).unwrap_err().to_string().contains("99 arrivals"));
    assert!(Plan::from_ndjson("").unwrap_err().to_string().contains("line 1"));
}
