//! Fake servers that behave as the schedule defines.
//!
//! Their model identifies each row by its answer: `y` is `x` times a number of the model and version, plus an offset
//! from the client's parameters.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use parm_frontend::discovery::{Connect, Name};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Error, InferRequest, InferResponse, ModelIndex, ModelMetadata, ModelRef, NamedTensor, OpaqueAnswer,
    OpaqueRequest, Parameters, ServerMetadata, Tensor, TensorMetadata,
};
use parm_transport::client::ROUTE;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::dice::Dice;
use crate::schedule::{Guilt, Model, Schedule, Serving, Source, Temper, address};
use crate::world::World;

/// A server.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) number: usize,
    pub(crate) address: String,
    pub(crate) world: Arc<World>,
    pace: (u64, u64),
    question: Duration,
    /// Its routes, if it is an upstream server.
    routes: Arc<[String]>,
    dice: Arc<Mutex<Dice>>,
}

/// A job at a server, while it is there.
struct Job<'a> {
    instance: &'a Instance,
    rows: Vec<usize>,
}

/// All servers, and the members of DNS names.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) instances: Vec<Instance>,
    pub(crate) world: Arc<World>,
}

/// The factor from `x` to `y`.
pub(crate) fn factor(model: Model, version: u8) -> f32 {
    match model {
        Model::Asked(number) => 2.0 + f32::from(number) + 4.0 * f32::from(version - 1),
        Model::Cheap => -3.0,
    }
}

/// The offset of output `y` from a client's parameter.
pub(crate) fn shifted(shift: u64) -> f32 {
    100_000.0 * shift as f32
}

impl Instance {
    /// `routes` are those of upstream servers.
    pub(crate) fn new(number: usize, schedule: &Schedule, world: Arc<World>, routes: Arc<[String]>) -> Self {
        let worker = &schedule.setup.workers[number];
        let is_upstream = worker.source == Source::Upstream;
        Self {
            number,
            address: address(number, worker.source),
            world,
            pace: worker.pace,
            question: Duration::from_millis(worker.question),
            routes: if is_upstream { routes } else { Arc::default() },
            dice: Arc::new(Mutex::new(Dice::new(schedule.seed ^ (number as u64) << 32))),
        }
    }

    /// The time of a job of a server that is slower by this factor.
    pub(crate) fn took(&self, factor: u64) -> Duration {
        Duration::from_millis(self.dice.lock().range(self.pace.0, self.pace.1 + 1) * factor)
    }

    pub(crate) fn temper(&self) -> watch::Receiver<Temper> {
        self.world.0.lock().servers[self.number].temper.subscribe()
    }

    fn gone(&self) -> Error {
        Error::Transport { peer: self.address.clone(), message: "connection refused".into() }
    }

    /// Waits while nothing is answered; an error if the server is or gets lost.
    pub(crate) async fn listens(&self) -> Result<Temper, Error> {
        let mut temper = self.temper();
        let now = *temper.wait_for(|temper| *temper != Temper::Deaf).await.map_err(|_| self.gone())?;
        if now == Temper::Gone { Err(self.gone()) } else { Ok(now) }
    }

    async fn run(&self, request: &InferRequest, job: &Job<'_>) -> Result<InferResponse, Error> {
        let mut temper = self.temper();
        let now = *temper.borrow_and_update();
        let blips = std::mem::take(&mut self.world.0.lock().servers[self.number].blips);
        let took = self.took(if let Temper::Slow(by) = now { by } else { 1 });
        let work = async {
            if matches!(now, Temper::Hung | Temper::Deaf) {
                let still = |temper: &Temper| !matches!(temper, Temper::Hung | Temper::Deaf);
                let _ = self.temper().wait_for(still).await;
            }
            sleep(took).await;
        };
        let gone = temper.wait_for(|temper| *temper == Temper::Gone);
        tokio::select! {
            biased;
            _ = gone => { self.fault(job); return Err(self.gone()); }
            () = work => {}
        }
        if blips {
            self.fault(job);
            return Err(Error::Overloaded { message: "busy".into(), retry_after: Duration::from_millis(1) });
        }
        let lacks = |_: &Error| {
            self.fault(job);
            self.world.0.lock().lacks(self.number);
        };
        let serving = self.serving(&request.model).inspect_err(lacks)?;
        let one =
            matches!((now, serving.model), (Temper::FailingOne(one), Model::Asked(asked)) if one == asked);
        if now == Temper::Failing || one {
            self.fault(job);
            return Err(Error::Internal { message: "engine failure".into() });
        }
        self.spoiled(job)?;
        if now == Temper::Short {
            self.fault(job);
        }
        answer(request, serving, now)
    }

