//! Random schedules over the whole frontend, which must keep its promises.
//!
//! Driver, groups, coding, discovery, catalog and admin API run as in service, over fake servers that follow a
//! schedule, with paused time. What the dispatcher promises is checked by its own random schedules; they miss faults
//! between the parts: a driver that removes a row while the dispatcher starts it, a file read while it is written, an
//! alarm overtaken by another. The seed decides everything else, so a failing run can be repeated.
//!
//! `SCHEDULE_SEEDS=0..1000` runs these seeds and describes what broke a promise. `SCHEDULE_ALL=1` continues after the
//! first failure and lists each promise with the seeds that broke it. `just schedules` runs a million requests.

mod admin;
mod clients;
mod dice;
mod generate;
mod instances;
mod invariants;
mod opaque;
mod run;
mod schedule;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::generate::schedule;
use crate::run::run;
use crate::world::Breach;

/// Seeds that broke a promise, with an example, by promise.
type Broken = BTreeMap<&'static str, (Vec<u64>, String)>;

#[allow(clippy::disallowed_methods)] // a test has no configuration but its environment
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn seeds(default: Range<u64>) -> Range<u64> {
    let Some(text) = variable("SCHEDULE_SEEDS") else { return default };
    let bounds = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    bounds.unwrap_or_else(|| panic!("invalid SCHEDULE_SEEDS '{text}': use FROM..TO"))
}

/// Runs seeds on all cores until one asks to stop.
fn on_all_cores(seeds: Range<u64>, goes_on: impl Fn(u64) -> bool + Sync) {
    let (next, stopped) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stopped.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    if !goes_on(seed) {
                        stopped.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

#[test]
fn random_schedules_keep_every_promise() {
    note_panics();
    let all = variable("SCHEDULE_ALL").is_some();
    let tally: Mutex<(usize, Broken)> = Mutex::default();
    on_all_cores(seeds(0..60), |seed| {
        let report = run(&schedule(seed));
        let (requests, broken) = &mut *tally.lock();
        *requests += report.requests;
        for Breach { rule, at, what } in report.breaches {
            let example = || (Vec::new(), format!("seed {seed} at {at} ms: {what}"));
            broken.entry(rule).or_insert_with(example).0.push(seed);
        }
        all || broken.is_empty()
    });
    let (requests, broken) = tally.into_inner();
    eprintln!("{requests} requests");
    assert!(broken.is_empty(), "broken promises, repeated with SCHEDULE_SEEDS=SEED..SEED+1: {broken:#?}");
}

#[test]
fn same_seed_gives_the_same_run() {
    note_panics();
    for seed in seeds(0..60).step_by(10) {
        let schedule = schedule(seed);
        assert_eq!(run(&schedule), run(&schedule), "seed {seed}");
    }
}

thread_local! {
    /// The last panic of this thread's run, because a task that panics ends silently.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts to note panics.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let prints = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            prints(panic);
            LAST.set(Some(panic.to_string()));
        }));
    });
}

/// Takes the last panic of a run.
fn take_panic() -> Option<String> {
    LAST.take()
}
