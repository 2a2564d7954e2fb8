//! Addresses of other frontends over the same servers.

use parm_transport::client::Token;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Other frontends over the same servers, so that they do not meet there. Needed only where servers give no tokens (they are
/// no workers of parm, and have no agent beside them).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Their admin APIs: `http://HOST:PORT` or `https://HOST:PORT`, or a name that stands for several and is looked up again
    /// and again, `dns+http://HOST:PORT` (every address of the host). This frontend may be among them. Default: none.
    pub urls: Vec<String>,
    /// A key of the role `read` there (`authorization: Bearer KEY`). Default: none. Left out of a dumped configuration.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
}