    /// Fails a job with a row that every server fails.
    fn spoiled(&self, job: &Job<'_>) -> Result<(), Error> {
        let mut truth = self.world.0.lock();
        let has = |guilt| job.rows.iter().any(|row| truth.rows[*row].guilt == guilt);
        let (bad, poison) = (has(Guilt::Bad), has(Guilt::Poison));
        if bad || poison {
            job.rows.iter().for_each(|row| truth.rows[*row].neighbours += 1);
        }
        match (bad, poison) {
            (true, _) => Err(Error::Malformed { message: "index out of range".into() }),
            (false, true) => {
                truth.servers[self.number].poisoned += 1;
                Err(Error::Internal { message: "the model failed on this input".into() })
            }
            (false, false) => Ok(()),
        }
    }

    fn fault(&self, job: &Job<'_>) {
        let mut truth = self.world.0.lock();
        job.rows.iter().for_each(|row| truth.rows[*row].faults += 1);
    }

    /// The model of a request: the newest unless it has a version.
    fn serving(&self, model: &ModelRef) -> Result<Serving, Error> {
        let version: Option<u8> = model.version.as_deref().and_then(|version| version.parse().ok());
        let truth = self.world.0.lock();
        let fits = |own: &&Serving| {
            own.model.name() == model.name && version.is_none_or(|wanted| own.version == wanted)
        };
        let found = truth.servers[self.number].models.iter().filter(fits).max_by_key(|own| own.version);
        found.copied().ok_or_else(|| Error::UnknownModel { name: model.name.clone() })
    }

    /// Upstream servers load no models.
    async fn takes_orders(&self) -> Result<(), Error> {
        self.listens().await?;
        let what = "loading models".into();
        if self.routes.is_empty() { Ok(()) } else { Err(Error::Unimplemented { what }) }
    }

    /// Changes its models.
    fn changes(&self, change: impl FnOnce(&mut Vec<Serving>)) {
        let mut truth = self.world.0.lock();
        let mut models = truth.servers[self.number].models.clone();
        change(&mut models);
        truth.serves(self.number, models);
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.instance.world.0.lock().lets_go(self.instance.number, &self.rows);
    }
}

/// The answer of a model.
fn answer(request: &InferRequest, serving: Serving, temper: Temper) -> Result<InferResponse, Error> {
    let x = &request.inputs[0].tensor;
    let x = if temper == Temper::Short { x.slice_rows(0, x.rows() - 1)? } else { x.clone() };
    let values = x.as_f32()?;
    let lie = if temper == Temper::Wrong { 777.0 } else { 0.0 };
    let bias = request.parameters.get("bias").and_then(|bias| bias.as_u64()).unwrap_or(0) as f32;
    let shift =
        request.outputs.iter().find_map(|output| output.parameters.get("shift")?.as_u64()).unwrap_or(0);
    let times = |factor: f32, more: f32| {
        let values: Vec<f32> = values.iter().map(|value| value * factor + more).collect();
        Tensor::from_f32(x.shape(), &values)
    };
    let y = times(factor(serving.model, serving.version), bias + shifted(shift) + lie)?;
    let z = times(-1.0, 0.0)?;
    let wanted =
        |name: &str| request.outputs.is_empty() || request.outputs.iter().any(|output| output.name == name);
    let outputs = [("y", y), ("z", z)].into_iter().filter(|(name, _)| wanted(name));
    Ok(InferResponse {
        model_name: request.model.name.clone(),
        model_version: serving.version.to_string(),
        id: request.id.clone(),
        parameters: Parameters::new(),
        outputs: outputs.map(|(name, tensor)| NamedTensor::new(name, tensor)).collect(),
    })
}

