//! Tests two frontends that share workers.

use std::thread;

use crate::support::{Parm, http};

const MODEL: &str = "backend.emulated.slow={input=[4], outputs=2, time_ms={kind=\"constant\", value=5.0}}";

fn ask(frontend: &Parm) -> u16 {
    let row =
        br#"{"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}"#;
    http::post(frontend.http, "/v2/models/slow/infer", row).status
}

/// Sends this many requests from each of four clients to every frontend.
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
fn shared_workers_forget_a_frontend_when_it_is_killed() {
    let workers = [(); 2].map(|()| Parm::start(&["worker", "--instances", "1", "--set", MODEL]));
    let frontends = [(); 2].map(|()| Parm::frontend(&workers.each_ref(), &[]));
    let [stays, dies] = &frontends;
    ask_all(&[stays, dies], 50);
    for worker in &workers {
        worker.until("both frontends share the worker", |worker| {
            worker.metric("parm_sharing_frontends", &[]) == 2.0
        });
    }
    dies.signal("KILL");
    ask_all(&[stays], 50);
    for worker in &workers {
        worker.until("one is left", |worker| worker.metric("parm_sharing_frontends", &[]) == 1.0);
        worker
            .until("no reservation is left", |worker| worker.metric("parm_sharing_reservations", &[]) == 0.0);
    }
}
