//! First line of a stream: the frontend, the caller's role, and the columns of later lines.

use parm_settings::PolicyKind;
use parm_transport::keys::Caller;
use serde_json::{Value, json};

use super::frame::{COLUMNS, STATES, reasons};
use super::histogram::{FIRST_US, PER_OCTAVE};
use super::stream::{HISTORY, INTERVAL};
use super::sums::{REJECTIONS, ROLES};
use super::{archive, journal, moment};
use crate::metrics::policy_name;
use crate::serve::reading::{Counters, Time};
use crate::serve::{Frontend, Outcome};

/// Incremented with each incompatible change.
const FORMAT: u32 = 1;

/// A node is slow if its instances take this many times as long as the others.
pub(crate) const NODE_SLOW_FACTOR: f64 = 2.0;

/// The names of all outcomes of queries.
pub(crate) fn outcomes() -> impl Iterator<Item = &'static str> {
    Outcome::ALL.map(Outcome::name).into_iter().chain(["rejected", "failed"])
}

/// The first line for a caller, with the faults of the server's files.
pub(super) fn hello(frontend: &Frontend, caller: &Caller, faults: &Value) -> Value {
    let driver = &frontend.core.driver;
    json!({
        "format": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "at": driver.wall_ms(driver.now()),
        "started_at": driver.wall_ms(Time::ZERO),
        "role": caller.role(),
        "key": caller.name(),
        "faults": faults,
        "interval_ms": INTERVAL.as_millis() as u64,
        "history_s": HISTORY.as_secs(),
        "outcomes": outcomes().collect::<Vec<_>>(),
        "roles": ROLES,
        "counts": Counters::NAMES,
        "rejections": REJECTIONS,
        "budgets": ["retry", "hedge"],
        "columns": COLUMNS,
        "states": STATES,
        "reasons": reasons(),
        "buckets": { "first_us": FIRST_US, "per_octave": PER_OCTAVE },
        "policies": PolicyKind::ALL.map(policy_name),
        "bounds": {
            "instances": moment::INSTANCES,
            "events": journal::KEPT,
            "queries": archive::KEPT,
            "node_slow_factor": NODE_SLOW_FACTOR,
        },
    })
}
