//! Tests clients that disconnect before their answers: queued queries are dropped, and nothing leaks.

use super::{ask_slow, assert_serves, serve_slow};
use crate::support::Parm;

const ASKED: usize = 12;
const SLOW: &str = "model=\"slow\"";

fn dispatched(parm: &Parm, event: &str) -> usize {
    parm.metric("parm_dispatch_total", &[SLOW, &format!("event=\"{event}\"")]) as usize
}

fn asked(parm: &Parm) {
    parm.until("all requests have arrived", |parm| dispatched(parm, "arrived") == ASKED);
}

/// Asserts that no query of the disconnected clients is left, that most did not run, and that the server serves.
fn assert_nothing_left(parm: &Parm) {
    parm.until("nothing is pending", |parm| {
        parm.metric("nv_inference_pending_request_count", &[SLOW]) == 0.0
            && parm.metric("parm_queue_depth", &[SLOW]) == 0.0
    });
    let (cancelled, jobs) = (dispatched(parm, "cancelled"), dispatched(parm, "job"));
    assert!(cancelled > 0 && jobs < ASKED, "{cancelled} cancelled, {jobs} jobs of {ASKED} requests");
    // The instance finishes its running jobs, and is then free for others.
    assert_serves(parm, "clients vanished");
    assert_eq!(dispatched(parm, "arrived"), ASKED);
    assert!(dispatched(parm, "job") <= jobs, "jobs of disconnected clients ran later");
    parm.until("the instance is free", |parm| parm.metric("parm_instance_inflight", &[]) == 0.0);
}

#[test]
fn queries_are_dropped_when_http_connections_close() {
    let parm = serve_slow(2_000, &[]);
    let clients: Vec<_> = (0..ASKED).map(|_| ask_slow(&parm)).collect();
    asked(&parm);
    drop(clients);
    assert_nothing_left(&parm);
}

#[test]
fn socket_is_closed_when_a_client_leaves_within_its_body() {
    let parm = serve_slow(1, &[]);
    for _ in 0..50 {
        let mut stream = super::connect(parm.http);
        let begun = super::head(super::INFER, 1 << 20) + "{\"inputs\":";
        std::io::Write::write_all(&mut stream, begun.as_bytes()).unwrap();
    }
    parm.until("the sockets are closed", |parm| open_sockets(parm) < 20);
    assert_serves(&parm, "clients left");
}

/// Open sockets of the process.
fn open_sockets(parm: &Parm) -> usize {
    parm.descriptors().iter().filter(|open| open.starts_with("socket:")).count()
}
