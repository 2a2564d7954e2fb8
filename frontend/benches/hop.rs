//! Benchmark of the frontend's own cost per request.
//!
//! It measures the time from the server's call to the instance's client, without a network.
//!
//! A plain program that prints a table: `cargo bench -p parm-frontend --bench hop`.

#![allow(clippy::print_stdout, missing_docs)]
#![allow(clippy::disallowed_methods)] // a benchmark reads the machine's clock

use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_frontend::discovery::Wire;
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelIndex, ModelMetadata, ModelRef,
    NamedTensor, Parameters, ServerMetadata, Tensor, TensorMetadata, Transport,
};
use parm_settings::PolicyKind;

/// Answers at once.
struct Null(Tensor);

impl Client for Null {
    fn peer(&self) -> &str {
        "null"
    }

    fn infer(
        &self,
        request: InferRequest,
        _context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(async move {
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

    fn model_metadata<'a>(&'a self, _model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let tensor = |name: &str, columns| TensorMetadata {
            name: name.into(),
            datatype: "FP32".into(),
            shape: vec![-1, columns],
        };
        Box::pin(async move {
            Ok(ModelMetadata {
                name: "null".into(),
                inputs: vec![tensor("x", 784)],
                outputs: vec![tensor("y", 10)],
                ..ModelMetadata::default()
            })
        })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        let model = ModelIndex {
            name: "null".into(),
            version: "1".into(),
            state: "READY".into(),
            reason: String::new(),
        };
        Box::pin(async { Ok(vec![model]) })
    }
}

fn request() -> InferRequest {
    InferRequest {
        model: ModelRef::latest("null"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", Tensor::from_f32([1, 784].as_slice(), &[0.5; 784]).unwrap())],
        outputs: Vec::new(),
    }
}

async fn frontend(policy: PolicyKind, instances: usize) -> Frontend {
    let mut config = Config::default();
    config.dispatch.policy = policy;
    let frontend = Frontend::start(config, Arc::new(Wire::default()), Timers::Precise).unwrap();
    let answer = Tensor::from_f32([1, 10].as_slice(), &[0.1; 10]).unwrap();
    for _ in 0..instances {
        frontend.embed(Arc::new(Null(answer.clone())), None).unwrap();
    }
    let all = format!("parm_usable_instances{{model=\"null\",version=\"1\"}} {instances}");
    while !frontend.metrics().contains(&all) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    frontend
}

/// Sends one request after the other; returns the times, sorted.
async fn client(frontend: Frontend, count: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    let request = request();
    for _ in 0..count {
        let arrived = tokio::time::Instant::now();
        let context = Context::new(arrived, Transport::Http);
        frontend.infer(request.clone(), context).await.unwrap();
        times.push(arrived.elapsed());
    }
    times
}

fn main() {
    println!("| policy | workers | in flight | requests/s | p50 us | p99 us |\n|---|---|---|---|---|---|");
    for workers in [1, 2] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
        for (policy, name) in [(PolicyKind::None, "none"), (PolicyKind::Hedge, "hedge")] {
            for in_flight in [1, 16] {
                let (elapsed, times) = runtime.block_on(async {
                    let frontend = frontend(policy, 16).await;
                    tokio::spawn(client(frontend.clone(), 2000)).await.unwrap();
                    let start = Instant::now();
                    let each = 200_000 / in_flight;
                    let clients: Vec<_> =
                        (0..in_flight).map(|_| tokio::spawn(client(frontend.clone(), each))).collect();
                    let mut times = Vec::new();
                    for client in clients {
                        times.extend(client.await.unwrap());
                    }
                    (start.elapsed(), times)
                });
                report(name, workers, in_flight, elapsed, times);
            }
        }
    }
}

fn report(policy: &str, workers: usize, in_flight: usize, elapsed: Duration, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    println!("| {policy} | {workers} | {in_flight} | {rate:.0} | {:.1} | {:.1} |", at(0.5), at(0.99));
}
