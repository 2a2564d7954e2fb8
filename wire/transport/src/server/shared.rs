//! State that all connections of a server share.

use std::sync::Arc;

use super::auth::Guard;
use super::config::Config;
use super::grpc::Reflection;
use super::upgrade::Offer;
use crate::Budget;
use crate::budget::Share;
use crate::frames::Limits;
use crate::keys::{Keys, Visit};
use crate::listening::{Ages, Drain};
use http::Method;
use parm_protocol::{Error, InferRequest, InferenceService, Transport, bounds};

pub(super) struct Shared<S> {
    pub(super) service: Arc<S>,
    pub(super) config: Config,
    pub(super) guard: Guard,
    pub(super) keys: Keys,
    pub(super) ages: Arc<Ages>,
    /// Bytes that the bodies of requests hold.
    pub(super) budget: Arc<Budget>,
    pub(super) frames: Offer<S>,
    pub(super) reflection: Reflection,
    /// The end of every connection of every listener.
    pub(super) drain: Drain,
}

impl<S: InferenceService> Shared<S> {
    pub(super) fn new(config: Config, service: Arc<S>, keys: Keys) -> Arc<Self> {
        let drain = Drain::default();
        let budget = config.budget();
        let limits = Limits { budget: budget.clone(), ..Limits::from(config.frames()) };
        let frames = Offer::new(service.clone(), limits, drain.clone());
        let guard = Guard::new(&config, keys.clone());
        let ages = Ages::new(config.max_connection_age);
        let reflection = Reflection::new();
        Arc::new(Self { service, config, guard, keys, ages, budget, frames, reflection, drain })
    }

    /// Charges the decoded request to the byte budget if it is larger than its body. The charge never exceeds the
    /// largest body: a request on its own must not be rejected.
    pub(super) fn holds(&self, share: &Share, request: &InferRequest) -> Result<(), Error> {
        share.cover(bounds::weight(request).min(self.config.max_body_bytes.get()))
    }

    /// Logs the key and the route of a request that changes something.
    pub(super) fn changed(&self, method: &Method, path: &str, visit: &Visit) {
        let by = visit.caller().name();
        let shown: String = path.chars().take(200).collect();
        tracing::info!(%method, path = shown, by = by.as_deref().unwrap_or("-"), "a request to change something");
    }

    /// Counts a request that was rejected before the service saw it, and returns its error.
    pub(super) fn rejected(&self, error: Error, transport: Transport) -> Error {
        self.service.rejected(&error, transport);
        error
    }
}
