//! Tests extreme settings: each is rejected by name, or a frontend and a worker serve requests with it.
//!
//! The schema of the configuration lists the settings, so that a new field is covered at once. Each value is set as
//! `--set PATH=VALUE`; the file and the environment are read into the same layers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::panic;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use parm_backend::{Embedded, Metrics, Worker};
use parm_durations::{Leaf, leaves, range};
use parm_frontend::discovery::Wire;
use parm_frontend::{Frontend, Timers};
use parm_protocol::InferenceService;
use parm_transport::server::Server;
use prometheus::Registry;
use schemars::schema_for;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cli::{Cli, Command};
use crate::settings::Settings;
use crate::{Failure, runtime};

/// Values for every setting, next to its bounds and their neighbours.
const VALUES: [&str; 9] = ["nan", "inf", "-inf", "-1", "0", "1", "9223372036854775807", "1e300", "\"\""];

/// Settings of every case: small models and free addresses.
const BASE: [&str; 8] = [
    "backend.engine.name=tract",
    "server.http=127.0.0.1:0",
    "server.grpc=127.0.0.1:0",
    "server.metrics=127.0.0.1:0",
    "backend.emulated.one.time_ms={kind=\"constant\",value=0.01}",
    "backend.emulated.one.input=[2]",
    "frontend.requests.default_deadline_ms=300",
    "frontend.dispatch.no_instance_grace_ms=50",
];

/// Cases that run at a time. Most of them wait for deadlines.
const AT_ONCE: usize = 16;

/// An outer bound on each wait. No wait is measured.
const PATIENCE: Duration = Duration::from_millis(500);

