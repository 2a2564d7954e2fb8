//! Errors of following a Service, with advice.

use std::time::Duration;

/// Why a Service cannot be followed, for now or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Trouble {
    #[error("invalid frontend.kubernetes.server '{server}': use https://HOST:PORT")]
    BadServer { server: String },
    #[error(
        "{reason}: in a pod set automountServiceAccountToken: true, elsewhere set the folder of a service account with \
         frontend.kubernetes.service_account"
    )]
    Account { reason: String },
    #[error("cannot reach the API server {server}: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the API server timed out: no data for {waited:?}")]
    Silent { waited: Duration },
    #[error(
        "unauthenticated (401): the API server rejected the token: check that the service account exists and its token is fresh"
    )]
    Unauthenticated,
    #[error(
        "forbidden (403): bind a Role to the frontend's service account that may list and watch endpointslices of discovery.k8s.io in \
         namespace {namespace} (deploy/kubernetes/components/endpoint-slices has one); {message}"
    )]
    Forbidden { namespace: String, message: String },
    #[error("the version of the list or watch expired (410): listing again")]
    Expired,
    #[error("the API server returned status {status}: {message}")]
    Refused { status: u16, message: String },
    #[error(
        "response of the API server is too long: {what} has over {limit} bytes: check frontend.kubernetes.server"
    )]
    TooLong { what: &'static str, limit: usize },
    #[error("too many endpoints: more than {limit}: check that this is the Service of the workers")]
    TooMany { limit: usize },
    #[error("cannot read the response of the API server: {reason}")]
    Unreadable { reason: String },
    #[error("the connection to the API server broke: {reason}")]
    Severed { reason: String },
}

impl Trouble {
    pub(super) fn unreadable(error: serde_json::Error) -> Self {
        Self::Unreadable { reason: error.to_string() }
    }

    /// Whether changes may have been missed, so that only a list helps.
    pub(super) fn wants_a_list(&self) -> bool {
        matches!(self, Self::Expired | Self::Unreadable { .. } | Self::TooLong { .. } | Self::TooMany { .. })
    }
}
