//! Cost of a query in an embedded frontend, compared with calling the engine in a loop.
//!
//! Run it with `cargo bench -p parm --bench embedded`. It uses two models of one row: the LeNet-5 of `models/`, of some
//! tens of microseconds, and a generated one of about a millisecond. Each runs with one query in flight and with one per
//! core (twice as many callers of the frontend, so that one waits for each core; as in `parm serve`, one thread more).
//! Both ways alternate, and medians over the rounds are printed. The loop runs plans for the exact shape, as instances
//! do.

#![allow(clippy::print_stdout, missing_docs)]
#![allow(clippy::disallowed_methods)] // a benchmark reads the machine's clock

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_backend::engine::{self, Model, Options};
use parm_backend::{Config as BackendConfig, Embedded, Metrics};
use parm_frontend::discovery::Wire;
use parm_frontend::{Config, Frontend, Timers};
use parm_parity_models::onnx::{Builder, Conv, Dense, Value};
use parm_protocol::{
    Context, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Shape, Tensor, Transport,
};
use prometheus::Registry;

const QUICK: &str = "fashion-lenet";
const SLOW: &str = "convolutions";
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);

/// Queries per second, and the median time of one in microseconds.
struct Reading {
    rate: f64,
    median: f64,
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cores + 1).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    make_models(folder.path());
    let frontend = runtime.block_on(frontend(folder.path(), cores));
    println!(
        "| model | at once | engine alone: us, queries/s | embedded: us, queries/s | added us | rate to the engine's |\n|---|---|---|---|---|---|"
    );
    for name in [QUICK, SLOW] {
        for (loops, callers) in [(1, 1), (cores, 2 * cores)] {
            let mut readings: [Vec<Reading>; 2] = Default::default();
            for _ in 0..ROUNDS {
                readings[0].push(run_engine(&folder.path().join(name), loops));
                readings[1].push(runtime.block_on(ask(&frontend, name, callers)));
            }
            let [alone, inside] = readings.map(|all| {
                let of = |value: fn(&Reading) -> f64| median(all.iter().map(value).collect());
                Reading { rate: of(|one| one.rate), median: of(|one| one.median) }
            });
            println!(
                "| {name} | {loops} | {:.1}, {:.0} | {:.1}, {:.0} | {:.1} | {:.3} |",
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

/// Writes the shipped network, and one of three convolutions of 32 channels.
fn make_models(folder: &Path) {
    let shipped = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/models")).join(QUICK).join("1/model.onnx");
    let mut net = Builder::new(SLOW, 1);
    let mut value = net.input(Value::batch_of_f32("input", &[1, 28, 28]));
    for (at, inputs) in [1, 32, 32].into_iter().enumerate() {
        value = net.conv(&format!("conv{at}"), &value, Conv::same(inputs, 32, 3)).unwrap();
        value = net.node("Relu", &format!("relu{at}"), &[&value]);
    }
    value = net.node("GlobalAveragePool", "average", &[&value]);
    value = net.node("Flatten", "flat", &[&value]);
    net.dense("output", &value, Dense { inputs: 32, outputs: 10 }).unwrap();
    net.output(Value::batch_of_f32("output", &[10]));
    for (name, bytes) in [(QUICK, fs::read(shipped).unwrap()), (SLOW, net.build().unwrap().bytes().to_vec())]
    {
        let version = folder.join(name).join("1");
        fs::create_dir_all(&version).unwrap();
        fs::write(version.join("model.onnx"), bytes).unwrap();
    }
}

fn input() -> Tensor {
    let values: Vec<f32> = (0..784).map(|at| (at % 251) as f32 / 251.0).collect();
    Tensor::from_f32([1, 1, 28, 28].as_slice(), &values).unwrap()
}

fn model(folder: &Path) -> Box<dyn Model> {
    let options = Options::default();
    let engine = engine::choose("tract", &options).unwrap().engine;
    let mut model = engine.load(&folder.join("1/model.onnx"), &options).unwrap();
    model.prepare(&[Shape::from(input().shape())]).unwrap();
    model
}

/// Calls the engine in a loop on several threads.
fn run_engine(folder: &Path, loops: usize) -> Reading {
    let one = || {
        let mut model = model(folder);
        let inputs = [input()];
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

/// Calls the frontend from several tasks, each again when it is answered.
async fn ask(frontend: &Frontend, name: &str, callers: usize) -> Reading {
    let began = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (frontend, request) = (frontend.clone(), request(name));
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

fn request(name: &str) -> InferRequest {
    InferRequest {
        model: ModelRef::latest(name),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("input", input())],
        outputs: Vec::new(),
    }
}

fn context(arrived: Instant) -> Context {
    let transport = Transport::Http;
    Context::new(arrived.into(), transport)
}

async fn frontend(models: &Path, instances: usize) -> Frontend {
    let mut config = BackendConfig {
        models: Some(models.into()),
        load: vec![QUICK.into(), SLOW.into()],
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
    for name in [QUICK, SLOW] {
        let all = format!("parm_usable_instances{{model=\"{name}\",version=\"1\"}} {instances}");
        while !frontend.metrics().contains(&all) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
