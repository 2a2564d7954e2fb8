//! Line of a report from a frontend to its neighbours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A line: the reporting frontend, and the servers whose number of jobs changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadReport {
    /// Random name that the frontend chose at its start.
    pub(super) frontend: String,
    /// Jobs held at each server, by the server's address.
    pub(super) holds: BTreeMap<String, u16>,
}
