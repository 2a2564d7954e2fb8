//! Configuration of the frontend. Dispatch has its own settings in [`PoolSettings`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use parm_dispatch::{Fraction, PoolSettings};
use parm_durations::{PositiveMillis, Real, Whole};
use parm_transport::client;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::discovery::kubernetes;
use crate::{admin, capture, neighbours, record};

/// The frontend's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Servers to send work to: `http://HOST:PORT`, `grpc://HOST:PORT`, `frames://HOST:PORT` or `unix:/PATH`; or names that
    /// stand for several and are looked up again and again: `dns+http://HOST:PORT` (every address of the host) and
    /// `srv+http://_SERVICE._tcp.DOMAIN` (SRV records, those of the first priority); or Services of Kubernetes,
    /// `kubernetes+http://SERVICE[.NAMESPACE][:PORT]`, whose pods are followed with the nodes and zones that they stand on, the
    /// port by its name in the Service or by its number in the pods. Default: none.
    pub workers: Vec<String>,
    /// A file of servers' URLs, one a line (`#` starts a comment), that is watched for changes. Behind a URL may stand
    /// `node=NAME` and `zone=NAME`: where the server stands, if it does not say so itself or is wrong about it. A change counts
    /// once two looks in a row saw it, and a file that names nobody changes nothing. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_file: Option<PathBuf>,
    /// Bundles of codes, parity models and stand-ins, for the policies `parm`, `parm+` and `stand-in`: a model repository
    /// whose models have a `NAME/parm.toml`, or one such file. Default: where `backend.models` is, if models are served
    /// from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundles: Option<PathBuf>,
    /// Milliseconds between two looks for changes of the bundles. Default 1000.
    #[serde(rename = "bundles_interval_ms", with = "PositiveMillis")]
    pub bundles_interval: Duration,
    /// Models whose first dimension is no batch though it varies, such as a number of tokens: their requests are neither
    /// split nor put together. A server that states `max_batch_size` 0 says so itself. Default: none.
    pub unbatched: Vec<String>,
    /// Limits on requests.
    pub requests: Requests,
    /// How instances are connected to, watched and used.
    pub instances: Instances,
    /// The API server of Kubernetes, where workers are its Services.
    pub kubernetes: kubernetes::Config,
    /// Other frontends over the same servers.
    pub neighbours: neighbours::Config,
    /// How to speak with workers.
    pub client: client::Config,
    /// The admin API.
    pub admin: admin::Config,
    /// Recordings of arrivals and service times.
    pub recording: record::Config,
    /// Queries and answers that are kept, to make stand-ins from.
    pub capture: capture::Config,
    /// How queries are dispatched, for every model without settings of its own.
    pub dispatch: PoolSettings,
    /// Shares of the instances' time that are set up.
    #[serde(skip)]
    pub shares: parm_shares::Settings,
    /// Settings of single models, by name. A model that is named here takes nothing from `dispatch`.
    pub models: BTreeMap<String, PoolSettings>,
}

/// Limits on requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// Milliseconds that a request may take when it names no `timeout` and its transport no deadline. Default 10000.
    #[serde(rename = "default_deadline_ms", with = "PositiveMillis")]
    pub default_deadline: Duration,
    /// Milliseconds that no request may exceed, whatever it asks for: what waits for ever is never freed. Default 120000.
    #[serde(rename = "max_deadline_ms", with = "PositiveMillis")]
    pub max_deadline: Duration,
    /// Most rows in one request: each is a query of its own in the queue. Default 256.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_rows: NonZeroUsize,
    /// Milliseconds after which a refused client should try again (`Retry-After`, in whole seconds there). Default 1000.
    #[serde(rename = "retry_after_ms", with = "PositiveMillis")]
    pub retry_after: Duration,
    /// Largest magnitude of an FP32 input that may be mixed with other clients' queries by a code; a query with larger
    /// or non-finite values is served alone, and so is one far outside what the bundle gives as the input's range (or, where
    /// it gives none, of what is usual). Default 1000000.
    #[serde(with = "Real::<0, 1_000_000_000_000_000_000>")]
    pub codable_magnitude: f32,
}

