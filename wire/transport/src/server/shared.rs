//! State that all connections of a server share, and the access of their requests.
//!
//! With keys, the role of a key decides. Without keys every client may request predictions, and changes are allowed
//! from this machine only.

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderMap, Method};
use parm_protocol::{Error, InferRequest, InferenceService, Transport, bounds};

use super::config::{Config, ModelControl};
use super::grpc::Reflection;
use crate::Budget;
use crate::budget::Share;
use crate::keys::{Access, Keys, Visit};
use crate::listening::{Ages, Drain, Listener};

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
        check(&self.keys, self.config.model_control, headers, access, reach)
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

/// The clients that can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This machine: a loopback address or a Unix socket.
    Local,
    /// Other machines as well.
    Open,
}

impl Reach {
    /// The reach of a listener.
    pub(super) fn of(listener: &Listener) -> Self {
        if listener.is_local() { Reach::Local } else { Reach::Open }
    }
}

/// Checks whether a request with these headers, from a listener of this reach, has `access`. `control` says who has it without
/// keys.
pub(super) fn check(
    keys: &Keys,
    control: ModelControl,
    headers: &HeaderMap,
    access: Access,
    reach: Reach,
) -> Result<Visit, Error> {
    if keys.are_asked_for() {
        return keys.admit(headers, access);
    }
    if access != Access::Control {
        return Ok(Visit::default());
    }
    if control == ModelControl::Nobody {
        return Err(Error::ModelControl);
    }
    // Browsers reach listeners that only this machine can reach. They name the page's origin in every request that
    // changes something.
    if reach == Reach::Open || headers.contains_key(ORIGIN) {
        return Err(Error::LocalOnly);
    }
    Ok(Visit::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_loaded_locally_only_without_keys() {
        let control = |model_control, reach, headers: &HeaderMap| {
            let check = |access| check(&Keys::none(), model_control, headers, access, reach).map(drop);
            assert_eq!(check(Access::Infer), Ok(()));
            check(Access::Control)
        };
        let (none, page) =
            (HeaderMap::new(), HeaderMap::from_iter([(ORIGIN, "http://127.0.0.1:8000".parse().unwrap())]));
        assert_eq!(control(ModelControl::Local, Reach::Local, &none), Ok(()));
        assert_eq!(control(ModelControl::Local, Reach::Open, &none), Err(Error::LocalOnly));
        assert_eq!(control(ModelControl::Local, Reach::Local, &page), Err(Error::LocalOnly));
        assert_eq!(control(ModelControl::Nobody, Reach::Local, &none), Err(Error::ModelControl));
    }
}
