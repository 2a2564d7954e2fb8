//! Scripted instance, the fake worker of all tests of the frontend.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use parking_lot::Mutex;
use parm_frontend::upstreams;
use parm_grants::Order;
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::fleet::{News, Watcher};
use parm_protocol::validate::independent;
use parm_protocol::{
    Broken, Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef,
    NamedTensor, OpaqueAnswer, OpaqueBody, OpaqueRequest, Place, ServerMetadata, Tensor, TensorMetadata,
};
use parm_transport::client::ROUTE;

/// Reaction of an instance to a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers after a while: `y` is twice `x`, `z` is `-x`.
    Answer(Duration),
    /// Fails after a while.
    Fail(Duration, Error),
    /// Never answers.
    Hang,
    /// Answers after a while, for other values of `x`.
    For(Duration, fn(f32) -> f32),
    /// Answers after a while, but fails with this error if a row begins with this value.
    Unless(Duration, f32, Error),
}

impl Act {
    /// Answers at once with NaN.
    pub(crate) const NAN: Self = Self::For(Duration::ZERO, |_| f32::NAN);

    /// Answers wrongly.
    pub(crate) const fn wrong(after: Duration) -> Self {
        Self::For(after, |value| 3.0 - 2.0 * value)
    }

    /// Answers like a model that is linear only on one side of zero.
    pub(crate) const fn bent(after: Duration) -> Self {
        Self::For(after, |value| value.max(0.0))
    }
}

/// A scripted instance.
pub(crate) struct Scripted {
    name: String,
    /// Reactions to the next requests; then `otherwise`.
    pub(crate) script: Arc<Mutex<VecDeque<Act>>>,
    otherwise: Mutex<Act>,
    /// Reactions of single models; the script is for the others.
    own: Mutex<BTreeMap<String, Act>>,
    models: Mutex<Vec<ModelMetadata>>,
    pub(crate) unloaded: Mutex<Vec<ModelIndex>>,
    /// Time to answer a request about its models.
    thinks: Mutex<Duration>,
    /// Configuration of every model, if the endpoint exists.
    config: Mutex<Option<ModelConfig>>,
    ready: Mutex<Result<bool, Error>>,
    /// Reported place.
    place: Mutex<Place>,
    /// Received requests.
    pub(crate) seen: Mutex<Vec<InferRequest>>,
    /// Received requests as an upstream server.
    pub(crate) forwarded: Mutex<Vec<Arc<OpaqueRequest>>>,
    /// Requests that must not run twice.
    pub(crate) once: AtomicUsize,
    /// Requests that were cancelled before an answer.
    pub(crate) cancelled: AtomicUsize,
    /// Orders to load and unload.
    pub(crate) orders: Mutex<Vec<String>>,
    /// Receiver of what it says.
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
    /// Received asks and returned grants.
    pub(crate) asks: Mutex<Vec<Order>>,
    /// It cannot list its models.
    pub(crate) unlisted: AtomicBool,
}

/// Counts a request as cancelled unless it was answered.
struct Pending<'a>(&'a Scripted, bool);

