use super::synthetic::Server;
use super::*;
use crate::rng::mix;

const TARGET: f64 = 0.95;
const ERROR: f64 = 0.025;
/// Three standard deviations of a share of 2.5 % seen in 1,000 repetitions are 1.5 points.
const TOLERATED: u32 = 40;

/// Of 1,000 repetitions with a look after each of up to `probes` probes, how many met and how many missed.
fn verdicts(server: Server, rate: f64, n: u32, probes: u32) -> (u32, u32) {
    let (mut met, mut missed) = (0, 0);
    for repetition in 0..1000 {
        let mut evidence = Evidence::new(TARGET, ERROR);
        for probe in 0..probes {
            evidence.add(Place::Here, server.probe(rate, n, mix(repetition, u64::from(probe))));
            match evidence.verdict() {
                Verdict::Open => continue,
                Verdict::Met => met += 1,
                Verdict::Missed => missed += 1,
            }
            break;
        }
    }
    (met, missed)
}

const QUICK: Server = Server::Queue { service: 10.0, limit: 1.0 };
const SLOW: Server = Server::Queue { service: 10.0, limit: 2.0 };
const ALONE: Server = Server::Independent { half: 10.0, steep: 20.0 };

#[test]
fn a_wrong_verdict_is_as_rare_as_stated_where_the_attainment_is_exactly_the_target() {
    for (name, server) in [("quick", QUICK), ("slow", SLOW), ("alone", ALONE)] {
        let (met, missed) = verdicts(server, server.knee(TARGET), 200, 60);
        assert!(met <= TOLERATED && missed <= TOLERATED, "{name}: {met} met and {missed} missed of 1000");
    }
}

#[test]
fn rates_a_fifth_from_the_knee_are_told_right() {
    for (name, server) in [("quick", QUICK), ("slow", SLOW), ("alone", ALONE)] {
        let knee = server.knee(TARGET);
        let (met, missed) = verdicts(server, knee * 0.75, 200, 60);
        assert!(met >= 950 && missed == 0, "{name} below: {met} met, {missed} missed");
        let (met, missed) = verdicts(server, knee * 1.2, 200, 60);
        assert!(missed >= 990 && met == 0, "{name} above: {met} met, {missed} missed");
    }
}

fn spec() -> Spec {
    Spec {
        targets: vec![TARGET],
        error: ERROR,
        start: 1.0,
        lowest: 0.01,
        highest: 1000.0,
        growth: 2.0,
        precision: 0.03,
        allowance: 8,
        probes: 400,
    }
}

fn searched(server: Server, spec: Spec, n: u32, seed: u64) -> Search {
    let mut search = Search::new(spec);
    while let Some(probe) = search.next_probe() {
        search.observe(probe.rate, &[server.probe(probe.rate, n, mix(seed, u64::from(probe.number)))]);
    }
    search
}

/// Of so many searches, how many intervals hold the knee and how many are as narrow as was asked for.
fn covered(server: Server, n: u32, searches: u64) -> (usize, usize) {
    let knee = server.knee(TARGET);
    let answers: Vec<Answer> = (0..searches).map(|seed| searched(server, spec(), n, seed).answer()).collect();
    let holds = |a: &&Answer| a.met.is_none_or(|met| met <= knee) && a.missed.is_none_or(|missed| knee <= missed);
    (answers.iter().filter(holds).count(), answers.iter().filter(|a| a.unresolved.is_none()).count())
}

#[test]
fn the_interval_holds_the_knee_as_often_as_its_confidence_says() {
    let (held, narrow) = covered(ALONE, 200, 1000);
    assert!(held >= 950 && narrow >= 950, "{held} hold the knee, {narrow} are narrow");
    // Neighbours that share their fate make 400 probes of 200 too few for 3 %: the interval is wide, and right.
    let (held, narrow) = covered(QUICK, 200, 200);
    assert!(held >= 190 && narrow == 0, "{held} hold the knee, {narrow} are narrow");
}

#[test]
fn too_few_arrivals_leave_it_open_and_say_where() {
    let search = searched(QUICK, Spec { probes: 6, ..spec() }, 20, 1);
    let answer = search.answer();
    assert_eq!((answer.met, answer.missed), (None, None));
    assert_eq!(answer.unresolved, Some(Unresolved::OutOfProbes { open: Some(1.0) }));
}

#[test]
fn a_server_that_is_good_or_bad_at_every_rate_has_no_knee_between_the_bounds() {
    let fixed = |hits: u64, spec: Spec| {
        let mut search = Search::new(spec);
        while let Some(probe) = search.next_probe() {
            search.observe(probe.rate, &[Trial { hits, n: 200, run_length: 1.0 }]);
        }
        search.answer()
    };
    let good = fixed(200, Spec { highest: 20.0, ..spec() });
    assert_eq!((good.met, good.missed, good.unresolved), (Some(20.0), None, Some(Unresolved::MetAtHighest)));
    let bad = fixed(0, Spec { lowest: 0.3, ..spec() });
    assert_eq!((bad.met, bad.missed, bad.unresolved), (None, Some(0.3), Some(Unresolved::MissedAtLowest)));
}

