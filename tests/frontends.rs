//! Two frontends over the same workers: one fleet, of which one may die.

use std::thread;

use crate::support::{Parm, http};

const MODEL: &str = "backend.emulated.slow={input=[4], outputs=2, time_ms={kind=\"constant\", value=5.0}}";

fn ask(frontend: &Parm) -> u16 {
    let row =
        br#"{"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}"#;
    http::post(frontend.http, "/v2/models/slow/infer", row).status
}

/// Each frontend is asked by several clients so many times.
fn ask_all(frontends: &[&Parm], times: usize) {
    thread::scope(|scope| {
        for frontend in frontends {
            for _ in 0..4 {
                scope.spawn(|| (0..times).for_each(|_| assert_eq!(ask(frontend), 200, "{}", frontend.log())));
            }
        }
    });
}

#[test]
fn frontends_share_workers_by_tokens_and_one_that_is_killed_leaves_nothing_behind() {
    let workers = [(); 2].map(|()| Parm::start(&["worker", "--instances", "1", "--set", MODEL]));
    let frontends = [(); 2].map(|()| Parm::frontend(&workers.each_ref(), &[]));
    let [stays, dies] = &frontends;
    ask_all(&[stays, dies], 50);
    for worker in &workers {
        worker
            .until("both frontends take part", |worker| worker.metric("parm_sharing_frontends", &[]) == 2.0);
    }
    dies.signal("KILL");
    ask_all(&[stays], 50);
    for worker in &workers {
        worker.until("one is left", |worker| worker.metric("parm_sharing_frontends", &[]) == 1.0);
        worker.until("nobody waits", |worker| worker.metric("parm_sharing_reservations", &[]) == 0.0);
    }
}

#[test]
fn workers_that_give_no_tokens_serve_several_frontends_as_ever() {
    let off = "backend.tokens.enabled=false";
    let worker = Parm::start(&["worker", "--instances", "1", "--set", MODEL, "--set", off]);
    let frontends = [(); 2].map(|()| Parm::frontend(&[&worker], &[]));
    ask_all(&frontends.each_ref(), 20);
    assert_eq!(worker.metric("parm_sharing_frontends", &[]), 0.0);
}
