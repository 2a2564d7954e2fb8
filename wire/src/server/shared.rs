//! What every connection of a server shares.

use std::sync::Arc;

use parm_protocol::{Error, InferRequest, InferenceService, Transport, bounds};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::Guard;
use super::config::Config;
use super::upgrade::Offer;
use crate::Budget;
use crate::budget::Share;
use crate::frames::Limits;

/// The service and what stands around it.
pub(super) struct Shared<S> {
    pub(super) service: Arc<S>,
    pub(super) config: Config,
    pub(super) guard: Guard,
    /// What the bodies of requests hold.
    pub(super) budget: Arc<Budget>,
    pub(super) frames: Offer<S>,
    /// Cancelled when listening has ended: connections finish what they have and close.
    pub(super) drain: CancellationToken,
    /// Every connection of every listener.
    pub(super) connections: TaskTracker,
}

impl<S: InferenceService> Shared<S> {
    pub(super) fn new(config: Config, service: Arc<S>) -> Arc<Self> {
        let (drain, connections) = (CancellationToken::new(), TaskTracker::new());
        let budget = config.budget();
        let limits = Limits { config: config.frames.clone(), budget: budget.clone(), tokens: false };
        let frames = Offer::new(service.clone(), limits, drain.clone(), connections.clone());
        let guard = Guard::new(&config);
        Arc::new(Self { service, config, guard, budget, frames, drain, connections })
    }

    /// Counts what a request takes now that it is read, on top of its body if it is more. Never more than a body may
    /// have: a request that came alone must not be refused.
    pub(super) fn holds(&self, share: &Share, request: &InferRequest) -> Result<(), Error> {
        share.cover(bounds::weight(request).min(self.config.max_body_bytes.get()))
    }

    /// Counts a request that the service never saw, and hands its error on.
    pub(super) fn rejected(&self, error: Error, transport: Transport) -> Error {
        self.service.rejected(&error, transport);
        error
    }
}
