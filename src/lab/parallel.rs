//! The same work on many items, on all cores.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// As many threads as the system advises, one where it gives no advice.
pub(crate) fn all_cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// What `work` makes of each item, in the order of the items, however many threads there are.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], threads: NonZeroUsize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        // The order in which threads take items decides nothing but who works on them.
        while let Some((place, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
        {
            done.push((place, work(item)));
        }
        done
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.get().min(items.len())).map(|_| scope.spawn(take)).collect();
        let mut all = take();
        for helper in helpers {
            match helper.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_with_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7, 200] {
            let squares = map(&items, NonZeroUsize::new(threads).unwrap(), |i| i * i);
            assert_eq!(squares, items.iter().map(|i| i * i).collect::<Vec<_>>());
        }
        assert!(map(&[], NonZeroUsize::MIN, |i: &u64| *i).is_empty());
    }

    #[test]
    fn two_threads_share_the_items_and_the_order_stays() {
        let (items, both) = ([0, 1, 2, 3, 4, 5], Barrier::new(2));
        let two = NonZeroUsize::new(2).unwrap();
        // Neither goes on before the other has an item too, so each has every second one.
        let same = map(&items, two, |i| {
            both.wait();
            *i
        });
        assert_eq!(same, items);
    }
}
