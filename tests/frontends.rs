//! Tests several frontends that share workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Parm, http};

const MODEL: &str = "backend.emulated.slow={input=[4], outputs=2, time_ms={kind=\"constant\", value=5.0}}";

fn worker() -> Parm {
    Parm::start(&["worker", "--instances", "1", "--set", MODEL])
}

fn ask(frontend: &Parm) {
    assert_eq!(status(frontend), 200, "{}", frontend.log());
}

fn status(frontend: &Parm) -> u16 {
    let row =
        br#"{"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}"#;
    http::post(frontend.http, "/v2/models/slow/infer", row).status
}

/// Sends requests from four clients at a time to every frontend until so many are answered, and counts those of each.
fn ask_all<const N: usize>(frontends: [&Parm; N], all: usize) -> [usize; N] {
    let answered = [(); N].map(|()| AtomicUsize::new(0));
    let count = || answered.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
    thread::scope(|scope| {
        for (frontend, own) in frontends.iter().zip(&answered) {
            for _ in 0..4 {
                scope.spawn(|| {
                    while count() < all {
                        ask(frontend);
                        own.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
    });
    answered.map(AtomicUsize::into_inner)
}

fn until(worker: &Parm, metric: &str, value: f64) {
    worker.until(&format!("{metric} is {value}"), |worker| worker.metric(metric, &[]) == value);
}

/// A worker notices only after six seconds that a connection is dead.
#[test]
fn frontend_that_is_killed_or_frozen_delays_no_other() {
    let in_time = ["--set", "frontend.requests.default_deadline_ms=2000"];
    for signal in ["KILL", "STOP"] {
        let workers = [(); 2].map(|()| worker());
        let frontends = [(); 3].map(|()| Parm::frontend(&workers.each_ref(), &in_time));
        ask_all(frontends.each_ref(), 60);
        workers.iter().for_each(|worker| until(worker, "parm_sharing_frontends", 3.0));
        let parts = ask_all(frontends.each_ref(), 300);
        assert!(parts.iter().all(|part| *part > 50), "each gets more than half of its part: {parts:?}");
        let [first, second, stops] = &frontends;
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| while status(stops) == 200 {});
            }
            workers[0].until("it is asked", |worker| worker.metric("parm_sharing_asking", &[]) > 0.0);
            stops.signal(signal);
            ask_all([first, second], 300);
            stops.signal("KILL");
        });
    }
}
