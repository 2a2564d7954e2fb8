//! Settings of the connection to the API server of Kubernetes.

use std::path::PathBuf;
use std::time::Duration;

use parm_durations::PositiveMillis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API server of Kubernetes, for workers that are written `kubernetes+http://SERVICE[.NAMESPACE][:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Its address, `https://HOST[:PORT]`, or `http://` where a proxy such as `kubectl proxy` stands before it; no token is
    /// sent in plain. Default: none, that is what Kubernetes tells its pods (KUBERNETES_SERVICE_HOST and ..._PORT), else
    /// `https://kubernetes.default.svc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The folder of the service account: `token`, which is read again for every question as it is replaced from time to time,
    /// `ca.crt`, and `namespace`. Default /var/run/secrets/kubernetes.io/serviceaccount.
    pub service_account: PathBuf,
    /// Milliseconds that the API server has to begin an answer, and that it may be silent in the midst of a list.
    /// Default 10000.
    #[serde(rename = "timeout_ms", with = "PositiveMillis")]
    pub timeout: Duration,
    /// Milliseconds after which a watch is ended and begun anew from where it was, in whole seconds: a connection that broke
    /// without a word is noticed so late, and 10 s later. Default 60000.
    #[serde(rename = "watch_ms", with = "PositiveMillis")]
    pub watch: Duration,
    /// Milliseconds between two lists, whatever the watch says: a list shows what a watch lost. Each wait is shortened by up to a
    /// tenth, by chance. An endpoint that a list lacks is removed if a second list, `backoff_min_ms` later, lacks it too. Default
    /// 300000.
    #[serde(rename = "list_ms", with = "PositiveMillis")]
    pub list: Duration,
    /// Milliseconds before the second try after a failure; doubles with every failure. Waits are shorter by up to a half, by
    /// chance. Default 1000.
    #[serde(rename = "backoff_min_ms", with = "PositiveMillis")]
    pub backoff_min: Duration,
    /// Milliseconds that the wait between two tries never exceeds. Default 30000.
    #[serde(rename = "backoff_max_ms", with = "PositiveMillis")]
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
