//! Workers with emulated models, and requests to them.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use parm_backend::engine::Spec;
use parm_backend::faults::Plan;
use parm_backend::{Config, EngineConfig, Metrics, Worker};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelRef, NamedTensor, Parameter,
    Parameters, Tensor, Transport,
};
use parm_workload::distribution::Distribution;
use prometheus::Registry;
use tokio::task::JoinHandle;

/// A worker and its metrics.
pub(crate) struct Served {
    pub(crate) worker: Worker,
    pub(crate) registry: Registry,
}

/// An emulated model with rows of 4 values that immediately returns two: `[a + c, b + d]`.
pub(crate) fn quick() -> Spec {
    let outputs = NonZeroUsize::new(2).unwrap();
    Spec { input: vec![4], outputs, time_ms: Distribution::Constant { value: 0.0 }, ..Spec::default() }
}

/// A configuration with the quick model `m` and fault injection.
pub(crate) fn config() -> Config {
    Config { emulated: BTreeMap::from([("m".into(), quick())]), faults: true, ..Config::default() }
}

/// Writes a version of a model and the files beside it. The model appears at once, so that no partial file is visible.
pub(crate) fn put(root: &Path, model: &str, version: u64, file: &[u8], beside: &[(&str, &str)]) {
    let folder = root.join(model).join(version.to_string());
    fs::create_dir_all(&folder).unwrap();
    for (name, content) in beside {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(root.join("new"), file).unwrap();
    fs::rename(root.join("new"), folder.join("model.onnx")).unwrap();
}

/// A configuration with the models of a folder, on the engine that every machine has.
pub(crate) fn of_folder(root: &Path) -> Config {
    let engine = EngineConfig { name: "tract".into(), ..EngineConfig::default() };
    Config { models: Some(root.into()), engine, faults: true, ..Config::default() }
}

impl Served {
    pub(crate) fn start(config: Config) -> Self {
        let registry = Registry::new();
        let worker = Worker::start(config, Metrics::worker(&registry).unwrap()).unwrap();
        worker.load().unwrap();
        Self { worker, registry }
    }

    /// Holds every run until [`release`](Self::release).
    pub(crate) fn stall(&self) {
        self.worker
            .faults()
            .unwrap()
            .set(Plan { stall: Duration::from_secs(3600), ..Plan::default() })
            .unwrap();
    }

    pub(crate) fn release(&self) {
        self.worker.faults().unwrap().set(Plan::default()).unwrap();
    }

    /// Sends a request, which is in the queue or on an instance when this returns.
    pub(crate) async fn send(&self, request: InferRequest) -> JoinHandle<Result<InferResponse, Error>> {
        self.send_as(request, context()).await
    }

    /// Sends a request for a caller.
    pub(crate) async fn send_as(
        &self,
        request: InferRequest,
        context: Context,
    ) -> JoinHandle<Result<InferResponse, Error>> {
        let worker = self.worker.clone();
        let (sent, submitted) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let mut answer = std::pin::pin!(worker.infer(request, context));
            // The first poll queues it.
            let first = std::future::poll_fn(|task| std::task::Poll::Ready(answer.as_mut().poll(task))).await;
            let _ = sent.send(());
            match first {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => answer.await,
            }
        });
        submitted.await.unwrap();
        task
    }

    pub(crate) async fn infer(&self, request: InferRequest) -> Result<InferResponse, Error> {
        self.worker.infer(request, context()).await
    }

    /// The sum of a metric over its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        metrics.iter().map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value()).sum()
    }

    /// Waits until an instance has taken all requests.
    pub(crate) async fn until_pending(&self, count: f64) {
        while self.metric("nv_inference_pending_request_count") != count {
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) fn context() -> Context {
    let (arrived, transport) = (tokio::time::Instant::now(), Transport::Http);
    Context::new(arrived, transport)
}

/// A request for model `m` with these rows of 4 values.
pub(crate) fn request(values: &[f32]) -> InferRequest {
    let input = Tensor::from_f32([values.len() / 4, 4].as_slice(), values).unwrap();
    InferRequest {
        model: ModelRef::latest("m"),
        id: "7".into(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("input", input)],
        outputs: vec![],
    }
}

pub(crate) fn with(mut request: InferRequest, parameter: &str, value: impl Into<Parameter>) -> InferRequest {
    request.parameters.insert(parameter.into(), value.into());
    request
}

/// The values of the first output.
pub(crate) fn values(response: &InferResponse) -> Vec<f32> {
    response.outputs[0].tensor.as_f32().unwrap().into_owned()
}

/// Longer than any test waits.
pub(crate) const LONG: Duration = Duration::from_secs(60);
