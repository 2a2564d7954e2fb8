//! Addresses of other frontends over the same servers.

use parm_transport::client::Token;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Other frontends over the same servers, so that they do not choose the same instance at once. Needed only for servers
/// without tokens: those that are not workers of parm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Admin APIs of the other frontends: `http://HOST:PORT`, `https://HOST:PORT`, or `dns+http://HOST:PORT` for every
    /// address of a host. This frontend may be among them. Default: none.
    pub urls: Vec<String>,
    /// Key of the role `read` for these admin APIs. Default: none.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
}
