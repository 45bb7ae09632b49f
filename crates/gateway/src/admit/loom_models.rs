//! Admission in every order of its threads, as far as the locks tell orders apart: `scripts/loom`.
//!
//! Each model also names the endings that must occur in some order, so that none can hold for want of a race.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use elasticserve_core::outcome::How;
use elasticserve_core::sched::{TenantPolicy, Used};
use elasticserve_core::slo::Slo;
use loom::future::block_on;
use loom::thread;

use super::*;
use crate::sync::model_time;

/// How long the requests that may expire will wait.
const BUDGET: Span = Span::from_nanos(10);
const LATER: Span = Span::from_nanos(11);

#[test]
fn a_waiter_that_leaves_while_it_is_granted_loses_no_permit() {
    let endings = explore("grant, leave", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer::default()).unwrap();
        let releasing = thread::spawn(move || finish(first));
        let leaving = thread::spawn(move || drop(waiting));
        releasing.join().unwrap();
        leaving.join().unwrap();
        at_rest(&admission)
    });
    assert_eq!(endings, told(["cancelled 1, finished 1", "client_gone 1, finished 1"]));
}

#[test]
fn a_waiter_that_looks_for_its_answer_and_leaves_loses_no_permit() {
    let endings = explore("grant, look and leave", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer::default()).unwrap();
        let releasing = thread::spawn(move || finish(first));
        let leaving = thread::spawn(move || {
            if let Poll::Ready(answer) = pin!(waiting.answer()).poll(&mut Context::from_waker(Waker::noop())) {
                finish(answer.unwrap());
            }
        });
        releasing.join().unwrap();
        leaving.join().unwrap();
        at_rest(&admission)
    });
    assert_eq!(endings, told(["cancelled 1, finished 1", "client_gone 1, finished 1", "finished 2"]));
}

#[test]
fn an_expiry_and_a_cancel_end_a_request_once() {
    let endings = explore("expiry, cancel", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer { budget: Some(BUDGET), ..Offer::default() }).unwrap();
        let timer = timer(&admission);
        let leaving = thread::spawn(move || drop(waiting));
        timer.join().unwrap();
        leaving.join().unwrap();
        finish(first);
        at_rest(&admission)
    });
    assert_eq!(endings, told(["cancelled 1, finished 1", "finished 1, queue_expired 1"]));
}

#[test]
fn a_grant_an_expiry_and_a_cancel_end_a_request_once() {
    let endings = explore("grant, expiry, cancel", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer { budget: Some(BUDGET), ..Offer::default() }).unwrap();
        let timer = timer(&admission);
        let leaving = thread::spawn(move || drop(waiting));
        finish(first);
        timer.join().unwrap();
        leaving.join().unwrap();
        at_rest(&admission)
    });
    let all = ["cancelled 1, finished 1", "client_gone 1, finished 1", "finished 1, queue_expired 1"];
    assert_eq!(endings, told(all));
}

#[test]
fn an_answer_reaches_who_waits_for_it_whether_it_is_a_permit_or_an_expiry() {
    let endings = explore("grant, expiry, wait", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer { budget: Some(BUDGET), ..Offer::default() }).unwrap();
        let timer = timer(&admission);
        let releasing = thread::spawn(move || finish(first));
        match block_on(waiting.answer()) {
            Ok(permit) => finish(permit),
            Err(refused) => assert_eq!(refused.rejection.reason, RejectReason::QueueExpired),
        }
        timer.join().unwrap();
        releasing.join().unwrap();
        at_rest(&admission)
    });
    assert_eq!(endings, told(["finished 1, queue_expired 1", "finished 2"]));
}

#[test]
fn a_request_offered_during_a_release_and_a_cancel_gets_the_permit() {
    let endings = explore("release, offer, cancel", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer::default()).unwrap();
        let leaving = thread::spawn(move || drop(waiting));
        let releasing = thread::spawn(move || finish(first));
        finish(block_on(admission.offer(Offer::default()).unwrap().answer()).unwrap());
        leaving.join().unwrap();
        releasing.join().unwrap();
        at_rest(&admission)
    });
    assert_eq!(endings, told(["cancelled 1, finished 2", "client_gone 1, finished 2"]));
}

#[test]
fn two_releases_wake_one_waiter_once() {
    let endings = explore("two releases, wait", || {
        let admission = admission(2);
        let (first, second) = (granted(&admission), granted(&admission));
        let waiting = admission.offer(Offer::default()).unwrap();
        let releasing = [first, second].map(|permit| thread::spawn(move || finish(permit)));
        finish(block_on(waiting.answer()).unwrap());
        for thread in releasing {
            thread.join().unwrap();
        }
        at_rest(&admission)
    });
    assert_eq!(endings, told(["finished 3"]));
}

