//! State that all connections of a server share.

use std::sync::Arc;

use http::{HeaderMap, Method};
use parm_protocol::{Error, InferRequest, InferenceService, Transport, bounds};

use super::auth::{self, Reach};
use super::config::Config;
use super::grpc::Reflection;
use crate::Budget;
use crate::budget::Share;
use crate::keys::{Access, Keys, Visit};
use crate::listening::{Ages, Drain};

pub(crate) struct Shared<S> {
    pub(super) service: Arc<S>,
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) ages: Arc<Ages>,
    /// Bytes that the bodies of requests hold.
    pub(super) budget: Arc<Budget>,
    pub(super) reflection: Reflection,
    /// The end of every connection of every listener.
    pub(crate) drain: Drain,
}

impl<S: InferenceService> Shared<S> {
    pub(crate) fn new(config: Config, service: Arc<S>, keys: Keys) -> Arc<Self> {
        let (budget, ages) = (config.budget(), Ages::new(config.max_connection_age));
        let (reflection, drain) = (Reflection::new(), Drain::default());
        Arc::new(Self { service, config, keys, ages, budget, reflection, drain })
    }

    /// Checks whether a request with these headers, from a listener of this reach, has `access`.
    pub(super) fn check(&self, headers: &HeaderMap, access: Access, reach: Reach) -> Result<Visit, Error> {
        auth::check(&self.keys, self.config.model_control, headers, access, reach)
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
