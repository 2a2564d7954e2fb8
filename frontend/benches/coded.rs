//! Benchmark of the cost of coding and stand-ins at the frontend.
//!
//! It sends the same open traffic of 3 KB queries with and without a code of k = 4 or a stand-in of a quarter of the
//! cost, over instances with a fixed service time. It prints the processor time of the frontend's threads per query.
//! Clients and instances have threads of their own, which are not counted, with precise timers: tokio's would cause a
//! burst every millisecond. `cargo bench -p parm-frontend --bench coded` takes six minutes.
//!
//! Instances are in the process, so the cost of the network is missing: the printed relative cost is an upper bound.
//! Runs of the variants alternate.

#![allow(clippy::print_stdout, missing_docs)]
#![allow(clippy::disallowed_methods)] // a benchmark reads the machine's clock

use std::fs::DirEntry;
use std::num::NonZeroU8;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parm_frontend::discovery::Wire;
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelIndex, ModelMetadata, ModelRef,
    NamedTensor, Parameters, ServerMetadata, Tensor, TensorMetadata, Transport,
};
use parm_settings::PolicyKind;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SERVICE: Duration = Duration::from_millis(5);
const INSTANCES: usize = 16;
const QUERIES: usize = 30_000;
const ROUNDS: usize = 5;
/// Interval between two queries: 60 % of the instances' capacity.
const GAP: Duration = Duration::from_nanos(5_000_000 / 16 * 10 / 6);

const MODEL: &str = "slow";
const STAND_IN: &str = "small";

/// Answers after a while: the stand-in's answers and those of the model each come in order, and have a thread of their own.
struct Slow(Tensor, mpsc::Sender<Due>, mpsc::Sender<Due>);

/// An answer with its due time.
type Due = (Instant, oneshot::Sender<()>);

/// Runs a model of all instances in one thread.
fn pass() -> mpsc::Sender<Due> {
    let (give, given) = mpsc::channel::<Due>();
    let run = move || {
        for (at, finish) in given {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            // The client may be gone.
            let _ = finish.send(());
        }
    };
    std::thread::Builder::new().name("instances".into()).spawn(run).unwrap();
    give
}

impl Client for Slow {
    fn peer(&self) -> &str {
        "slow"
    }

    fn infer(&self, request: InferRequest, _: CallContext) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(async move {
            let is_small = request.model.name == STAND_IN;
            let (took, passes) = if is_small { (SERVICE / 4, &self.2) } else { (SERVICE, &self.1) };
            let (finish, finished) = oneshot::channel();
            passes.send((Instant::now() + took, finish)).unwrap();
            finished.await.unwrap();
            Ok(InferResponse {
                model_name: request.model.name,
                model_version: "1".into(),
                id: request.id,
                outputs: vec![NamedTensor::new("y", self.0.clone())],
                ..Default::default()
            })
        })
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async { Ok(true) })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async { Ok(ServerMetadata::default()) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let tensor = |name: &str, columns| TensorMetadata {
            name: name.into(),
            datatype: "FP32".into(),
            shape: vec![-1, columns],
        };
        let (inputs, outputs) = (vec![tensor("x", 784)], vec![tensor("y", 10)]);
        Box::pin(async move {
            Ok(ModelMetadata { name: model.name.clone(), inputs, outputs, ..ModelMetadata::default() })
        })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        let model = |name: &str| ModelIndex {
            name: name.into(),
            version: "1".into(),
            state: "READY".into(),
            reason: String::new(),
        };
        let models = vec![model(MODEL), model(STAND_IN)];
        Box::pin(async { Ok(models) })
    }
}

/// A variant to measure.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    policy: PolicyKind,
    coded: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "hedge", policy: PolicyKind::Hedge, coded: false },
    Way { name: "parm+, k = 4", policy: PolicyKind::ParmPlus, coded: true },
    Way { name: "parm, k = 4", policy: PolicyKind::Parm, coded: true },
    Way { name: "stand-in, c = 0.25", policy: PolicyKind::StandIn, coded: false },
];

