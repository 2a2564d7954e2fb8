//! Requests the models that a server serves, and where it runs.
//!
//! Each request has its own timeout, and a few run at a time. A server with hundreds of models is thus not slower to
//! describe than one with two.

use std::future::Future;

use futures::{StreamExt, TryStreamExt, stream};
use parm_protocol::client::Client;
use parm_protocol::{Code, Error, ModelConfig, ModelIndex, ModelRef, Place};
use tokio::time::timeout;

use crate::config::Instances;
use crate::serve::Description;

/// A server's models and place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Offer {
    /// Node and zone that it reports.
    pub(super) place: Place,
    /// Models that can be used now.
    pub(super) models: Vec<Description>,
    /// Models that it knows but does not serve, with its reasons.
    pub(super) absent: Vec<ModelIndex>,
    /// It cannot list its models.
    pub(super) unlisted: bool,
}

impl Offer {
    /// The reason why no model can be used.
    pub(super) fn problem(&self, limits: &Instances) -> String {
        if let Some(model) = self.absent.iter().find(|model| !model.reason.is_empty()) {
            return format!("it serves no model: '{}' is not loaded: {}", model.name, model.reason);
        }
        match (self.unlisted, limits.models.is_empty()) {
            (false, _) => "it serves no model".into(),
            (true, true) => "it does not list its models (POST /v2/repository/index): name them in \
                             frontend.instances.models"
                .into(),
            (true, false) => {
                format!("it serves none of frontend.instances.models, {:?}", limits.models)
            }
        }
    }
}

/// Requests a server's models. A server that cannot list its models is asked for the configured ones.
pub(super) async fn offer(client: &dyn Client, limits: &Instances) -> Result<Offer, Error> {
    let (index, unlisted) = match within(client, limits, client.repository_index()).await {
        Ok(index) => (index, false),
        Err(error) if is_missing(&error) => (Vec::new(), true),
        Err(error) => return Err(error),
    };
    let place = place(client, limits).await?;
    let listed = !index.is_empty();
    let states = index.iter().any(|model| !model.state.is_empty());
    let (ready, absent): (Vec<_>, Vec<_>) = index.into_iter().partition(|model| is_ready(model, states));
    let wanted: Vec<ModelRef> = if listed {
        ready.into_iter().map(named).collect()
    } else {
        limits.models.iter().map(ModelRef::latest).collect()
    };
    let answers = stream::iter(wanted).map(|model| described(client, limits, model));
    let answers: Vec<_> = answers.buffered(limits.questions.get().into()).try_collect().await?;
    Ok(Offer { place, models: answers.into_iter().flatten().collect(), absent, unlisted })
}

/// Requests a server's place. A failure to report it is not an error.
async fn place(client: &dyn Client, limits: &Instances) -> Result<Place, Error> {
    match within(client, limits, client.server_metadata()).await {
        Ok(metadata) => Ok(metadata.place),
        Err(error) if is_of_the_server(&error) => Err(error),
        Err(error) => {
            tracing::debug!(server = client.peer(), %error, "server does not report its place");
            Ok(Place::default())
        }
    }
}

/// Requests a model's description; `None` if it is unusable, so that other models are still served.
async fn described(
    client: &dyn Client,
    limits: &Instances,
    model: ModelRef,
) -> Result<Option<Description>, Error> {
    match describe(client, limits, model).await {
        Ok(description) => Ok(Some(description)),
        // Unloaded since it was listed, or not a model of this server.
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) if is_of_the_server(&error) => Err(error),
        Err(error) => {
            tracing::warn!(server = client.peer(), %error, "skipped a model: its description failed");
            Ok(None)
        }
    }
}

async fn describe(client: &dyn Client, limits: &Instances, model: ModelRef) -> Result<Description, Error> {
    let metadata = within(client, limits, client.model_metadata(&model)).await?;
    let config = match within(client, limits, client.model_config(&model)).await {
        Ok(config) => Some(config),
        Err(error) if is_missing(&error) => None::<ModelConfig>,
        Err(error) => return Err(error),
    };
    Ok(Description { model, metadata, config })
}

/// Awaits one answer with the timeout.
async fn within<T>(
    client: &dyn Client,
    limits: &Instances,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let waited = limits.health_timeout;
    timeout(waited, answer).await.unwrap_or_else(|_| {
        let message = format!("describing its models timed out after {waited:?}");
        Err(Error::Transport { peer: client.peer().to_owned(), message })
    })
}

/// Whether the error concerns the whole server, so that further requests would fail too.
fn is_of_the_server(error: &Error) -> bool {
    use Code::{
        DeadlineExceeded, Overloaded, PermissionDenied, TooManyRequests, Unauthenticated, Unavailable,
    };
    matches!(
        error.code(),
        DeadlineExceeded | Overloaded | PermissionDenied | TooManyRequests | Unauthenticated | Unavailable
    )
}

fn is_missing(error: &Error) -> bool {
    matches!(error.code(), Code::Unimplemented | Code::NotFound)
}

/// Servers that report no states list only ready models. Triton, which does, has none for a model that was never loaded.
/// MLServer's gRPC API writes `State.READY`.
fn is_ready(model: &ModelIndex, states: bool) -> bool {
    match &*model.state {
        "" => !states,
        state => state.rsplit('.').next() == Some("READY"),
    }
}

fn named(model: ModelIndex) -> ModelRef {
    ModelRef { name: model.name, version: Some(model.version).filter(|version| !version.is_empty()) }
}
