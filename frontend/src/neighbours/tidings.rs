//! What a frontend tells of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A line: who tells, and the servers of which there is news.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tidings {
    /// A name that the frontend made up when it started.
    pub(super) frontend: String,
    /// How many jobs it holds at a server, by the server's address.
    pub(super) holds: BTreeMap<String, u16>,
}
