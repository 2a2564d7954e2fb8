//! Starts the frontend and the six instances of one policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use parm_backend::{Embedded, Metrics};
use parm_frontend::discovery::Wire;
use parm_frontend::{Frontend, Timers};
use parm_loadgen::outcome::{self, Outcome};
use parm_protocol::{Context, InferRequest, InferenceService, ModelMetadata, ModelRef, Transport};
use parm_transport::client;
use prometheus::Registry;
use tokio::runtime::Handle;

use super::costs::Costs;
use super::paced::{Pace, Paced, Spent};
use super::policy::Policy;
use super::script::INSTANCES;
use super::served::Served;
use super::tally::{Standing, Tally};
use super::traffic::Traffic;

/// Timeout for loading models and joining.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs that measure the cost of each model and size, if its time allows.
const RUNS: u32 = 15;
const MEASURED: Duration = Duration::from_millis(300);

/// A policy with its frontend and its instances.
pub struct PolicyCluster {
    pub policy: Policy,
    frontend: Frontend,
    tally: Mutex<Tally>,
    costs: Arc<Costs>,
    spent: Arc<Spent>,
}

impl PolicyCluster {
    /// Loads the models on six instances and waits until all have joined. Blocks while models load.
    pub async fn start(policy: Policy, served: &Served, pace: &Pace) -> anyhow::Result<Self> {
        let config = parm_frontend::Config {
            bundles: served.bundles(),
            dispatch: policy.settings(served.code),
            ..parm_frontend::Config::default()
        };
        let wire = Arc::new(Wire::new(client::Config::default()));
        let frontend = Frontend::start(config, wire, Timers::Precise)
            .with_context(|| format!("cannot start policy {}", policy.name()))?;
        let embedded = instances(policy, served)?;
        let first = embedded.first().context("no instances")?;
        let costs = Arc::new(Costs::measured(first, &served.load(policy)).await?);
        let spent = Arc::new(Spent::default());
        for (number, instance) in (0..).zip(embedded) {
            let pace = Pace { instance: number, costs: costs.clone(), spent: spent.clone(), ..pace.clone() };
            let paced = Paced::start(instance, pace, Handle::current())?;
            frontend.embed(Arc::new(paced), None)?;
            // One after another: the order of joining decides which instances a policy reserves for parities.
            until_settled(&frontend).await?;
        }
        let (model, shown) = (&served.model, served.repository.display());
        ensure!(
            frontend.model_metadata(&ModelRef::latest(model)).is_ok(),
            "no instance can serve '{model}' from {shown}: give --models FOLDER"
        );
        Ok(Self { policy, frontend, tally: Mutex::new(Tally::new()), costs, spent })
    }

    /// Returns the results of the policy so far.
    pub fn standing(&self) -> Standing {
        self.tally.lock().standing(self.policy.name(), self.spent.runs(), self.spent.work())
    }

    /// Returns the measured costs of its models.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the metadata of the deployed model.
    pub fn model(&self, name: &str) -> anyhow::Result<ModelMetadata> {
        Ok(self.frontend.model_metadata(&ModelRef::latest(name))?)
    }

    /// Sends one query and records its outcome.
    pub async fn ask(&self, query: Query) {
        let Query { request, index, intended, since, deadline, traffic } = query;
        let context = Context {
            deadline: Some(deadline.into()),
            ..Context::new(tokio::time::Instant::now(), Transport::Http)
        };
        let answered = self.frontend.infer(request, context).await;
        let (outcome, right) = answered.map_or((Outcome::Failed, false), |response| {
            (outcome::of(&response), traffic.is_right(index, &response))
        });
        // A rejection is quick, but counts like a missing answer.
        let waited = intended.elapsed();
        let latency = if outcome.is_answer() { waited } else { waited.max(deadline - intended) };
        self.tally.lock().record(since, latency, outcome, right);
    }
}

/// A query in flight.
pub struct Query {
    pub request: InferRequest,
    /// Its number in the traffic.
    pub index: usize,
    /// The scheduled time; latency counts from here.
    pub intended: Instant,
    /// The scheduled time since the beginning of the traffic.
    pub since: Duration,
    pub deadline: Instant,
    pub traffic: Arc<Traffic>,
}

async fn until_settled(frontend: &Frontend) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !frontend.is_settled() {
        ensure!(Instant::now() < deadline, "an instance did not join within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn instances(policy: Policy, served: &Served) -> anyhow::Result<Vec<Embedded>> {
    let load = served.load(policy);
    let config = parm_backend::Config {
        models: Some(served.repository.clone()),
        load: load.clone(),
        instances: std::num::NonZeroUsize::new(INSTANCES as usize).context("no instances")?,
        reload: Duration::ZERO,
        warm_up_runs: RUNS,
        measure: MEASURED,
        ..parm_backend::Config::default()
    };
    let metrics = Metrics::embedded(&Registry::new())?;
    Embedded::start(config, metrics).with_context(|| {
        format!("cannot load {load:?} from {}: give --models FOLDER", served.repository.display())
    })
}