impl Scripted {
    pub(crate) fn new(name: &str, otherwise: Act) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            script: Arc::default(),
            otherwise: Mutex::new(otherwise),
            own: Mutex::default(),
            models: Mutex::new(vec![doubler("double")]),
            unloaded: Mutex::default(),
            thinks: Mutex::default(),
            config: Mutex::default(),
            ready: Mutex::new(Ok(true)),
            place: Mutex::default(),
            seen: Mutex::default(),
            forwarded: Mutex::default(),
            once: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            orders: Mutex::default(),
            watcher: Mutex::default(),
            asks: Mutex::default(),
            unlisted: AtomicBool::new(false),
        })
    }

    /// An instance that answers after `millis`.
    pub(crate) fn quick(name: &str, millis: u64) -> Arc<Self> {
        Self::new(name, Act::Answer(Duration::from_millis(millis)))
    }

    /// An upstream server. It begins its answers at once, and ends them after the time of its act.
    pub(crate) fn upstream(name: &str, act: Act) -> Arc<Self> {
        let server = Self::new(&format!("upstream+http://{name}:1"), act);
        let routes = upstreams::Config::default().client().unwrap().routes;
        let route = |name: &String| ModelMetadata {
            name: name.clone(),
            platform: ROUTE.to_owned(),
            ..ModelMetadata::default()
        };
        server.serve(&routes.iter().map(route).collect::<Vec<_>>());
        server
    }

    /// Says something on a connection.
    pub(crate) fn says(&self, connection: u64, news: News) {
        let watcher = self.watcher.lock().clone();
        watcher.expect("the instance is watched").heard(connection, news);
    }

    pub(crate) fn then(&self, act: Act) {
        self.script.lock().push_back(act);
    }

    /// Reports this place from now on.
    pub(crate) fn stands_at(&self, node: &str, zone: &str) {
        *self.place.lock() = Place::announced(node, zone, "");
    }

    pub(crate) fn becomes(&self, act: Act) {
        *self.otherwise.lock() = act;
    }

    pub(crate) fn serve(&self, models: &[ModelMetadata]) {
        *self.models.lock() = models.to_vec();
    }

    /// Delays answers to requests about its models.
    pub(crate) fn thinks_for(&self, time: Duration) {
        *self.thinks.lock() = time;
    }

    fn served(&self, model: &ModelRef) -> Option<ModelMetadata> {
        let is_it = |known: &&ModelMetadata| {
            known.name == model.name
                && model.version.as_ref().is_none_or(|wanted| known.versions.contains(wanted))
        };
        self.models.lock().iter().find(is_it).cloned()
    }

    /// Enables the configuration endpoint with this batch size.
    pub(crate) fn says_max_batch(&self, max_batch_size: i32) {
        self.config.lock().get_or_insert_default().max_batch_size = max_batch_size;
    }

    /// Reports this digest of its models' files.
    pub(crate) fn says_digest(&self, digest: &str) {
        let config = ModelConfig { max_batch_size: 64, ..ModelConfig::default() };
        *self.config.lock() = Some(config.with_digest(digest));
    }

    /// Sets the time of one of its models.
    pub(crate) fn model_takes(&self, model: &str, time: Duration) {
        self.model_does(model, Act::Answer(time));
    }

    /// Sets the reaction of one of its models.
    pub(crate) fn model_does(&self, model: &str, act: Act) {
        self.own.lock().insert(model.into(), act);
    }

    pub(crate) fn set_ready(&self, ready: Result<bool, Error>) {
        *self.ready.lock() = ready;
    }

    /// Rows of each request, in order.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.seen.lock().iter().map(|request| request.inputs[0].tensor.rows()).collect()
    }

    async fn act(&self, request: &InferRequest) -> Result<InferResponse, Error> {
        let own = self.own.lock().get(&request.model.name).cloned();
        let scripted = || self.script.lock().pop_front().unwrap_or_else(|| self.otherwise.lock().clone());
        let act = own.unwrap_or_else(scripted);
        match act {
            Act::Answer(after) => {
                tokio::time::sleep(after).await;
                Ok(answer(request))
            }
            Act::For(after, value) => {
                tokio::time::sleep(after).await;
                let mut other = request.clone();
                let x = &mut other.inputs[0].tensor;
                let values: Vec<f32> = x.as_f32().unwrap().iter().map(|own| value(*own)).collect();
                *x = Tensor::from_f32(x.shape(), &values).unwrap();
                Ok(answer(&other))
            }
            Act::Fail(after, error) => {
                tokio::time::sleep(after).await;
                Err(error)
            }
            Act::Unless(after, value, error) => {
                tokio::time::sleep(after).await;
                let rows = request.inputs[0].tensor.as_f32().unwrap();
                if rows.chunks(2).any(|row| row[0] == value) { Err(error) } else { Ok(answer(request)) }
            }
            Act::Hang => std::future::pending().await,
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Client for Scripted {
    fn peer(&self) -> &str {
        &self.name
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        self.seen.lock().push(request.clone());
        self.once.fetch_add(usize::from(context.once), Ordering::SeqCst);
        let most = self.config.lock().as_ref().map_or(i32::MAX, |config| config.max_batch_size);
        if let Err(changed) = independent(&request, most > 0) {
            return Box::pin(async { Err(changed) });
        }
        if let (rows, 1..) = (request.inputs[0].tensor.rows(), most)
            && rows > most as usize
        {
            return Box::pin(async move { Err(Error::BatchTooLarge { rows, limit: most as usize }) });
        }
        if self.served(&request.model).is_none() {
            let unknown = Error::UnknownModel { name: request.model.name };
            return Box::pin(async { Err(unknown) });
        }
        Box::pin(async move {
            let mut pending = Pending(self, false);
            let deadline = context.deadline.expect("every job has a deadline");
            let late = Error::DeadlineExceeded { waited: Duration::ZERO };
            let answer = tokio::time::timeout_at(deadline, self.act(&request)).await.unwrap_or(Err(late));
            pending.1 = true;
            answer
        })
    }

    fn forward(
        &self,
        request: Arc<OpaqueRequest>,
        _: CallContext,
    ) -> BoxFuture<'_, Result<OpaqueAnswer, Error>> {
        // A client that still sends sends more than is held.
        request.stream.iter().for_each(|stream| stream.push(vec![0; 2 << 20].into()));
        self.forwarded.lock().push(request);
        let act = self.otherwise.lock().clone();
        Box::pin(async move {
            let pause = match act {
                Act::Answer(pause) => pause,
                Act::Fail(_, error) => return Err(error),
                other => panic!("an upstream server does not {other:?}"),
            };
            let rest = futures::stream::once(async move {
                tokio::time::sleep(pause).await;
                Ok(Frame::data(Bytes::from(" ends")))
            });
            let body = match pause {
                Duration::ZERO => OpaqueBody::Whole("whole".into()),
                _ => OpaqueBody::Begun("begins".into(), Box::pin(StreamBody::new(rest))),
            };
            let (status, headers, broken) = (StatusCode::OK, HeaderMap::new(), Broken::default());
            Ok(OpaqueAnswer { status, headers, body, broken })
        })
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.lock() = Some(watcher);
    }

    fn tell(&self, order: Order) {
        self.asks.lock().push(order);
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async { self.ready.lock().clone() })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        let place = self.place.lock().clone();
        Box::pin(async { Ok(ServerMetadata { place, ..ServerMetadata::default() }) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let (found, thinks) = (self.served(model), *self.thinks.lock());
        Box::pin(async move {
            tokio::time::sleep(thinks).await;
            found.ok_or_else(|| Error::UnknownModel { name: model.name.clone() })
        })
    }

    fn model_config<'a>(&'a self, _: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
        let (config, thinks) = (self.config.lock().clone(), *self.thinks.lock());
        Box::pin(async move {
            tokio::time::sleep(thinks).await;
            config.ok_or_else(|| Error::Unimplemented { what: "configuration".into() })
        })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        let entry = |model: &ModelMetadata| ModelIndex {
            name: model.name.clone(),
            version: model.versions.first().cloned().unwrap_or_default(),
            state: "READY".into(),
            reason: String::new(),
        };
        let mut index: Vec<_> = self.models.lock().iter().map(entry).collect();
        index.extend(self.unloaded.lock().iter().cloned());
        let unlisted = self.unlisted.load(Ordering::Relaxed);
        let missing = || Error::Unimplemented { what: "the index".into() };
        Box::pin(async move { if unlisted { Err(missing()) } else { Ok(index) } })
    }

    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.orders.lock().push(format!("load {name}"));
        if !name.starts_with("ghost") {
            self.models.lock().push(doubler(name));
        }
        self.unloaded.lock().retain(|model| model.name != name);
        Box::pin(async { Ok(()) })
    }

    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.orders.lock().push(format!("unload {name}"));
        self.models.lock().retain(|model| model.name != name);
        let (state, reason) = ("UNAVAILABLE".into(), "unloaded by request".into());
        self.unloaded.lock().push(ModelIndex { name: name.into(), version: "1".into(), state, reason });
        Box::pin(async { Ok(()) })
    }
}

/// A model with rows of two numbers `x`, and outputs `y` and `z` of the same shape.
pub(crate) fn doubler(name: &str) -> ModelMetadata {
    let tensor =
        |name: &str| TensorMetadata { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 2] };
    ModelMetadata {
        name: name.into(),
        versions: vec!["1".into()],
        platform: "scripted".into(),
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y"), tensor("z")],
    }
}

fn answer(request: &InferRequest) -> InferResponse {
    let x = &request.inputs[0].tensor;
    let times = |factor: f32| {
        let values: Vec<f32> = x.as_f32().unwrap().iter().map(|value| value * factor).collect();
        Tensor::from_f32(x.shape(), &values).unwrap()
    };
    let all = [("y", times(2.0)), ("z", times(-1.0))];
    let wanted =
        |name: &str| request.outputs.is_empty() || request.outputs.iter().any(|output| output.name == name);
    let outputs = all.into_iter().filter(|(name, _)| wanted(name));
    InferResponse {
        model_name: request.model.name.clone(),
        model_version: "1".into(),
        id: request.id.clone(),
        outputs: outputs.map(|(name, tensor)| NamedTensor::new(name, tensor)).collect(),
        ..Default::default()
    }
}