/// How instances are connected to, watched and used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Instances {
    /// Jobs that an instance may hold at a time. With 1 a hung instance holds up one batch and no more; raise it for
    /// servers that run several models' batches at once. Default 1.
    pub slots: NonZeroU16,
    /// Most instances, from all sources together. Default 4096.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub limit: NonZeroU32,
    /// Models to ask a server for that cannot list its own. Default: none.
    pub models: Vec<String>,
    /// Milliseconds between two looks at an instance's health. Default 1000.
    #[serde(rename = "health_interval_ms", with = "PositiveMillis")]
    pub health_interval: Duration,
    /// Milliseconds that an instance has to answer a health check, a probe or a question about its models. Default 2000.
    #[serde(rename = "health_timeout_ms", with = "PositiveMillis")]
    pub health_timeout: Duration,
    /// Questions about its models that an instance is asked at a time: many models should not take long, nor keep it from
    /// its work. Default 8.
    pub questions: NonZeroU16,
    /// Health checks in a row that must time out before an instance counts as gone; a refused connection counts at
    /// once. Default 3.
    pub health_failures: NonZeroU16,
    /// Milliseconds between two looks at which models an instance serves. A model is gone once two looks in a row miss it; the
    /// second follows after `health_interval_ms`. Default 5000.
    #[serde(rename = "models_interval_ms", with = "PositiveMillis")]
    pub models_interval: Duration,
    /// Share of a model's instances that must serve a version before requests that name none go there, from 0 (at once)
    /// to 1: the first to be updated cannot carry what all carried. Default 0.5.
    pub version_share: Fraction,
    /// Milliseconds that a request to load or unload a model waits, once the instances did so, until they are seen to
    /// serve it or not. Default 10000.
    #[serde(rename = "load_wait_ms", with = "PositiveMillis")]
    pub load_wait: Duration,
    /// Milliseconds before the second try to connect; doubles with every try. Default 100.
    #[serde(rename = "connect_backoff_min_ms", with = "PositiveMillis")]
    pub connect_backoff_min: Duration,
    /// Milliseconds that the wait between two tries never exceeds. Default 5000.
    #[serde(rename = "connect_backoff_max_ms", with = "PositiveMillis")]
    pub connect_backoff_max: Duration,
    /// Milliseconds that an instance may hold a job beyond the deadline of its last query before the job counts as
    /// failed and the instance as free. Late answers are still worth knowing: they tell a slow instance from a dead
    /// one. Default 1000.
    #[serde(rename = "overrun_ms", with = "PositiveMillis")]
    pub overrun: Duration,
    /// Milliseconds that a removed instance has to finish what it holds. Default 30000.
    #[serde(rename = "drain_timeout_ms", with = "PositiveMillis")]
    pub drain_timeout: Duration,
    /// Milliseconds between two looks at `workers_file`. Default 1000.
    #[serde(rename = "file_interval_ms", with = "PositiveMillis")]
    pub file_interval: Duration,
    /// Milliseconds between two looks at what a `dns+` or `srv+` worker stands for; the answers' times to live are not
    /// heeded. A server is removed once two answers in a row lack it. An answer without servers changes nothing. Default 5000.
    #[serde(rename = "dns_interval_ms", with = "PositiveMillis")]
    pub dns_interval: Duration,
    /// Name servers to ask for such workers, as `ADDRESS:PORT`. Default: none, that is the system's.
    pub name_servers: Vec<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: Vec::new(),
            workers_file: None,
            bundles: None,
            bundles_interval: Duration::from_secs(1),
            unbatched: Vec::new(),
            requests: Requests::default(),
            instances: Instances::default(),
            kubernetes: kubernetes::Config::default(),
            neighbours: neighbours::Config::default(),
            client: client::Config::default(),
            admin: admin::Config::default(),
            recording: record::Config::default(),
            capture: capture::Config::default(),
            dispatch: PoolSettings::default(),
            shares: parm_shares::Settings::default(),
            models: BTreeMap::new(),
        }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            default_deadline: Duration::from_secs(10),
            max_deadline: Duration::from_secs(120),
            max_rows: const { NonZeroUsize::new(256).unwrap() },
            retry_after: Duration::from_secs(1),
            codable_magnitude: 1e6,
        }
    }
}

impl Default for Instances {
    fn default() -> Self {
        Self {
            slots: NonZeroU16::MIN,
            limit: const { NonZeroU32::new(4096).unwrap() },
            models: Vec::new(),
            health_interval: Duration::from_secs(1),
            health_timeout: Duration::from_secs(2),
            questions: const { NonZeroU16::new(8).unwrap() },
            health_failures: const { NonZeroU16::new(3).unwrap() },
            models_interval: Duration::from_secs(5),
            version_share: Fraction::percent(50),
            load_wait: Duration::from_secs(10),
            connect_backoff_min: Duration::from_millis(100),
            connect_backoff_max: Duration::from_secs(5),
            overrun: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(30),
            file_interval: Duration::from_secs(1),
            dns_interval: Duration::from_secs(5),
            name_servers: Vec::new(),
        }
    }
}

impl Config {
    /// The settings of a model's pool.
    pub fn pool(&self, model: &str) -> &PoolSettings {
        self.models.get(model).unwrap_or(&self.dispatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_its_file() {
        let text = toml::to_string(&Config::default()).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config::default());
    }

    #[test]
    fn unknown_fields_and_empty_durations_are_refused() {
        assert!(toml::from_str::<Config>("wrokers = []").unwrap_err().to_string().contains("wrokers"));
        let zero = toml::from_str::<Config>("[instances]\nhealth_interval_ms = 0").unwrap_err();
        assert!(zero.to_string().contains("from 1 to"), "{zero}");
    }
}
