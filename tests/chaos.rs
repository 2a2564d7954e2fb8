//! Workers die and leave under load, and no client notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parm_protocol::client::Client;
use parm_transport::client;

use crate::support::load::Load;
use crate::support::{Parm, http};

const LOAD: Load = Load { requests: 600, pace: Duration::from_millis(8), deadline: Duration::from_secs(10) };

fn connect(url: String) -> Arc<dyn Client> {
    client::connect(&url.parse().unwrap(), &client::Config::default()).unwrap()
}

/// Load on a frontend over three workers; `chaos` happens to them after a third of the requests.
async fn survives(arguments: &[&str], chaos: fn(&[Parm])) -> (Parm, Vec<Parm>) {
    let workers: Vec<Parm> = (0..3).map(|_| Parm::worker(&[])).collect();
    let frontend = Parm::frontend(&workers.iter().collect::<Vec<_>>(), arguments);
    frontend.until("all three instances joined", |parm| {
        parm.metric("parm_instances", &["state=\"ready\""]) == 3.0
    });
    let through = connect(format!("grpc://{}", frontend.grpc));
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
async fn a_killed_worker_is_retried_around() {
    let (frontend, _workers) = survives(&["--policy", "none"], |workers| workers[0].signal("KILL")).await;
    frontend.until("the dead instance is gone", |parm| {
        parm.metric("parm_instances", &["state=\"ready\""]) == 2.0
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_is_hidden_by_replicas() {
    let (frontend, _workers) =
        survives(&["--policy", "replicate"], |workers| workers[1].signal("KILL")).await;
    // Every query is a batch of its own, so that what exceeds queries and retries is copies.
    let count = |event| frontend.metric("parm_dispatch_total", &[event]);
    let (jobs, queries) = (count("event=\"job\""), count("event=\"arrived\""));
    let copies = jobs - queries - frontend.metric("parm_retries_total", &[]);
    assert!(copies > 0.0, "{jobs} jobs for {queries} queries: nothing was copied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_worker_is_hedged_around() {
    let (frontend, _workers) = survives(&["--policy", "hedge"], |workers| workers[2].signal("STOP")).await;
    assert!(frontend.metric("parm_hedges_total", &[]) > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_end_fails_nothing() {
    let (_frontend, mut workers) = survives(&["--policy", "none"], |workers| workers[0].signal("TERM")).await;
    // It also ends by itself, cleanly, once it is drained.
    assert!(workers[0].wait().success(), "{}", workers[0].log());
}

/// Every worker is asked to end in turn, ends, and comes back where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_restart_in_turn_fail_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let sockets = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let start = |socket: &String| Parm::worker(&["--unix", socket]);
    let mut workers: Vec<Parm> = sockets.iter().map(start).collect();
    let urls = sockets.each_ref().map(|socket| format!("unix:{socket}"));
    let frontend = Parm::start(&["serve", "--worker", &urls[0], "--worker", &urls[1]]);
    let both = |parm: &Parm| parm.metric("parm_instances", &["state=\"ready\""]) == 2.0;
    frontend.until("both instances joined", both);
    let through = connect(format!("grpc://{}", frontend.grpc));
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

/// Two frontends behind a balancer that looks at readiness, as an orchestrator would; one is asked to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_is_asked_to_end_fails_nothing() {
    for scheme in ["grpc", "http"] {
        let mut frontends = [Parm::serve(&["--instances", "1"]), Parm::serve(&["--instances", "1"])];
        let mut clients = Vec::new();
        for frontend in &frontends {
            frontend.until_model_ready();
            let address = if scheme == "grpc" { frontend.grpc } else { frontend.http };
            clients.push(connect(format!("{scheme}://{address}")));
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
        assert!(draining.load(Ordering::SeqCst), "readiness never went false");
        assert!(frontends[0].wait().success(), "{}", frontends[0].log());
    }
}