fn certain(search: &mut Search, rate: f64, hits: u64) {
    (0..4).for_each(|_| search.observe(rate, &[Trial { hits, n: 1000, run_length: 1.0 }]));
}

#[test]
fn a_rate_that_meets_above_one_that_misses_is_no_knee() {
    let mut search = Search::new(spec());
    certain(&mut search, 4.0, 1000);
    certain(&mut search, 8.0, 300);
    certain(&mut search, 16.0, 1000);
    let answer = search.answer();
    assert_eq!((answer.met, answer.missed), (Some(4.0), Some(8.0)));
    assert_eq!(answer.unresolved, Some(Unresolved::NotMonotone { missed: 8.0, met: 16.0 }));
    assert_eq!(search.next_probe(), None);
}

#[test]
fn one_target_that_is_missed_is_enough_and_all_must_be_met() {
    let mut search = Search::new(Spec { targets: vec![0.95, 0.5], ..spec() });
    let trial = |hits| Trial { hits, n: 1000, run_length: 1.0 };
    (0..4).for_each(|_| search.observe(4.0, &[trial(1000), trial(1000)]));
    (0..12).for_each(|_| search.observe(8.0, &[trial(1000), trial(100)]));
    (0..4).for_each(|_| search.observe(6.0, &[trial(1000), trial(500)]));
    let verdicts: Vec<Verdict> = search.tested().iter().map(|t| t.verdict).collect();
    assert_eq!(verdicts, [Verdict::Met, Verdict::Open, Verdict::Missed]);
}

#[test]
fn probes_that_the_generator_spoilt_are_made_again_and_end_the_search_if_there_is_no_other() {
    let mut search = Search::new(spec());
    let first = search.next_probe().unwrap();
    search.observe_invalid(first.rate);
    let again = search.next_probe().unwrap();
    assert_eq!((again.rate, again.number), (first.rate, 1));
    search.observe(again.rate, &[Trial { hits: 10, n: 10, run_length: 1.0 }]);
    (0..MAX_INVALID).for_each(|_| search.observe_invalid(first.rate));
    assert_eq!(search.next_probe(), None);
    assert_eq!(search.answer().unresolved, Some(Unresolved::Stopped(Stop::Generator(1.0))));
}

#[test]
fn a_probe_is_hopeless_at_half_the_target_or_where_it_decides() {
    let mut search = Search::new(spec());
    assert_eq!(search.hopeless(8.0), TARGET / 2.0);
    (0..2).for_each(|_| search.observe(8.0, &[Trial::cut_short(200, 110)]));
    let share = search.hopeless(8.0);
    assert!(share > 0.6 && share < TARGET, "{share}");
    // A probe of that share makes it a miss, one that is a little better does not.
    let evidence = &search.at(8.0).unwrap().evidence[0];
    assert!(evidence.would_miss(share) && !evidence.would_miss(share + 1e-6));
    search.observe(8.0, &[Trial::cut_short(1000, 1000 - (share * 1000.0) as u64)]);
    assert_eq!(search.at(8.0).unwrap().verdict, Verdict::Missed);
}

#[test]
fn probes_of_a_rate_just_above_help_to_show_that_this_one_meets_and_never_that_it_misses() {
    let trial = |hits| Trial { hits, n: 200, run_length: 4.0 };
    let verdict = |place, hits, probes| {
        let mut evidence = Evidence::new(TARGET, ERROR);
        (0..probes).for_each(|_| evidence.add(place, trial(hits)));
        evidence.verdict()
    };
    for probes in [1, 10, 100] {
        assert_ne!(verdict(Place::Above, 0, probes), Verdict::Missed);
        assert_ne!(verdict(Place::Below, 200, probes), Verdict::Met);
    }
    assert_eq!((verdict(Place::Above, 200, 10), verdict(Place::Below, 0, 10)), (Verdict::Met, Verdict::Missed));
}

#[test]
fn the_same_observations_give_the_same_proposals() {
    let rates = |_| -> Vec<f64> { searched(QUICK, spec(), 100, 3).tested().iter().map(|t| t.rate).collect() };
    assert_eq!(rates(1), rates(2));
}

#[test]
fn rates_have_four_digits() {
    assert_eq!(
        [round(8.485281), round(1234.5678), round(0.0123456), round(123456.0)],
        [8.485, 1235.0, 0.01235, 123500.0]
    );
}
