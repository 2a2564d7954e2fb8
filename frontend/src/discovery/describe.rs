//! Asks a server what it serves.
//!
//! Each question has its own time-out, and a few are asked at a time: a server with hundreds of models is no slower to
//! answer than one with two, it is asked more.

use std::future::Future;

use futures::{StreamExt, TryStreamExt, stream};
use parm_protocol::client::Client;
use parm_protocol::{Code, Error, ModelConfig, ModelIndex, ModelRef, Place};
use tokio::time::timeout;

use crate::config::Instances;
use crate::serve::Description;

/// What a server has, and where it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Offer {
    /// Where it says that it stands.
    pub(super) place: Place,
    /// Models that can be used now.
    pub(super) models: Vec<Description>,
    /// Models that it knows and does not serve, with its reasons.
    pub(super) absent: Vec<ModelIndex>,
}

/// What a server has now. One that cannot list its models is asked for the configured ones.
pub(super) async fn offer(client: &dyn Client, limits: &Instances) -> Result<Offer, Error> {
    let index = match within(client, limits, client.repository_index()).await {
        Ok(index) => index,
        Err(error) if is_missing(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    let place = place(client, limits).await?;
    let listed = !index.is_empty();
    let (ready, absent): (Vec<_>, Vec<_>) = index.into_iter().partition(is_ready);
    let wanted: Vec<ModelRef> = if listed {
        ready.into_iter().map(named).collect()
    } else {
        limits.models.iter().map(ModelRef::latest).collect()
    };
    let answers = stream::iter(wanted).map(|model| described(client, limits, model));
    let answers: Vec<_> = answers.buffered(limits.questions.get().into()).try_collect().await?;
    Ok(Offer { place, models: answers.into_iter().flatten().collect(), absent })
}

/// Where a server says that it stands. One that cannot say it stands somewhere all the same.
async fn place(client: &dyn Client, limits: &Instances) -> Result<Place, Error> {
    match within(client, limits, client.server_metadata()).await {
        Ok(metadata) => Ok(metadata.place),
        Err(error) if is_of_the_server(&error) => Err(error),
        Err(error) => {
            tracing::debug!(server = client.peer(), %error, "cannot tell where it stands");
            Ok(Place::default())
        }
    }
}

/// A model's description; none if it has none that can be used, which keeps no other from being served.
async fn described(
    client: &dyn Client,
    limits: &Instances,
    model: ModelRef,
) -> Result<Option<Description>, Error> {
    match describe(client, limits, model).await {
        Ok(description) => Ok(Some(description)),
        // Unloaded since it was listed, or not one of this server's.
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) if is_of_the_server(&error) => Err(error),
        Err(error) => {
            tracing::warn!(server = client.peer(), %error, "skipped a model that cannot be described");
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

/// The answer to one question, if it comes in time.
async fn within<T>(
    client: &dyn Client,
    limits: &Instances,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let waited = limits.health_timeout;
    timeout(waited, answer).await.unwrap_or_else(|_| {
        let message = format!("no answer within {waited:?} to a question about its models");
        Err(Error::Transport { peer: client.peer().to_owned(), message })
    })
}

/// Whether no other question would be answered either.
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

/// Servers that name no state list only what is ready; MLServer's gRPC side writes `State.READY`.
fn is_ready(model: &ModelIndex) -> bool {
    model.state.is_empty() || model.state.rsplit('.').next() == Some("READY")
}

fn named(model: ModelIndex) -> ModelRef {
    ModelRef { name: model.name, version: Some(model.version).filter(|version| !version.is_empty()) }
}
