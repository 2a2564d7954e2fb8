//! Requests the models that a server serves, and where it runs.
//!
//! Each request has its own timeout, and a few run at a time. A server with hundreds of models is thus not slower to
//! describe than one with two.

use std::collections::BTreeSet;
use std::future::Future;

use futures::{StreamExt, TryStreamExt, stream};
use parm_protocol::client::Client;
use parm_protocol::{Absence, Code, Error, ModelConfig, ModelIndex, ModelRef, Place};
use tokio::time::timeout;

use crate::config::Instances;
use crate::serve::Description;

/// Requests to one server at a time: few enough to leave it time for work, enough for hundreds of models.
const QUESTIONS: usize = 8;

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
    let answers: Vec<_> = answers.buffered(QUESTIONS).try_collect().await?;
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

/// Models that the last list of an instance missed.
///
/// Problem: a server that is rereading its repository, or a proxy in front of it, may return an incomplete list. The
/// instance then gets no queries for the missing model until the next list. If no other instance serves the model, its
/// queries fail.
///
/// Choice: a model is gone once two lists in a row miss it, as with DNS answers and folders ([`Absence`]). A single
/// list counts if there is other evidence: it has the model as not ready or in another version, the instance has
/// rejected a job for it, or an operator has unloaded it.
///
/// Rejected: always waiting for a second list. After an update queries would be sent to the removed version until then,
/// and each of them would be rejected and retried.
#[derive(Debug, Default)]
pub(super) struct MissingModels(Absence<ModelRef>);

impl MissingModels {
    /// Processes a list. Models of `before` that it is the first to miss stay in the offer, unless they are `disowned`.
    pub(super) fn look(&mut self, before: &Offer, now: &mut Offer, disowned: &BTreeSet<String>) {
        let stated: BTreeSet<&str> = now.models.iter().map(|own| own.model.name.as_str()).collect();
        let stated = |name: &str| {
            stated.contains(name)
                || now.absent.iter().any(|absent| absent.name == name)
                || disowned.contains(name)
        };
        let missing: BTreeSet<ModelRef> = before
            .models
            .iter()
            .map(|own| &own.model)
            .filter(|model| !stated(&model.name))
            .cloned()
            .collect();
        let known: Vec<&ModelRef> = before.models.iter().map(|own| &own.model).collect();
        // An empty list counts too: a server may have unloaded all its models.
        let gone = self.0.look(known.iter().copied(), known.len(), |model| !missing.contains(model));
        for (place, own) in before.models.iter().enumerate() {
            if missing.contains(&own.model) && !gone.contains(&own.model) {
                now.models.insert(place.min(now.models.len()), own.clone());
            }
        }
    }

    /// Whether the next list decides about a model.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::{ModelIndex, ModelMetadata};

    use super::*;
    use crate::serve::Description;

    fn offer(models: &[&str]) -> Offer {
        let described = |named: &&str| {
            let (name, version) = named.split_at(1);
            let metadata = ModelMetadata {
                name: name.into(),
                versions: vec![version.into()],
                platform: "test".into(),
                inputs: Vec::new(),
                outputs: Vec::new(),
            };
            let model = ModelRef { name: name.into(), version: Some(version.into()) };
            Description { model, metadata, config: None }
        };
        Offer { models: models.iter().map(described).collect(), ..Offer::default() }
    }

    fn names(offer: &Offer) -> String {
        let named = |own: &Description| {
            format!("{}{}", own.model.name, own.model.version.clone().unwrap_or_default())
        };
        offer.models.iter().map(named).collect::<Vec<_>>().join(" ")
    }

    /// Processes lists one after the other; returns the instance's models after each.
    fn looks(first: &[&str], looks: &[&[&str]]) -> Vec<String> {
        let (mut missed, mut known) = (MissingModels::default(), offer(first));
        let mut take = |models: &&[&str]| {
            let mut now = offer(models);
            missed.look(&known, &mut now, &BTreeSet::new());
            known = now;
            names(&known)
        };
        looks.iter().map(&mut take).collect()
    }

    #[test]
    fn model_stays_until_two_looks_in_a_row_miss_it() {
        let found = looks(&["a1", "b1"], &[&["b1"], &["a1", "b1"], &["b1"], &["b1"], &["b1"]]);
        assert_eq!(found, ["a1 b1", "a1 b1", "a1 b1", "b1", "b1"]);
        assert_eq!(looks(&["a1"], &[&[], &[]]), ["a1", ""], "an empty list counts too");
    }

    #[test]
    fn replaced_version_is_gone_at_once() {
        assert_eq!(looks(&["a1", "b1"], &[&["a2", "b1"]]), ["a2 b1"]);
    }

    #[test]
    fn model_is_gone_at_once_when_the_server_says_so() {
        let (mut missed, known) = (MissingModels::default(), offer(&["a1", "b1"]));
        let mut now = offer(&["b1"]);
        now.absent.push(ModelIndex {
            name: "a".into(),
            version: "1".into(),
            state: "UNAVAILABLE".into(),
            reason: "unloaded".into(),
        });
        missed.look(&known, &mut now, &BTreeSet::new());
        assert_eq!((names(&now).as_str(), missed.is_open()), ("b1", false));
        let mut now = offer(&["b1"]);
        missed.look(&known, &mut now, &BTreeSet::from(["a".to_owned()]));
        assert_eq!((names(&now).as_str(), missed.is_open()), ("b1", false), "the instance rejected a job");
    }
}
