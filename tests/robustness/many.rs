//! Tests thousands of idle connections: each costs little memory, and other requests are answered.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{assert_serves, connect, serve};
use crate::support::Parm;

/// Connections to open, if the limit of open files allows this many.
const WANTED: usize = 10_000;
/// The least number of connections for a useful result. A common limit of 1024 leaves about 800.
const LEAST: usize = 500;
/// Descriptors of a process that are not connections.
const SPARE: usize = 200;
const MOST_BYTES: usize = 64 << 10;

/// Raises the limit of open files of this process and of the processes that it starts.
fn connections_allowed() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let allowed = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(SPARE).min(WANTED);
    if allowed < WANTED {
        eprintln!("only {allowed} of {WANTED} connections: the limit of open files is {limit}");
    }
    assert!(allowed >= LEAST, "a limit of {limit} open files is too low for this test: raise `ulimit -n`");
    allowed
}

/// Opens a connection and sends one request, so that all its buffers exist.
fn open(parm: &Parm) -> TcpStream {
    let mut stream = connect(parm.http);
    stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: parm\r\n\r\n").unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

#[test]
fn idle_connections_cost_little_and_delay_no_request() {
    let allowed = connections_allowed();
    let limit = format!("server.max_connections={}", allowed + 10);
    let parm = serve(&["--set", &limit]);
    assert_serves(&parm, "its start");
    let before = parm.memory("VmRSS");
    let idle: Vec<TcpStream> = (0..allowed).map(|_| open(&parm)).collect();
    let each = parm.memory("VmRSS").saturating_sub(before) / allowed;
    eprintln!("{allowed} idle connections, {each} bytes each");
    assert!(each < MOST_BYTES, "{each} bytes for each of {allowed} connections");
    for _ in 0..20 {
        assert_serves(&parm, "thousands of idle connections");
    }
    drop(idle);
    parm.until("their places are free again", |parm| parm.descriptors().len() < SPARE);
    assert_serves(&parm, "thousands of connections left");
}
