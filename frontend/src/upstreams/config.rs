//! Settings of upstream servers and their routes.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use parm_durations::PositiveMillis;
use parm_settings::Fraction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The timeouts of a route without its own.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// Servers of any kind, which get HTTP requests as clients send them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The servers: `http://HOST:PORT`, `https://HOST:PORT`, or over HTTP/2 `grpc://HOST:PORT` and `grpcs://HOST:PORT`, with
    /// `dns+`, `srv+` or `kubernetes+` in front as for `frontend.workers`. Servers at `grpc://` get gRPC calls, and all other
    /// requests too if none is at `http://`. Default: none.
    pub urls: Vec<String>,
    /// Most requests that a server gets at a time; how many it runs best is learned. Streams count until their first
    /// content. Default 256.
    pub concurrency: NonZeroU16,
    /// Path of health checks. Any answer means that the server works, except a status from 500 without a gRPC status. Default
    /// `/health`.
    pub probe: String,
    /// Paths of requests that a server may run twice, whatever their method. A `*` at the end stands for the rest: `/api/*`. Each
    /// is a route; known routes go first. Default: none, so requests without a route are sent once, unless they only read.
    pub repeatable: Vec<String>,
    /// Routes by name. A route with the name of a known one replaces it. Default: none, the known ones.
    pub routes: BTreeMap<String, RouteConfig>,
}

/// A route of upstream servers: requests of one kind. It has the metrics and settings of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteConfig {
    /// Paths; `{NAME}` stands for a part between slashes, or for its beginning or end, and a last `*` for the rest. With `?model=NAME` after a path only
    /// requests whose JSON body has this `model`, which go first. Default: none, which turns a known route off.
    pub paths: Vec<String>,
    /// Method. Default `POST`.
    pub method: String,
    /// Whether its requests are gRPC calls. Its paths are `/PACKAGE.SERVICE/METHOD` then. Default false.
    pub grpc: bool,
    /// Whether a server may run a request twice. If not, it is sent once. Default true.
    pub repeatable: bool,
    /// Largest share of its requests that is sent to a second server because the first is late. Default: that of
    /// `frontend.dispatch.hedge.budget`, and 0.003 for the known routes of language models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<Fraction>,
    /// Timeout until an answer begins. Default 60000.
    #[serde(rename = "deadline_ms", with = "PositiveMillis")]
    pub deadline: Duration,
    /// Longest pause in the middle of an answer. Most routes learn a shorter one. Default 60000.
    #[serde(rename = "stall_ms", with = "PositiveMillis")]
    pub stall: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            concurrency: const { NonZeroU16::new(256).unwrap() },
            probe: "/health".into(),
            repeatable: Vec::new(),
            routes: BTreeMap::new(),
        }
    }
}

impl Default for RouteConfig {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            method: "POST".into(),
            grpc: false,
            repeatable: true,
            copies: None,
            deadline: MINUTE,
            stall: MINUTE,
        }
    }
}
