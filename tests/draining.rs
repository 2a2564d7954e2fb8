//! Tests graceful shutdown under load: the process stops listening, answers accepted requests, and exits.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use crate::support::process::command;
use crate::support::{Parm, http};

/// Streams that each send the next request as soon as the last one is answered.
const STREAMS: usize = 16;
/// Answers before the process receives SIGTERM, so that the load is running.
const WARM: usize = 50;

const EMULATED: &str = "backend.emulated.small={input=[4], outputs=2}";

/// A frontend with a model that takes 20 ms, so some request is always in progress. A drain that waited for a moment
/// without requests would never end.
fn busy() -> Parm {
    let model = "backend.emulated.slow={input=[4], outputs=2, time_ms={kind=\"constant\", value=20.0}}";
    let patient = "server.drain_timeout_ms=3600000";
    Parm::start(&["serve", "--instances", "2", "--set", model, "--set", patient])
}

fn wait_for(answered: &AtomicUsize, parm: &Parm) {
    parm.until("the load is under way", |_| answered.load(Ordering::SeqCst) >= WARM);
}

/// The first run of the model takes an hour and cannot be interrupted. The process must exit nevertheless.
#[test]
fn process_ends_on_sigterm_while_a_model_is_loading() {
    let model = "backend.emulated.slow={input=[4], outputs=2, time_ms={kind=\"constant\", value=3600000.0}}";
    for kind in ["worker", "serve"] {
        let mut call = command();
        call.args([kind, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        call.args(["--instances", "1", "--set", model]).stderr(Stdio::piped());
        let mut process = call.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let loading = lines.by_ref().map_while(Result::ok).find(|line| line.contains("loading models"));
        assert!(loading.is_some(), "{kind} logs that it loads models");
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        assert!(process.wait().unwrap().success(), "{kind}: {rest:?}");
    }
}

#[test]
fn signals_of_a_terminal_and_its_wrapper_are_one() {
    let delay = "server.drain_delay_ms=1000";
    let mut parm = Parm::start(&["serve", "--instances", "1", "--set", EMULATED, "--set", delay]);
    parm.signal("INT");
    parm.signal("TERM");
    assert!(parm.wait().success(), "{}", parm.log());
    assert!(parm.log().contains("drained"), "{}", parm.log());
}

#[test]
fn later_signal_ends_a_drain_at_once() {
    let delay = "server.drain_delay_ms=3600000";
    let parm = Parm::start(&["serve", "--instances", "1", "--set", EMULATED, "--set", delay]);
    parm.until("a later signal ends it", |parm| {
        parm.signal("TERM");
        parm.log().contains("second signal: ending at once")
    });
}

#[test]
fn frontend_answers_accepted_http_requests_on_sigterm() {
    let mut parm = busy();
    let address = parm.http;
    let answered = Arc::new(AtomicUsize::new(0));
    let body =
        json!({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]});
    let body = body.to_string().into_bytes();
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let (answered, body) = (answered.clone(), body.clone());
            thread::spawn(move || {
                loop {
                    let answer = http::post(address, "/v2/models/slow/infer", &body);
                    match answer.status {
                        200 => answered.fetch_add(1, Ordering::SeqCst),
                        // The listener is closed.
                        0 => return None,
                        _ => return Some(answer),
                    };
                }
            })
        })
        .collect();
    wait_for(&answered, &parm);
    parm.signal("TERM");
    assert!(parm.wait().success(), "{}", parm.log());
    for stream in streams {
        assert!(stream.join().unwrap().is_none());
    }
}
