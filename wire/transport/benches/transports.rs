//! Round trips to a service in another process that does nothing, over each transport.
//!
//! `cargo bench -p parm-transport --bench transports` prints a table. On a busy machine only ratios count.

#![allow(clippy::print_stdout)] // a table, for whoever runs it
#![allow(clippy::disallowed_methods)] // a benchmark reads the machine's clock

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_protocol::client::CallContext;
use parm_protocol::{DataType, InferRequest, InferResponse, ModelRef, NamedTensor, Parameters, Tensor};
use parm_transport::frames;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use scripted::Scripted;

#[path = "../src/scripted.rs"]
mod scripted;

const SERVE: &str = "serve-for-benchmark";

fn main() {
    if env::args().any(|argument| argument == SERVE) {
        return runtime().block_on(serve());
    }
    measure_all();
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Answers with ten numbers.
fn ten(request: InferRequest) -> InferResponse {
    let outputs = vec![NamedTensor::new("y", Tensor::from_f32([1, 10].as_slice(), &[0.5; 10]).unwrap())];
    InferResponse { outputs, ..scripted::echo(request) }
}

async fn serve() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = env::args().next_back().unwrap();
    let unix = UnixListener::bind(format!("{dir}/frames.sock")).unwrap();
    println!("{}", tcp.local_addr().unwrap());
    let config = frames::Config::default();
    let service = Arc::new(Scripted(|request, _| std::future::ready(Ok(ten(request)))));
    loop {
        let socket: frames::Socket = tokio::select! {
            s = tcp.accept() => { let s = s.unwrap().0; s.set_nodelay(true).unwrap(); s.into() }
            s = unix.accept() => s.unwrap().0.into(),
        };
        let (config, service) = (config.clone(), service.clone());
        tokio::spawn(async move {
            let _ = frames::serve(socket, b"", service, &config.into(), CancellationToken::new()).await;
        });
    }
}

fn request(bytes: usize) -> InferRequest {
    let tensor = Tensor::from_f32([1, bytes / 4].as_slice(), &vec![0.25; bytes / 4]).unwrap();
    assert_eq!(tensor.datatype(), DataType::Fp32);
    InferRequest {
        model: ModelRef::latest("null"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: vec![],
    }
}

fn measure_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .arg(SERVE)
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().to_owned();
    runtime().block_on(async {
        let config = frames::Config::default();
        let limits = frames::Negotiated::of(&config);
        let tcp = tokio::net::TcpStream::connect(&address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let unix = tokio::net::UnixStream::connect(dir.path().join("frames.sock")).await.unwrap();
        for (name, socket) in [("frames tcp", frames::Socket::from(tcp)), ("frames uds", unix.into())] {
            let connection = Arc::new(frames::Connection::new("x".into(), socket, b"", limits, &config));
            for (size, in_flight) in [(3136, 1), (3136, 4), (3136, 32), (602_112, 1), (602_112, 8)] {
                let connection = connection.clone();
                tokio::spawn(measure(name, connection, size, in_flight, child.id())).await.unwrap();
            }
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

async fn measure(
    name: &str,
    connection: Arc<frames::Connection>,
    size: usize,
    in_flight: usize,
    server: u32,
) {
    let total = if size > 100_000 { 4000 } else { 40_000 };
    let (us, them) = (cpu(std::process::id()), cpu(server));
    let started = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let connection = connection.clone();
            tokio::spawn(async move {
                let request = request(size);
                let mut times = vec![];
                for _ in 0..total / in_flight {
                    let started = Instant::now();
                    connection.infer(&request, &CallContext::default()).await.unwrap();
                    times.push(started.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = vec![];
    for t in tasks {
        times.extend(t.await.unwrap());
    }
    let wall = started.elapsed();
    let (us, them) = (cpu(std::process::id()) - us, cpu(server) - them);
    times.sort();
    let n = times.len();
    println!(
        "{name:12} {size:7} B  {in_flight:3} in flight  p50 {:?} p99 {:?}  {:.0}/s  cpu client {:?} server {:?}",
        times[n / 2],
        times[n * 99 / 100],
        n as f64 / wall.as_secs_f64(),
        us / n as u32,
        them / n as u32
    );
}

fn cpu(pid: u32) -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Duration::from_nanos(nanos)
}
