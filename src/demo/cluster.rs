//! The servers of one policy, behind a frontend or a usual load balancer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use parm_backend::Embedded;
use parm_frontend::discovery::Wire;
use parm_frontend::{Frontend, Timers};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelIndex, ModelMetadata, ModelRef,
    ServerMetadata, Transport,
};
use parm_transport::client;
use tokio::runtime::Handle;

use super::models::Models;
use super::paced::{Pace, Paced};
use super::policy::Policy;

/// Timeout for joining.
const PATIENCE: Duration = Duration::from_secs(60);

/// A policy with its servers. The load generator sees one server.
pub struct Cluster {
    pub policy: Policy,
    /// Work of its servers since the warm-up, in runs of one query.
    pub work: Arc<Mutex<f64>>,
    serving: Serving,
    /// One of its servers without the pace, for metadata.
    server: Embedded,
}

enum Serving {
    Frontend(Frontend),
    Balancer(LeastRequests),
}

/// A usual load balancer: each request goes to the server with the fewest open requests, by turns if several have as few.
struct LeastRequests {
    servers: Vec<Paced>,
    /// Open requests of each server, and the server whose turn is next.
    open: Mutex<(Vec<usize>, usize)>,
}

impl Cluster {
    /// Starts the servers and waits until all have joined.
    pub async fn start(policy: Policy, models: &Models, pace: &Pace) -> anyhow::Result<Self> {
        let work = Arc::new(Mutex::new(0.0));
        let costs = Arc::new(models.costs());
        let mut servers = Vec::new();
        for (number, server) in (0..).zip(&models.servers) {
            let pace = Pace { instance: number, costs: costs.clone(), work: work.clone(), ..pace.clone() };
            servers.push(Paced::start(server.clone(), pace, Handle::current())?);
        }
        let serving = match policy.settings() {
            None => {
                Serving::Balancer(LeastRequests { open: Mutex::new((vec![0; servers.len()], 0)), servers })
            }
            Some(dispatch) => {
                let bundles = Some(models.folder.clone());
                let config = parm_frontend::Config { bundles, dispatch, ..parm_frontend::Config::default() };
                let wire = Arc::new(Wire::new(client::Config::default()));
                let frontend = Frontend::start(config, wire, Timers::Precise)
                    .with_context(|| format!("cannot start policy {}", policy.name))?;
                for server in servers {
                    frontend.embed(Arc::new(server), None)?;
                    // One after another: the order of joining decides which servers a policy reserves for parities.
                    until_settled(&frontend).await?;
                }
                Serving::Frontend(frontend)
            }
        };
        Ok(Self { policy, work, serving, server: models.servers[0].clone() })
    }
}

impl Client for Cluster {
    fn peer(&self) -> &str {
        self.policy.name
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(async move {
            match &self.serving {
                Serving::Balancer(balancer) => balancer.infer(request, context).await,
                Serving::Frontend(frontend) => {
                    let arrived = Context::new(tokio::time::Instant::now(), Transport::Http);
                    frontend.infer(request, Context { deadline: context.deadline, ..arrived }).await
                }
            }
        })
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        self.server.is_ready()
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        self.server.server_metadata()
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        self.server.model_metadata(model)
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        self.server.repository_index()
    }
}

impl LeastRequests {
    async fn infer(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        let chosen = self.choose();
        let answer = self.servers[chosen].infer(request, context.clone());
        let answer = match context.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, answer).await,
            None => Ok(answer.await),
        };
        self.open.lock().0[chosen] -= 1;
        answer.unwrap_or_else(|_| Err(Error::Unavailable { message: "no answer in time".into() }))
    }

    fn choose(&self) -> usize {
        let mut state = self.open.lock();
        let (open, next) = &mut *state;
        let by_turns = (0..open.len()).map(|step| (*next + step) % open.len());
        let chosen = by_turns.min_by_key(|server| open[*server]).unwrap_or_default();
        open[chosen] += 1;
        *next = (chosen + 1) % open.len();
        chosen
    }
}

async fn until_settled(frontend: &Frontend) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !frontend.is_settled() {
        ensure!(Instant::now() < deadline, "a server did not join within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
