//! Tests signals that end a process. `chaos.rs` has the drain under load.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::Parm;
use crate::support::process::command;

const EMULATED: &str = "backend.emulated.small={input=[4], outputs=2}";

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