impl Client for Instance {
    fn peer(&self) -> &str {
        &self.address
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        let rows = {
            let mut truth = self.world.0.lock();
            let x = &request.inputs[0].tensor;
            let width = x.shape().get(1).copied().unwrap_or(1);
            let values = x.as_f32().map(|values| values.to_vec()).unwrap_or_default();
            let rows: Vec<usize> = values.chunks(width).filter_map(|row| truth.row(row)).collect();
            let sum = rows.iter().fold(rows.len() as u64, |sum, row| sum.wrapping_mul(31) + *row as u64);
            truth.saw(1 + self.number as u64, sum);
            rows
        };
        let job = Job { instance: self, rows };
        Box::pin(by_deadline(context, async move { self.run(&request, &job).await }))
    }

    fn forward(
        &self,
        request: Arc<OpaqueRequest>,
        context: CallContext,
    ) -> BoxFuture<'_, Result<OpaqueAnswer, Error>> {
        Box::pin(by_deadline(context, self.clone().answers(request)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async { Ok(self.listens().await? != Temper::NotReady) })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async { self.listens().await.map(|_| ServerMetadata::default()) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        Box::pin(async {
            self.listens().await?;
            sleep(self.question).await;
            if self.routes.contains(&model.name) {
                let (name, platform) = (model.name.clone(), ROUTE.to_owned());
                return Ok(ModelMetadata { name, platform, ..ModelMetadata::default() });
            }
            self.serving(model).map(metadata)
        })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        Box::pin(async {
            self.listens().await?;
            let entry = |own: &Serving| ModelIndex {
                name: own.model.name(),
                version: own.version.to_string(),
                state: "READY".into(),
                reason: String::new(),
            };
            let route = |name: &String| ModelIndex {
                name: name.clone(),
                state: "READY".into(),
                ..ModelIndex::default()
            };
            let truth = self.world.0.lock();
            let models = truth.servers[self.number].models.iter().map(entry);
            Ok(models.chain(self.routes.iter().map(route)).collect())
        })
    }

    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.takes_orders().await?;
            let model = Model::named(name).ok_or_else(|| Error::UnknownModel { name: name.into() })?;
            self.changes(|models| {
                if !models.iter().any(|own| own.model == model) {
                    models.push(Serving { model, version: 1, width: 2 });
                }
            });
            Ok(())
        })
    }

    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.takes_orders().await?;
            self.changes(|models| models.retain(|own| own.model.name() != name));
            Ok(())
        })
    }
}

async fn by_deadline<T>(
    context: CallContext,
    run: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let deadline = context.deadline.expect("every job has a deadline");
    let late = Error::DeadlineExceeded { waited: Duration::ZERO };
    tokio::time::timeout_at(deadline, run).await.unwrap_or(Err(late))
}

fn metadata(own: Serving) -> ModelMetadata {
    let tensor = |name: &str| TensorMetadata {
        name: name.into(),
        datatype: "FP32".into(),
        shape: vec![-1, i64::from(own.width)],
    };
    ModelMetadata {
        name: own.model.name(),
        versions: vec![own.version.to_string()],
        platform: "scripted".into(),
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y"), tensor("z")],
    }
}

impl Connect for Network {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
        Box::pin(async move {
            let refused = || Error::Transport { peer: url.into(), message: "connection refused".into() };
            let found = self.instances.iter().find(|instance| instance.address == url).ok_or_else(refused)?;
            if *found.temper().borrow() == Temper::Gone {
                return Err(refused());
            }
            Ok(Arc::new(found.clone()) as Arc<dyn Client>)
        })
    }

    fn resolve<'a>(&'a self, _: &'a Name) -> BoxFuture<'a, Result<Vec<String>, String>> {
        let answer = self.world.0.lock().resolves();
        Box::pin(async { answer })
    }
}