async fn frontend(way: Way) -> Frontend {
    let mut config = Config::default();
    config.dispatch.policy = way.policy;
    if way.coded {
        let coding = &mut config.dispatch.coding;
        coding.code = Some(parm_encoder::Kind::Mds);
        coding.k = NonZeroU8::new(4).unwrap();
        coding.parm_plus.k_follows_load = false;
    }
    let stands_in = way.policy == PolicyKind::StandIn;
    if stands_in {
        config.dispatch.stand_in.model = Some(STAND_IN.into());
    }
    let frontend = Frontend::start(config, Arc::new(Wire::default()), Timers::Precise).unwrap();
    let answer = Tensor::from_f32([1, 10].as_slice(), &[0.1; 10]).unwrap();
    // The paper's split takes extra instances for parities: 16 serve queries under each policy.
    let instances = if way.policy == PolicyKind::Parm { INSTANCES * 5 / 4 } else { INSTANCES };
    let (model, stand_in) = (pass(), pass());
    for _ in 0..instances {
        let slow = Slow(answer.clone(), model.clone(), stand_in.clone());
        frontend.embed(Arc::new(slow), None).unwrap();
    }
    // Coded once it is known to be linear, as a constant is.
    let sets_up = |page: String| {
        (!way.coded || page.contains("parm_codes{")) && (!stands_in || page.contains("parm_stand_in_cost{"))
    };
    while !frontend.is_settled() || !sets_up(frontend.metrics()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    frontend
}

/// Processor time of a query in microseconds, and parities or stand-ins per query.
async fn run(way: Way) -> [f64; 2] {
    let frontend = frontend(way).await;
    send(&frontend, QUERIES / 10).await;
    let before = cpu();
    send(&frontend, QUERIES).await;
    let cpu_us = (cpu() - before).as_secs_f64() * 1e6 / QUERIES as f64;
    let page = frontend.metrics();
    let started = ["parm_parities_total{event=\"sent\"", "parm_stand_ins_total{event=\"late\""];
    let counted = page.lines().filter(|line| started.iter().any(|start| line.starts_with(start)));
    let extra: f64 = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    [cpu_us, extra / (QUERIES * 11 / 10) as f64]
}

/// Sends queries at a steady pace; the generator does the same work for each variant.
async fn send(frontend: &Frontend, count: usize) {
    let (frontend, runtime) = (frontend.clone(), Handle::current());
    let (sent, all) = oneshot::channel();
    let clients = std::thread::Builder::new().name("clients".into());
    clients.spawn(move || drop(sent.send(send_all(&frontend, &runtime, count)))).unwrap();
    for asked in all.await.unwrap() {
        asked.await.unwrap();
    }
}

fn send_all(frontend: &Frontend, runtime: &Handle, count: usize) -> Vec<JoinHandle<()>> {
    let start = Instant::now();
    let data: Vec<f32> = (0..784).map(|i| (i % 29) as f32 / 29.0).collect();
    let tensor = Tensor::from_f32([1, 784].as_slice(), &data).unwrap();
    let request = InferRequest {
        model: ModelRef::latest(MODEL),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: Vec::new(),
    };
    let send = |index: usize| {
        let due = start + GAP * index as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (frontend, request) = (frontend.clone(), request.clone());
        runtime.spawn(async move {
            let context = Context::new(tokio::time::Instant::now(), Transport::Http);
            frontend.infer(request, context).await.unwrap();
        })
    };
    (0..count).map(send).collect()
}

/// Processor time of the frontend's threads, user and system.
fn cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read =
        |thread: &DirEntry, file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
    let own = threads.filter(|thread| !matches!(read(thread, "comm").trim(), "clients" | "instances"));
    let spent = own.filter_map(|thread| read(&thread, "schedstat").split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(spent.sum())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("| way | CPU us per query | relative to hedge | parities or stand-ins per query |");
    println!("|---|---|---|---|");
    let mut all = WAYS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (way, runs) in WAYS.iter().zip(&mut all) {
            runs.push(runtime.block_on(async { tokio::spawn(run(*way)).await.unwrap() }));
        }
    }
    let middle = |runs: &[[f64; 2]], place: usize| {
        let mut values: Vec<f64> = runs.iter().map(|run| run[place]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let plain = middle(&all[0], 0);
    for (way, runs) in WAYS.iter().zip(&all) {
        let (cpu, extra) = (middle(runs, 0), middle(runs, 1));
        println!("| {} | {cpu:.1} | {:+.1} % | {extra:.2} |", way.name, 100.0 * (cpu / plain - 1.0));
    }
}
