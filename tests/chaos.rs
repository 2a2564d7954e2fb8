//! Tests that every request is answered while workers crash, hang, leave and restart under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::load::{Load, connect};
use crate::support::{Parm, http};

const LOAD: Load = Load { requests: 600, pace: Duration::from_millis(8), deadline: Duration::from_secs(10) };

/// Sends load to a frontend with three workers, and runs `chaos` on them after a third of the requests.
async fn survives(arguments: &[&str], chaos: fn(&[Parm])) -> (Parm, Vec<Parm>) {
    let workers: Vec<Parm> = (0..3).map(|_| Parm::worker(&[])).collect();
    let frontend = Parm::frontend(&workers.iter().collect::<Vec<_>>(), arguments);
    frontend.until("all three instances joined", |parm| {
        parm.metric("parm_instances", &["state=\"ready\""]) == 3.0
    });
    let through = connect(&format!("grpc://{}", frontend.grpc));
    let mut chaos = Some(chaos);
    let report = LOAD
        .each(|index| {
            if index == LOAD.requests / 3 {
                chaos.take().unwrap()(&workers);
            }
            through.clone()
        })
        .await;
    report.assert_all_right(LOAD);
    (frontend, workers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_retried_when_a_worker_is_killed() {
    let (frontend, _workers) = survives(&["--policy", "none"], |workers| workers[0].signal("KILL")).await;
    frontend.until("the dead instance is gone", |parm| {
        parm.metric("parm_instances", &["state=\"ready\""]) == 2.0
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hedges_answer_when_a_worker_is_stopped() {
    let (frontend, _workers) = survives(&["--policy", "hedge"], |workers| workers[2].signal("STOP")).await;
    assert!(frontend.metric("parm_hedges_total", &[]) > 0.0, "nothing was hedged");
}

/// Each worker in turn receives SIGTERM, exits, and restarts on the same socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_when_workers_restart_in_turn() {
    let folder = tempfile::TempDir::new().unwrap();
    let sockets = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let start = |socket: &String| Parm::worker(&["--unix", socket]);
    let mut workers: Vec<Parm> = sockets.iter().map(start).collect();
    let urls = sockets.each_ref().map(|socket| format!("unix:{socket}"));
    let frontend = Parm::start(&["serve", "--worker", &urls[0], "--worker", &urls[1]]);
    let both = |parm: &Parm| parm.metric("parm_instances", &["state=\"ready\""]) == 2.0;
    frontend.until("both instances joined", both);
    let through = connect(&format!("grpc://{}", frontend.grpc));
    let done = Arc::new(AtomicBool::new(false));
    let restarted = done.clone();
    let restarting = tokio::task::spawn_blocking(move || {
        for (worker, socket) in workers.iter_mut().zip(&sockets) {
            worker.signal("TERM");
            assert!(worker.wait().success(), "{}", worker.log());
            *worker = Parm::worker(&["--unix", socket]);
            worker.until("it works again", |worker| worker.metric("nv_inference_exec_count", &[]) > 0.0);
            frontend.until("both serve", both);
        }
        restarted.store(true, Ordering::SeqCst);
        (frontend, workers)
    });
    // One load after another, until all have restarted.
    while !done.load(Ordering::SeqCst) && !restarting.is_finished() {
        LOAD.each(|_| through.clone()).await.assert_all_right(LOAD);
    }
    restarting.await.unwrap();
}

/// A balancer follows the readiness of two frontends, as an orchestrator does. One of them receives SIGTERM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_when_a_frontend_gets_sigterm() {
    for scheme in ["grpc", "http"] {
        let mut frontends = [Parm::serve(&["--instances", "1"]), Parm::serve(&["--instances", "1"])];
        let mut clients = Vec::new();
        for frontend in &frontends {
            frontend.until_model_ready();
            let address = if scheme == "grpc" { frontend.grpc } else { frontend.http };
            clients.push(connect(&format!("{scheme}://{address}")));
        }
        let draining = Arc::new(AtomicBool::new(false));
        let watched = frontends[0].http;
        let seen = draining.clone();
        std::thread::spawn(move || {
            while http::get(watched, "/v2/health/ready").status == 200 {
                std::thread::sleep(Duration::from_millis(20));
            }
            seen.store(true, Ordering::SeqCst);
        });
        let report = LOAD
            .each(|index| {
                if index == LOAD.requests / 3 {
                    frontends[0].signal("TERM");
                }
                let first = index % 2 == 0 && !draining.load(Ordering::SeqCst);
                clients[usize::from(!first)].clone()
            })
            .await;
        report.assert_all_right(LOAD);
        assert!(draining.load(Ordering::SeqCst), "the draining frontend stayed ready");
        assert!(frontends[0].wait().success(), "{}", frontends[0].log());
    }
}
