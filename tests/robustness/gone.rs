//! Clients that vanish while they are waited for: what they asked is dropped before it runs, and nothing leaks.

use super::{ask_slow, assert_serves, grpc, serve_slow, slow_message};
use crate::support::Parm;

const ASKED: usize = 12;
const SLOW: &str = "model=\"slow\"";

fn dispatched(parm: &Parm, event: &str) -> usize {
    parm.metric("parm_dispatch_total", &[SLOW, &format!("event=\"{event}\"")]) as usize
}

fn asked(parm: &Parm) {
    parm.until("all requests have arrived", |parm| dispatched(parm, "arrived") == ASKED);
}

/// Nothing of the vanished is left, most of it never ran, and the server goes on.
fn left_nothing(parm: &Parm) {
    parm.until("nothing is pending", |parm| {
        parm.metric("nv_inference_pending_request_count", &[SLOW]) == 0.0
            && parm.metric("parm_queue_depth", &[SLOW]) == 0.0
    });
    let (cancelled, jobs) = (dispatched(parm, "cancelled"), dispatched(parm, "job"));
    assert!(cancelled > 0 && jobs < ASKED, "{cancelled} cancelled, {jobs} jobs of {ASKED} requests");
    // The instance is busy with what had begun, and then free for others.
    assert_serves(parm, "clients vanished");
    assert_eq!(dispatched(parm, "arrived"), ASKED);
    assert!(dispatched(parm, "job") <= jobs, "the vanished were served after all");
    parm.until("the instance is free", |parm| parm.metric("parm_instance_inflight", &[]) == 0.0);
}

#[test]
fn closed_http_connections_take_their_queries_along() {
    let parm = serve_slow(2_000, &[]);
    let clients: Vec<_> = (0..ASKED).map(|_| ask_slow(&parm)).collect();
    asked(&parm);
    drop(clients);
    left_nothing(&parm);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_streams_take_their_queries_along() {
    let parm = serve_slow(2_000, &[]);
    let client = grpc(&parm).await;
    let calls: Vec<_> = (0..ASKED)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.model_infer(slow_message()).await })
        })
        .collect();
    tokio::task::block_in_place(|| asked(&parm));
    // The connection lives on; only the streams are reset.
    calls.iter().for_each(|call| call.abort());
    tokio::task::block_in_place(|| left_nothing(&parm));
    drop(client);
}

#[test]
fn a_client_that_leaves_within_its_body_is_forgotten() {
    let parm = serve_slow(1, &[]);
    for _ in 0..50 {
        let mut stream = super::connect(parm.http);
        let begun = super::head(super::INFER, 1 << 20) + "{\"inputs\":";
        std::io::Write::write_all(&mut stream, begun.as_bytes()).unwrap();
    }
    parm.until("all are counted as broken off", |parm| open_sockets(parm) < 20);
    assert_serves(&parm, "clients left");
}

/// Sockets that the process holds.
fn open_sockets(parm: &Parm) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", parm.pid())).unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}
