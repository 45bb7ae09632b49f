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
            evidence.add(server.probe(rate, n, mix(repetition, u64::from(probe))));
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
        println!("{name}: {met} {missed}");
    }
}

fn spec() -> Spec {
    Spec { targets: vec![TARGET], error: ERROR, start: 1.0, lowest: 0.01, highest: 1000.0, growth: 2.0, precision: 0.03, allowance: 8, probes: 400 }
}

fn search(server: Server, spec: Spec, n: u32, seed: u64) -> Search {
    let mut search = Search::new(spec);
    while let Some(probe) = search.next_probe() {
        search.observe(probe.rate, &[server.probe(probe.rate, n, mix(seed, u64::from(probe.number)))]);
    }
    search
}

#[test]
fn explore() {
    for (name, server, n) in [("quick", QUICK, 200), ("quick", QUICK, 1000), ("alone", ALONE, 200)] {
        let knee = server.knee(TARGET);
        for seed in 0..8 {
            let s = search(server, spec(), n, seed);
            let made: u32 = s.tested().iter().map(|t| t.probes()).sum();
            println!("{name} {n}: knee {knee:.3} {:?} probes {made}", s.answer());
            if seed == 0 { for t in s.tested() { println!("   {} {:?} {} {:.3} counts {:.0}", t.rate, t.verdict, t.probes(), t.evidence[0].share().unwrap(), t.evidence[0].counts_as()); } }
        }
    }
}
