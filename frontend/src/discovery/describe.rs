//! Asks a server what it serves.

use parm_protocol::client::Client;
use parm_protocol::{Code, Error, ModelConfig, ModelIndex, ModelRef};

use crate::serve::Description;

/// The models of a server that can be used now. A server that cannot list them is asked for those of `configured`.
pub(super) async fn models(client: &dyn Client, configured: &[String]) -> Result<Vec<Description>, Error> {
    let index = match client.repository_index().await {
        Ok(index) => index,
        Err(error) if is_missing(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    let listed = !index.is_empty();
    let wanted: Vec<ModelRef> = if listed {
        index.into_iter().filter(is_ready).map(named).collect()
    } else {
        configured.iter().map(ModelRef::latest).collect()
    };
    let mut models = Vec::new();
    for model in wanted {
        match describe(client, model).await {
            Ok(description) => models.push(description),
            // Unloaded since it was listed, or not one of this server's.
            Err(error) if error.code() == Code::NotFound => {}
            Err(error) if is_of_the_server(&error) => return Err(error),
            // One model that cannot be described keeps no other from being served.
            Err(error) => {
                tracing::warn!(server = client.peer(), %error, "skipped a model that cannot be described")
            }
        }
    }
    Ok(models)
}

async fn describe(client: &dyn Client, model: ModelRef) -> Result<Description, Error> {
    let metadata = client.model_metadata(&model).await?;
    let config = match client.model_config(&model).await {
        Ok(config) => Some(config),
        Err(error) if is_missing(&error) => None::<ModelConfig>,
        Err(error) => return Err(error),
    };
    Ok(Description { model, metadata, config })
}

/// Whether no other question would be answered either.
fn is_of_the_server(error: &Error) -> bool {
    use Code::{DeadlineExceeded, Overloaded, PermissionDenied, Unauthenticated, Unavailable};
    matches!(error.code(), DeadlineExceeded | Overloaded | PermissionDenied | Unauthenticated | Unavailable)
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
