//! Random schedules of requests for upstream servers, over real connections in paused time.
//!
//! Server, frontend and the clients of upstream servers run as in service, over Unix sockets in one thread. `ticks` bounds
//! the time that a message takes to a millisecond. Problem: servers that die in any part of an answer, and clients that leave,
//! meet faults of sockets, pools and dispatcher together.
//!
//! Reading order: `plan` draws the servers and the events, `upstream` behaves as they say, `client` sends and reads,
//! `judge` compares with `record`, `stage` runs it all.

mod client;
mod judge;
mod plan;
mod record;
mod stage;
mod upstream;

use std::collections::BTreeMap;

use parking_lot::Mutex;

use self::plan::Plan;
use crate::{panics, seeds, variable};

#[test]
fn opaque_schedules_keep_every_promise() {
    panics::note();
    let (seeds, all) = (seeds(0..10), variable("SCHEDULE_ALL").is_some());
    let broken: Mutex<BTreeMap<&'static str, (Vec<u64>, String)>> = Mutex::default();
    let requests = Mutex::new(0);
    crate::on_all_cores(seeds.clone(), |seed| {
        let report = stage::run(&Plan::of(seed));
        *requests.lock() += report.requests;
        let mut broken = broken.lock();
        for (rule, what) in report.breaches {
            broken.entry(rule).or_insert_with(|| (Vec::new(), format!("seed {seed}: {what}"))).0.push(seed);
        }
        all || broken.is_empty()
    });
    let broken = broken.into_inner();
    eprintln!("opaque seeds {seeds:?}: {} requests", requests.into_inner());
    for (rule, (seeds, example)) in &broken {
        let few = &seeds[..seeds.len().min(12)];
        eprintln!("broken: {rule}, by {} seeds, such as {few:?}\n    {example}", seeds.len());
    }
    if let Some(seed) = broken.values().flat_map(|(seeds, _)| seeds).min() {
        eprintln!("Repeat with SCHEDULE_SEEDS={seed}..{}\n{}", seed + 1, Plan::of(*seed));
    }
    assert!(broken.is_empty(), "{} broken promises", broken.len());
}