#[test]
fn a_drain_a_release_and_a_cancel_end_a_request_once() {
    let endings = explore("drain, release, cancel", || {
        let admission = admission(1);
        let first = granted(&admission);
        let waiting = admission.offer(Offer::default()).unwrap();
        let draining = {
            let admission = Arc::clone(&admission);
            thread::spawn(move || admission.drain())
        };
        let leaving = thread::spawn(move || drop(waiting));
        finish(first);
        draining.join().unwrap();
        leaving.join().unwrap();
        at_rest(&admission)
    });
    let all = ["cancelled 1, finished 1", "client_gone 1, finished 1", "draining 1, finished 1"];
    assert_eq!(endings, told(all));
}

#[test]
fn work_that_ends_while_it_is_cut_gives_its_permit_back_once() {
    let endings = explore("cut, end", || {
        let slo = Slo { ttft: Some(BUDGET), ..Slo::default() };
        let cut = TenantPolicy { slo: Some(slo), on_miss: OnMiss::Abort, ..TenantPolicy::default() };
        let settings = Settings { tenants: vec![cut], ..Settings::fcfs(vec![1]) };
        let admission = Admission::new(&settings, None, Clock::start());
        let waiting = admission.offer(Offer { slo, ..Offer::default() }).unwrap();
        let mut permit = block_on(waiting.answer()).unwrap();
        let timer = timer(&admission);
        let working = thread::spawn(move || {
            let lost = permit.poll_lost(&mut Context::from_waker(Waker::noop()));
            let how = if lost.is_ready() { How::Aborted } else { How::Finished };
            permit.release(how, Used::default());
        });
        timer.join().unwrap();
        working.join().unwrap();
        at_rest(&admission)
    });
    assert_eq!(endings, told(["aborted 1", "finished 1"]));
}

/// Runs the model in every order; the endings that came of it.
fn explore(name: &str, model: impl Fn() -> String + Send + Sync + 'static) -> BTreeSet<String> {
    let seen = Arc::new(std::sync::Mutex::new(BTreeMap::<String, usize>::new()));
    let kept = Arc::clone(&seen);
    loom::model(move || *kept.lock().unwrap().entry(model()).or_default() += 1);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    eprintln!("{name}: {} orders, {seen:?}", seen.values().sum::<usize>());
    seen.into_keys().collect()
}

fn told<const N: usize>(endings: [&str; N]) -> BTreeSet<String> {
    endings.map(str::to_owned).into()
}

/// First come, first served for so many seats.
fn admission(seats: u32) -> Arc<Admission> {
    Admission::new(&Settings::fcfs(vec![seats]), None, Clock::start())
}

/// A request that has its permit at once.
fn granted(admission: &Arc<Admission>) -> Permit {
    block_on(admission.offer(Offer::default()).unwrap().answer()).unwrap()
}

fn finish(permit: Permit) {
    permit.release(How::Finished, Used::default());
}

/// The timer, going off once what may expire has expired.
fn timer(admission: &Arc<Admission>) -> thread::JoinHandle<()> {
    let admission = Arc::clone(admission);
    thread::spawn(move || {
        model_time::set(LATER);
        admission.enter(|_, _| ());
    })
}

/// Checks that nothing is held, waits or is kept, and tells how the requests ended.
fn at_rest(admission: &Admission) -> String {
    admission.audit().unwrap();
    let inner = admission.lock();
    assert_eq!((inner.scheduler.in_use(), inner.scheduler.queued()), (0, 0));
    assert_eq!((inner.waiters.len(), inner.cutters.len()), (0, 0));
    let totals = inner.scheduler.totals();
    assert_eq!(totals.granted, totals.released.values().sum::<u64>());
    let mut endings = BTreeMap::new();
    let refused = totals.rejected.iter().chain(&totals.expired).map(|(reason, n)| (reason.to_string(), *n));
    let released = totals.released.iter().map(|(how, n)| (how.to_string(), *n));
    for (ending, n) in refused.chain(released).chain([("cancelled".to_owned(), totals.cancelled)]) {
        *endings.entry(ending).or_insert(0) += n;
    }
    assert_eq!(totals.offers, endings.values().sum::<u64>());
    let told = endings.iter().filter(|(_, n)| **n > 0).map(|(ending, n)| format!("{ending} {n}"));
    told.collect::<Vec<_>>().join(", ")
}
