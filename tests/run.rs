//! Tests `parm run`: copies of a server that are started, watched, started again and ended.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::process::{PATIENCE, refused, told};
use crate::support::{Parm, affine, http};

/// A server that has nothing of `parm run`: it speaks HTTP at the port it is given.
const SERVER: [&str; 10] = [
    env!("CARGO_BIN_EXE_parm"),
    "worker",
    "--models",
    "tests/models",
    "--http",
    "127.0.0.1:{port}",
    "--grpc",
    "127.0.0.1:0",
    "--metrics",
    "127.0.0.1:0",
];

/// Starts copies of a server. It answers 404 at the usual probe, also while it loads its model.
fn run(flags: &[&str], server: &[&str]) -> Parm {
    let probe = ["run", "--set", "frontend.upstreams.probe=/v2/health/ready"];
    Parm::start(&[&probe, flags, &["--"], server].concat())
}

/// The process ids of a copy, one for every time that it has answered.
fn pids(parm: &Parm, number: usize) -> Vec<u32> {
    let number = format!("replica={number} ");
    let log = parm.log();
    let lines = log.lines().filter(|line| line.contains("replica answers") && line.contains(&number));
    lines.map(|line| line.split_once("pid=").unwrap().1.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// Whether a process runs. One that nobody has collected does not.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn until_gone(pids: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while let Some(pid) = pids.iter().find(|pid| is_running(**pid)) {
        assert!(Instant::now() < deadline, "process {pid} still runs");
        thread::sleep(Duration::from_millis(10));
    }
}

fn ready(parm: &Parm) -> f64 {
    parm.metric("parm_instances", &["state=\"ready\""])
}

fn ask(parm: std::net::SocketAddr) -> http::Answer {
    affine::infer(parm, &affine::rows(1, 1))
}

#[test]
fn killed_replica_returns_and_no_request_fails() {
    let parm = run(&["--replicas", "3"], &SERVER);
    parm.until("all copies have joined", |parm| ready(parm) == 3.0);
    for number in 1..=3 {
        assert!(parm.log().contains(&format!("\n[{number}] ")), "the output is numbered: {}", parm.log());
    }
    let (address, is_over) = (parm.http, Arc::new(AtomicBool::new(false)));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, answered) = (is_over.clone(), answered.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let answer = ask(address);
                    assert_eq!(answer.status, 200, "{}", answer.body_text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let more = |count: usize| {
        let enough = answered.load(Ordering::SeqCst) + count;
        parm.until("requests are answered", |_| answered.load(Ordering::SeqCst) >= enough);
    };
    more(20);
    let killed = pids(&parm, 2)[0];
    let killed_now = std::process::Command::new("kill").args(["-s", "KILL", &killed.to_string()]).status();
    assert!(killed_now.unwrap().success());
    parm.until("it answers again", |parm| pids(parm, 2).len() == 2);
    parm.until("it has joined again", |parm| ready(parm) == 3.0);
    more(20);
    is_over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let log = parm.log();
    let line = log.lines().find(|line| line.contains("replica is down")).unwrap();
    assert!(line.contains("replica=2") && line.contains(&format!("pid={killed}")), "{line}");
    assert!(line.contains("url=\"http://127.0.0.1:") && line.contains("signal: 9"), "{line}");
    assert_eq!([pids(&parm, 1).len(), pids(&parm, 3).len()], [1, 1], "the others go on");
}

#[test]
fn copies_end_after_the_frontend_has_drained() {
    let mut parm = run(&["--replicas", "2"], &SERVER);
    let copies = [pids(&parm, 1), pids(&parm, 2)].concat();
    assert!(copies.len() == 2 && copies.iter().all(|pid| is_running(*pid)), "{copies:?}");
    parm.signal("TERM");
    assert!(parm.wait().success(), "{}", parm.log());
    until_gone(&copies);
    let log = parm.log();
    let at = |what, is: &dyn Fn(&str) -> bool| {
        log.lines().position(is).unwrap_or_else(|| panic!("the log does not say that {what}: {log}"))
    };
    let drained = at("the frontend drained", &|line| !line.starts_with('[') && line.ends_with(" drained"));
    let ending = at("a copy ends", &|line| line.starts_with('[') && line.contains("SIGTERM"));
    assert!(drained < ending, "{log}");
    assert!(log.matches("replica ended").count() == 2 && !log.contains("replica is down"), "{log}");
}

/// A shell that ignores SIGTERM, with a server as its child, which notes its process id.
fn stubborn(folder: &TempDir) -> String {
    let server = SERVER.join(" ");
    let folder = folder.path().display();
    format!("trap '' TERM; {server} & echo $! >{folder}/{{port}}; while :; do sleep 0.1; done")
}

fn servers(folder: &TempDir) -> Vec<u32> {
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| fs::read_to_string(file).unwrap().trim().parse().unwrap()).collect()
}

