//! What a frontend with its models inside costs a query, beside calling the engine in a loop: `cargo bench -p parm --bench embedded`.
//!
//! The LeNet-5 of `models/`, of one row (some tens of microseconds) and of as many rows as take about a millisecond; at one in
//! flight, and at all cores. Both ways alternate, and medians over the rounds are printed.

#![allow(clippy::print_stdout, missing_docs)]
#![allow(clippy::disallowed_methods)] // a benchmark reads the machine's clock

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_backend::engine::{self, Model, Options};
use parm_backend::{Config as BackendConfig, Embedded, Metrics};
use parm_frontend::discovery::Wire;
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::{
    Context, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Tensor, Transport,
};
use prometheus::Registry;

const MODEL: &str = "fashion-lenet";
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);

/// Queries a second, and the median time of one in microseconds.
struct Reading {
    rate: f64,
    median: f64,
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build().unwrap();
    let frontend = runtime.block_on(frontend(cores));
    let rows = (1_000.0 / run_engine(&input(1), 1).median).round().max(1.0) as usize;
    println!(
        "| rows | at once | engine alone: us, queries/s | embedded: us, queries/s | added us | rate to the engine's |\n|---|---|---|---|---|---|"
    );
    for rows in [1, rows] {
        let input = input(rows);
        for (loops, callers) in [(1, 1), (cores, 2 * cores)] {
            let mut readings: [Vec<Reading>; 2] = Default::default();
            for _ in 0..ROUNDS {
                readings[0].push(run_engine(&input, loops));
                readings[1].push(runtime.block_on(ask(&frontend, &input, callers)));
            }
            let [alone, inside] = readings.map(|all| {
                let of = |value: fn(&Reading) -> f64| median(all.iter().map(value).collect());
                Reading { rate: of(|one| one.rate), median: of(|one| one.median) }
            });
            println!(
                "| {rows} | {loops} | {:.1}, {:.0} | {:.1}, {:.0} | {:.1} | {:.3} |",
                alone.median,
                alone.rate,
                inside.median,
                inside.rate,
                inside.median - alone.median,
                inside.rate / alone.rate
            );
        }
    }
}

fn models() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/models"))
}

fn input(rows: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * 784).map(|at| (at % 251) as f32 / 251.0).collect();
    Tensor::from_f32([rows, 1, 28, 28].as_slice(), &values).unwrap()
}

fn model() -> Box<dyn Model> {
    let options = Options::default();
    let engine = engine::choose("tract", &options).unwrap().engine;
    engine.load(&models().join(MODEL).join("1/model.onnx"), &options).unwrap()
}

/// So many threads call the engine in a loop.
fn run_engine(input: &Tensor, loops: usize) -> Reading {
    let one = || {
        let mut model = model();
        let inputs = [input.clone()];
        (0..20).for_each(|_| drop(model.run(&inputs).unwrap()));
        move || {
            let mut times = Vec::new();
            let until = Instant::now() + ROUND;
            while Instant::now() < until {
                let began = Instant::now();
                model.run(&inputs).unwrap();
                times.push(began.elapsed());
            }
            times
        }
    };
    let mut ready: Vec<_> = (0..loops).map(|_| one()).collect();
    let began = Instant::now();
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = ready.iter_mut().map(|run| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    reading(times, began.elapsed())
}

/// So many callers ask the frontend, each again when it is answered.
async fn ask(frontend: &Frontend, input: &Tensor, callers: usize) -> Reading {
    let began = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (frontend, request) = (frontend.clone(), request(input));
            tokio::spawn(async move {
                let mut times = Vec::new();
                let until = Instant::now() + ROUND;
                while Instant::now() < until {
                    let arrived = Instant::now();
                    frontend.infer(request.clone(), context(arrived)).await.unwrap();
                    times.push(arrived.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.unwrap());
    }
    reading(times, began.elapsed())
}

fn request(input: &Tensor) -> InferRequest {
    InferRequest {
        model: ModelRef::latest(MODEL),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("input", input.clone())],
        outputs: Vec::new(),
    }
}

fn context(arrived: Instant) -> Context {
    let transport = Transport::Http;
    Context { arrived, deadline: None, transport, traceparent: None, caller: None, key: None }
}

async fn frontend(instances: usize) -> Frontend {
    let mut config = BackendConfig {
        models: Some(models().into()),
        load: vec![MODEL.into()],
        instances: NonZeroUsize::new(instances).unwrap(),
        ..BackendConfig::default()
    };
    config.engine.name = "tract".into();
    let metrics = Metrics::embedded(&Registry::new()).unwrap();
    let inside =
        tokio::task::spawn_blocking(move || Embedded::start(config, metrics)).await.unwrap().unwrap();
    let frontend = Frontend::start(Config::default(), Arc::new(Wire::default()), Timers::Precise).unwrap();
    for instance in inside {
        frontend.embed(Arc::new(instance), None).unwrap();
    }
    let all = format!("parm_usable_instances{{model=\"{MODEL}\",version=\"1\"}} {instances}");
    while !frontend.metrics().contains(&all) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    frontend
}

fn reading(times: Vec<Duration>, elapsed: Duration) -> Reading {
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    Reading { rate, median: median(times.iter().map(|time| time.as_nanos() as f64 / 1e3).collect()) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
