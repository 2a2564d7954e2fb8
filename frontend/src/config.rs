//! Settings of the frontend. Those of dispatch are [`PoolSettings`].
//!
//! Fields with `skip` are constants outside of tests: no operator has a reason to choose them, so files reject their names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use parm_durations::{PositiveMillis, Whole};
use parm_settings::PoolSettings;
use parm_transport::client;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::discovery::kubernetes;
use crate::{admin, capture, record, upstreams};

/// The frontend's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Servers that run the models: `http://HOST:PORT`, `grpc://HOST:PORT`, `frames://HOST:PORT` or `unix:/PATH`.
    /// `dns+http://HOST:PORT` stands for every address of a host, `srv+http://_SERVICE._tcp.DOMAIN` for its SRV records of
    /// the first priority. `kubernetes+http://SERVICE[.NAMESPACE][:PORT]` stands for the pods of a Service, with their nodes
    /// and zones; the port is a name in the Service or a number in the pods. Default: none.
    pub workers: Vec<String>,
    /// File with the URLs of servers, one a line; `#` starts a comment. Append `node=NAME` or `zone=NAME` to override the
    /// place that the server reports. Changes apply after two identical reads; an empty file is ignored. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_file: Option<PathBuf>,
    /// Servers of any kind, which get HTTP requests as clients send them.
    pub upstreams: upstreams::Config,
    /// Bundles for the policies `parm`, `parm+` and `stand-in`: a model repository with `NAME/parm.toml` files, or one such
    /// file. Default: the folder `backend.models`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundles: Option<PathBuf>,
    /// Interval of checks for changed bundles. A check reads the times of a few files.
    #[serde(skip)]
    pub bundles_interval: Duration,
    /// Models whose first dimension varies but is not a batch dimension, such as a number of tokens. Their requests are
    /// neither split nor batched. Servers may report it as `max_batch_size` 0. Default: none.
    pub unbatched: Vec<String>,
    /// Limits on requests.
    pub requests: Requests,
    /// Connections to instances, their health checks and their use.
    pub instances: Instances,
    /// The API server of Kubernetes, for workers such as `kubernetes+http://SERVICE`.
    pub kubernetes: kubernetes::Config,
    /// Connections to workers.
    pub client: client::Config,
    /// The admin API.
    pub admin: admin::Config,
    /// Recordings of arrivals and service times.
    pub recording: record::Config,
    /// Captures of queries and answers, from which stand-ins are made.
    pub capture: capture::Config,
    /// Dispatch of the queries of every model without settings of its own.
    pub dispatch: PoolSettings,
    /// Configured shares of the instances' time.
    #[serde(skip)]
    pub shares: parm_shares::Settings,
    /// Settings of single models, by name. A model listed here uses nothing of `dispatch`.
    pub models: BTreeMap<String, PoolSettings>,
}

/// Limits on requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// Timeout of a request that sets neither `timeout` nor a deadline of its transport. Default 10000.
    #[serde(rename = "default_deadline_ms", with = "PositiveMillis")]
    pub default_deadline: Duration,
    /// Longest timeout that a request can ask for. Default 120000.
    #[serde(rename = "max_deadline_ms", with = "PositiveMillis")]
    pub max_deadline: Duration,
    /// Largest number of rows in a request; each row is a query in the queue. Default 256.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_rows: NonZeroUsize,
    /// Time after which a rejected client should retry, sent as `Retry-After`: long enough for a short queue to drain.
    #[serde(skip)]
    pub retry_after: Duration,
    /// Largest magnitude of an FP32 input that a code may mix with other clients' queries. A query with larger or non-finite
    /// values is served alone, and so is one far outside of the input range in the bundle. No sensible input reaches it, and
    /// larger values would cancel the digits of the other queries.
    #[serde(skip)]
    pub codable_magnitude: f32,
}

/// Connections to instances, their health checks and their use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Instances {
    /// Jobs that an instance may hold at a time. Raise it for servers that run several batches at once. Default 1.
    // With 1 a hung instance holds up a single batch.
    pub slots: NonZeroU16,
    /// Largest number of instances, from all sources together: far more than a frontend can check, so that a wrong name of
    /// a service does not fill the memory.
    #[serde(skip)]
    pub limit: NonZeroU32,
    /// Models of servers that cannot list their own. Default: none.
    pub models: Vec<String>,
    /// Interval of health checks. Default 1000.
    #[serde(rename = "health_interval_ms", with = "PositiveMillis")]
    pub health_interval: Duration,
    /// Timeout of health checks, probes and requests for metadata. Default 2000.
    #[serde(rename = "health_timeout_ms", with = "PositiveMillis")]
    pub health_timeout: Duration,
    /// Interval of checks for an instance's models. A model is gone if two checks in a row miss it; the second follows
    /// after `health_interval`. A check is one small request.
    #[serde(skip)]
    pub models_interval: Duration,
    /// Backoff before the second attempt to connect; it doubles with every attempt.
    #[serde(skip)]
    pub connect_backoff_min: Duration,
    /// Longest backoff. Manifests in deploy/ count on it: a new worker is used this late.
    #[serde(skip)]
    pub connect_backoff_max: Duration,
    /// Time that a job may run beyond the deadline of its last query before it counts as failed and the instance as free.
    /// Late answers tell a slow instance from a dead one.
    #[serde(skip)]
    pub overrun: Duration,
    /// Interval of DNS lookups for `dns+` and `srv+` workers, whatever the time to live of the answers. A server is removed
    /// if two answers in a row lack it; an empty answer changes nothing. Default 5000.
    #[serde(rename = "dns_interval_ms", with = "PositiveMillis")]
    pub dns_interval: Duration,
    /// Name servers for these lookups, as `ADDRESS:PORT`. Default: none, those of the system.
    pub name_servers: Vec<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: Vec::new(),
            workers_file: None,
            upstreams: upstreams::Config::default(),
            bundles: None,
            bundles_interval: Duration::from_secs(1),
            unbatched: Vec::new(),
            requests: Requests::default(),
            instances: Instances::default(),
            kubernetes: kubernetes::Config::default(),
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
            models_interval: Duration::from_secs(5),
            connect_backoff_min: Duration::from_millis(100),
            connect_backoff_max: Duration::from_secs(5),
            overrun: Duration::from_secs(1),
            dns_interval: Duration::from_secs(5),
            name_servers: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_fixed_fields_and_zero_are_rejected() {
        assert!(toml::from_str::<Config>("wrokers = []").unwrap_err().to_string().contains("wrokers"));
        for fixed in
            ["bundles_interval_ms = 5", "[requests]\ncodable_magnitude = 1", "[instances]\nquestions = 1"]
        {
            let unknown = toml::from_str::<Config>(fixed).unwrap_err().to_string();
            assert!(unknown.contains("unknown field"), "{fixed}: {unknown}");
        }
        let zero = toml::from_str::<Config>("[instances]\nhealth_interval_ms = 0").unwrap_err();
        assert!(zero.to_string().contains("from 1 to"), "{zero}");
    }
}
