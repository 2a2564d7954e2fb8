//! Settings of the connection to the API server of Kubernetes.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API server of Kubernetes, for workers such as `kubernetes+http://SERVICE`.
///
/// The times are constants outside of tests: a watch reports changes within a second, whatever they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the API server: `https://HOST[:PORT]`, or `http://` for a proxy such as `kubectl proxy`. Tokens are sent
    /// over TLS only. Default: none, the address in the pod's environment.
    // Without KUBERNETES_SERVICE_HOST and ..._PORT it is `https://kubernetes.default.svc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Folder of the service account, with the files `token`, `ca.crt` and `namespace`. Default
    /// /var/run/secrets/kubernetes.io/serviceaccount.
    // The token is read for every request, as Kubernetes replaces it from time to time.
    pub service_account: PathBuf,
    /// Timeout for the start of an answer, and for silence within a list.
    #[serde(skip)]
    pub timeout: Duration,
    /// Length of a watch, in whole seconds; the next one continues it. A silently broken connection is detected at most this
    /// long plus 10 s after it breaks.
    #[serde(skip)]
    pub watch: Duration,
    /// Interval of lists, which repair a watch that lost events. Each wait is shortened by up to a tenth, by chance. An
    /// endpoint is removed if a list and a second one, `backoff_min` later, both lack it.
    #[serde(skip)]
    pub list: Duration,
    /// Backoff after the first failure; it doubles with every failure. Waits are shortened by up to a half, by chance.
    #[serde(skip)]
    pub backoff_min: Duration,
    /// Longest backoff.
    #[serde(skip)]
    pub backoff_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: None,
            service_account: "/var/run/secrets/kubernetes.io/serviceaccount".into(),
            timeout: Duration::from_secs(10),
            watch: Duration::from_secs(60),
            list: Duration::from_secs(300),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
        }
    }
}
