//! What can go wrong between us and the API server, in words that say what to do.

use std::time::Duration;

/// Why a Service cannot be followed, now or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Trouble {
    #[error("frontend.kubernetes.server '{server}': write https://HOST:PORT")]
    BadServer { server: String },
    #[error(
        "{reason}: in a pod set automountServiceAccountToken: true, elsewhere name the folder of a service account with \
         frontend.kubernetes.service_account"
    )]
    Account { reason: String },
    #[error("the API server {server} cannot be reached: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the API server is silent for {waited:?}")]
    Silent { waited: Duration },
    #[error(
        "the API server does not know our token (401): see that the service account is there, and its token fresh"
    )]
    Unauthenticated,
    #[error(
        "we may not (403): bind a Role to our service account that may list and watch endpointslices of discovery.k8s.io in \
         namespace {namespace} (deploy/kubernetes/components/endpoint-slices has one); {message}"
    )]
    Forbidden { namespace: String, message: String },
    #[error("what the list or watch goes on from is forgotten (410): listed again")]
    Expired,
    #[error("the API server answers {status}: {message}")]
    Refused { status: u16, message: String },
    #[error("the API server sends {what} of more than {limit} bytes: is it one?")]
    TooLong { what: &'static str, limit: usize },
    #[error("more than {limit} endpoints: is this the Service of the workers?")]
    TooMany { limit: usize },
    #[error("what the API server sends cannot be read: {reason}")]
    Unreadable { reason: String },
    #[error("the connection broke off: {reason}")]
    Severed { reason: String },
}

impl Trouble {
    pub(super) fn unreadable(error: serde_json::Error) -> Self {
        Self::Unreadable { reason: error.to_string() }
    }

    /// Whether what is known may have been left behind, so that only a list helps.
    pub(super) fn wants_a_list(&self) -> bool {
        matches!(self, Self::Expired | Self::Unreadable { .. } | Self::TooLong { .. } | Self::TooMany { .. })
    }
}