#[test]
fn copies_that_ignore_sigterm_are_killed_with_their_processes() {
    let folder = TempDir::new().unwrap();
    let script = stubborn(&folder);
    let mut parm = run(&["--replicas", "2", "--stop-timeout", "0.3"], &["sh", "-c", &script]);
    let all = [pids(&parm, 1), pids(&parm, 2), servers(&folder)].concat();
    assert!(all.len() == 4 && all.iter().all(|pid| is_running(*pid)), "{all:?}");
    parm.signal("TERM");
    assert!(parm.wait().success(), "{}", parm.log());
    until_gone(&all);
    assert!(parm.log().contains("ignored SIGTERM and is killed"), "{}", parm.log());
}

#[test]
fn copies_do_not_outlive_a_killed_parm() {
    let folder = TempDir::new().unwrap();
    let script = stubborn(&folder);
    let mut parm = run(&["--replicas", "2"], &["sh", "-c", &script]);
    let all = [pids(&parm, 1), pids(&parm, 2), servers(&folder)].concat();
    assert!(all.len() == 4 && all.iter().all(|pid| is_running(*pid)), "{all:?}");
    parm.signal("KILL");
    parm.wait();
    until_gone(&all);
}

#[test]
fn signals_for_servers_are_passed_to_them() {
    let folder = TempDir::new().unwrap();
    let (seen, server) = (folder.path().join("seen"), SERVER.join(" "));
    let script =
        format!("trap 'echo $PORT >>{}' USR1; {server} & while :; do sleep 0.05; done", seen.display());
    let parm = run(&["--replicas", "2"], &["sh", "-c", &script]);
    parm.signal("USR1");
    let lines = || fs::read_to_string(&seen).unwrap_or_default().lines().count();
    parm.until("both have it", |_| lines() == 2);
}

#[test]
fn copies_of_a_server_of_the_protocol_are_workers() {
    let parm = run(&["--replicas", "2", "--worker"], &SERVER);
    let answer = ask(parm.http);
    // Only where parm reads requests does the answer's body say how it was made.
    assert!(answer.status == 200 && answer.body_text().contains("parm_outcome"), "{}", answer.body_text());
    parm.until("both have joined", |parm| ready(parm) == 2.0);
}

#[test]
fn commands_that_cannot_serve_are_refused_with_advice() {
    let (parm, local) = (env!("CARGO_BIN_EXE_parm"), "127.0.0.1:0");
    let run = ["run", "--http", local, "--grpc", local, "--metrics", local];
    for (words, status, parts) in [
        (
            &["--", "no-such-program", "{port}"][..],
            64,
            &["cannot start 'no-such-program {port}'", "check the program's name"][..],
        ),
        (&["--replicas", "2"], 2, &["<COMMAND>"]),
        (&["--replicas", "0", "--", "true"], 2, &["--replicas"]),
        (&["uvicorn", "app:app"], 2, &["unexpected argument 'uvicorn'", "-- <COMMAND>"]),
        (
            &["--", "sh", "-c", "echo one; echo the model is missing >&2; exit 3", "{port}"],
            1,
            &["replica ", "ended (exit status: 3)", "its last lines:", "    one", "    the model is missing"],
        ),
        (&["--", "sh", "-c", "exit 3"], 1, &["the command has no {port}", "reads the variable PORT"]),
        (
            &["--start-timeout", "0.3", "--", "sleep", "100"],
            1,
            &["was killed as it did not answer in time (GET /health: Connection refused", "no {port}"],
        ),
        (
            &["--start-timeout", "0.3", "--", "sh", "-c", "sleep 100; : {port}"],
            1,
            &["did not answer in time", "--start-timeout"],
        ),
        (&["--policy", "stand-in", "--", parm, "worker"], 64, &["frontend.dispatch.policy"]),
        (&["--start-timeout", "0", "--", "true"], 2, &["above 0"]),
    ] {
        let (code, said) = told(&[&run, words].concat());
        assert_eq!(code, Some(status), "{words:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{words:?} must say '{part}': {said}");
        }
    }
}

#[test]
fn address_in_use_is_reported_before_any_copy_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(&["run", "--http", &address, "--", "sh", "-c", "echo started"], None, "PARM-0003");
    assert!(!said.contains("started"), "{said}");
}

#[test]
fn port_is_also_in_the_environment() {
    let folder = TempDir::new().unwrap();
    let server = SERVER.join(" ").replace("{port}", "$PORT");
    let script = format!("echo $PORT >{}/$PORT; exec {server}", folder.path().display());
    let parm = run(&["--replicas", "2"], &["sh", "-c", &script]);
    assert_eq!(ask(parm.http).status, 200);
    assert_eq!(servers(&folder).len(), 2);
    assert!(parm.log().contains("the port of its variable PORT"), "{}", parm.log());
}
