use super::*;
use crate::sched::Order;
use crate::sim::reproduce::Published;
use crate::time::Span;

fn profile() -> Profile {
    Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
}

fn simulated() -> [Table; 3] {
    let published = Published::built_in().unwrap();
    let cold = Workload::fixed(&published, Cache::Cold).unwrap();
    let warm = Workload::fixed(&published, Cache::Warm).unwrap();
    let all = tables(Workload::tenants(&published).unwrap(), cold, warm, Vec::new());
    let table = |(workload, policies): &Compared| Table {
        workload: workload.name.clone(),
        rows: policies.iter().map(|(policy, expected)| row(workload, policy, *expected)).collect(),
    };
    let tables: Vec<Table> = all.iter().map(table).collect();
    tables.try_into().unwrap()
}

fn row(workload: &Workload, policy: &Policy, expected: Option<Expected>) -> Row {
    let run = |(seed, plan): &(u64, Plan)| (*seed, measure(plan, &setup(workload, plan, &profile(), policy)).unwrap());
    Row { policy: *policy, expected, seeds: workload.plans.iter().map(run).collect() }
}

#[test]
fn every_bar_is_there_and_holds_with_nothing_tuned_to_a_workload() {
    let [tenants, cold, warm] = simulated();
    let all = bars(&tenants, &cold, &warm, Some(0.684));
    assert_eq!(all.len(), 34);
    assert!(all.iter().all(|bar| bar.ok), "{:#?}", all.iter().filter(|bar| !bar.ok).collect::<Vec<_>>());
}

#[test]
fn a_policy_that_does_worse_breaks_its_bars() {
    let [mut tenants, cold, warm] = simulated();
    let open = tenants.mean_of(&Policy::new(Order::Fcfs, Admission::None)).unwrap();
    let plain = Policy::new(Order::LeastSlack, Admission::Predict);
    for row in tenants.rows.iter_mut().filter(|row| row.policy == plain) {
        row.seeds = vec![(0, open.clone())];
    }
    let broken: Vec<Bar> = bars(&tenants, &cold, &warm, Some(0.684)).into_iter().filter(|bar| !bar.ok).collect();
    assert_eq!(broken.len(), 3, "{broken:#?}");
    assert!(broken.iter().all(|bar| bar.name.starts_with("least-slack + predict:")));
}

#[test]
fn learned_lengths_beat_a_budget_and_cutting_what_is_late_helps() {
    let workload = Workload::tenants(&Published::built_in().unwrap()).unwrap();
    let of = |policy: Policy| row(&workload, &policy, None).mean().unwrap().attainment;
    let unknown = Policy::new(Order::Value, Admission::Predict).unweighted().knowing(crate::sim::Declares::None);
    let budget = Policy::new(Order::Fcfs, Admission::Budget(Span::from_millis(750)));
    assert!(of(unknown) > of(budget) + 0.1, "{} {}", of(unknown), of(budget));
    assert!(of(unknown.aborting()) > of(unknown), "{}", of(unknown.aborting()));
}

#[test]
fn a_search_in_hindsight_repeats_and_finds_no_less_than_the_rule() {
    let workload = Workload::tenants(&Published::built_in().unwrap()).unwrap();
    let (seed, plan) = &workload.plans[0];
    let policy = Policy::new(Order::LeastSlack, Admission::Predict);
    let rule = measure(plan, &setup(&workload, plan, &profile(), &policy)).unwrap();
    let few = search(&workload, plan, &profile(), *seed, 20).unwrap();
    let many = search(&workload, plan, &profile(), *seed, 200).unwrap();
    assert_eq!(many, search(&workload, plan, &profile(), *seed, 200).unwrap());
    assert!(rule.attainment <= few.attainment && few.attainment <= many.attainment, "{rule:?} {few:?} {many:?}");
    assert_eq!(many.tried, 200);
}

#[test]
fn a_conversation_is_offered_at_twice_of_what_the_engine_completes() {
    let line = |i: u64| format!("2023-11-16 18:15:{:02}.0000000,{},{}\n", i / 10 % 60, 500 + i, 100 + i % 50);
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n".to_owned() + &(0..400).map(line).collect::<String>();
    let published = Published::built_in().unwrap();
    let workload = Workload::conversation(&text, &published, &profile()).unwrap();
    let plan = &workload.plans[0].1;
    let open = Policy::new(Order::Fcfs, Admission::None);
    let deep = Workload { depth: 400, ..workload.clone() };
    let mut last = Span::ZERO;
    run(plan, &setup(&deep, plan, &profile(), &open), |row| {
        last = last.max(row.end.map_or(Span::ZERO, |end| end.since(Tick::ZERO)));
    })
    .unwrap();
    // Twice the capacity: it takes twice the window to work off.
    let ratio = last.as_secs_f64() / plan.header().window.unwrap().as_secs_f64();
    assert!((1.9..2.2).contains(&ratio), "{ratio}");
    let of = |k: u16| plan.arrivals().iter().filter(|a| a.tenant == k).count();
    assert!((50..110).contains(&of(0)) && (160..240).contains(&of(1)), "{} {} {}", of(0), of(1), of(2));
}

#[test]
fn attainment_at_equal_fairness_lies_between_its_neighbours() {
    let outcome = |attainment, jain| Outcome {
        attainment,
        goodput: 0.0,
        jain: Some(jain),
        lowest: None,
        missed: 0.0,
        at_arrival: None,
        tenants: Vec::new(),
        refused: 0.0,
    };
    let means = [outcome(0.66, 0.8), outcome(0.62, 0.9), outcome(0.58, 0.92)];
    assert!((Front::attainment_at(&means, 0.85).unwrap() - 0.64).abs() < 1e-12);
    assert_eq!(Front::attainment_at(&means, 0.95), None);
}