/// Panics of threads that are not tests. A task that panics would end without a message.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn extreme_settings_are_refused_by_name_or_served() {
    let printed = panic::take_hook();
    panic::set_hook(Box::new(move |told| {
        let thread = std::thread::current();
        if !thread.name().is_some_and(|name| name.contains("::")) {
            PANICS.lock().unwrap().push(told.to_string());
        }
        printed(told);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("limits")
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let schema = schema_for!(Settings).to_value();
    let all = leaves(&schema);
    let (mut refused, mut accepted, mut unnamed) = (0, Vec::new(), Vec::new());
    for leaf in &all {
        for text in values(leaf, &schema) {
            let case = Case::new(leaf, &text);
            match case.read() {
                Ok(settings) => accepted.push((case, settings)),
                Err(error) => {
                    let range = range(&schema, case.named.split('.')).unwrap_or_default();
                    let bounds = range.split("from").last().unwrap_or_default();
                    // Contradictions between settings are rejected after each was read, with other words.
                    let together = error.starts_with("share: ") && case.named.starts_with("share.");
                    if !together && (!error.contains(&case.named) || !error.contains(bounds)) {
                        unnamed.push(format!("--set {}: {error} (range: {range})", case.assignment));
                    }
                    refused += 1;
                }
            }
        }
    }
    assert!(unnamed.is_empty(), "these errors lack the setting or its range:\n{}", unnamed.join("\n"));
    let served = accepted.len();
    while !accepted.is_empty() {
        let chunk = accepted.split_off(accepted.len().saturating_sub(AT_ONCE));
        let cases: Vec<_> = chunk.iter().map(|(case, _)| case.assignment.clone()).collect();
        runtime.block_on(async {
            let mut running: JoinSet<()> =
                chunk.into_iter().map(|(case, settings)| serve(case, settings)).collect();
            while running.join_next().await.is_some() {}
        });
        let panics = std::mem::take(&mut *PANICS.lock().unwrap());
        assert!(panics.is_empty(), "with one of {cases:?}:\n{}", panics.join("\n"));
    }
    assert!(refused > all.len() && served > all.len(), "{refused} values refused by name, {served} served");
}

fn values(leaf: &Leaf, schema: &Value) -> BTreeSet<String> {
    let mut values: BTreeSet<_> = VALUES.iter().map(|text| (*text).to_owned()).collect();
    let Some(bounds) = range(schema, &leaf.path) else { return values };
    // TOML cannot hold this number. In other settings it would be text, such as the name of a file.
    values.insert(u64::MAX.to_string());
    for bound in bounds.split(' ').filter_map(|word| word.parse::<i128>().ok()) {
        values.extend([bound - 1, bound, bound + 1].map(|value| value.to_string()));
    }
    values
}

/// A setting and a value.
struct Case {
    assignment: String,
    /// The setting as errors name it.
    named: String,
    is_number: bool,
}

impl Case {
    fn new(leaf: &Leaf, text: &str) -> Self {
        let (path, value) = match leaf.path.as_slice() {
            [before @ .., _, last] if last == "*" => (&leaf.path[..before.len() + 1], format!("[{text}]")),
            whole => (whole, text.to_owned()),
        };
        let named = path.join(".").replace('*', "one");
        let is_number = leaf.schema["minimum"].is_number();
        Self { assignment: format!("{named}={value}"), named, is_number }
    }

    /// Reads the settings as `parm serve` and `parm worker` do.
    fn read(&self) -> Result<Settings, String> {
        let mut line = vec!["parm", "serve"];
        BASE.into_iter().chain([self.assignment.as_str()]).for_each(|text| line.extend(["--set", text]));
        let Command::Serve(flags) = Cli::try_parse_from(line).unwrap().command else { unreachable!() };
        let mut settings = Settings::for_serve(&flags).map_err(|error| format!("{error:#}"))?;
        // A model that takes a minute for each further row must not be measured.
        settings.backend.measure = Duration::ZERO;
        settings.frontend.instances.models_interval = Duration::from_millis(20);
        Ok(settings)
    }
}

/// Serves a few requests by instances of the frontend and by those of a worker.
async fn serve(case: Case, settings: Settings) {
    if let Err(failure) = try_to_serve(settings).await {
        // Missing files and addresses are found when they are opened; numbers are valid by then.
        let told = failure.to_string();
        assert!(!case.is_number || told.contains(&case.named), "--set {}: {told}", case.assignment);
    }
}

async fn try_to_serve(mut settings: Settings) -> Result<(), Failure> {
    let failed = |error: parm_frontend::Error| Failure::Configuration(error.into());
    let tls = runtime::tls(&mut settings)?;
    let (worker, _worker_stops) = worker(&settings, &tls).await?;
    settings.frontend.workers.push(format!("http://{worker}"));
    let wire = Arc::new(Wire::new(settings.frontend.client.clone()));
    let frontend = Frontend::start(settings.frontend, wire, Timers::Precise).map_err(failed)?;
    let server = Server::bind(settings.server, Arc::new(frontend.clone())).await;
    let server = server.map_err(runtime::server_failure)?.with_tls(tls);
    let address = server.addresses().http;
    let _stops = run(server);
    let metrics = Metrics::embedded(&Registry::new()).unwrap();
    let backend = settings.backend;
    let embedded = tokio::task::spawn_blocking(move || Embedded::start(backend, metrics)).await.unwrap();
    for instance in embedded.map_err(runtime::backend_failure)? {
        frontend.embed(Arc::new(instance), None).map_err(failed)?;
    }
    let settled = async {
        while !(frontend.is_settled() && frontend.is_ready()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = timeout(PATIENCE, settled).await;
    for _ in 0..4 {
        let _ = timeout(PATIENCE, ask(address)).await;
    }
    let _ = frontend.metrics();
    Ok(())
}

async fn worker(
    settings: &Settings,
    tls: &parm_transport::tls::Tls,
) -> Result<(SocketAddr, DropGuard), Failure> {
    let metrics = Metrics::worker(&Registry::new()).unwrap();
    let worker = Worker::start(settings.backend.clone(), metrics).map_err(runtime::backend_failure)?;
    let server = Server::bind(settings.server.clone(), Arc::new(worker.clone())).await;
    let server = server.map_err(runtime::server_failure)?.with_tls(tls.clone());
    let address = server.addresses().http;
    let stops = run(server);
    tokio::task::spawn_blocking(move || worker.load()).await.unwrap().map_err(runtime::backend_failure)?;
    Ok((address, stops))
}

fn run<S: InferenceService>(server: Server<S>) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(server.run(stop.clone()));
    stop.drop_guard()
}

/// Requests a prediction. The answer may be a rejection.
async fn ask(address: SocketAddr) -> std::io::Result<()> {
    let body = r#"{"inputs":[{"name":"input","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let mut stream = TcpStream::connect(address).await?;
    let head = "POST /v2/models/one/infer HTTP/1.1\r\nhost: parm\r\nconnection: close\r\ncontent-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await?;
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}
