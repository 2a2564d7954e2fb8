//! Lists the policies of the demo: what each does in words, its models and its settings.

use std::str::FromStr;

use parm_settings::{BatchSize, PolicyKind, PoolSettings};

/// Servers of each policy.
pub const SERVERS: u32 = 12;

/// The deployed model, its stand-in, and its parity models.
pub const MODEL: &str = "fashion-lenet";
pub const STAND_IN: &str = "fashion-perceptron";
const PARITIES: [&str; 4] =
    ["fashion-lenet-slots-k2", "fashion-lenet-slots-k3", "fashion-lenet-slots-k4", "fashion-lenet-sum-k2"];

/// A policy of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub name: &'static str,
    /// What it does, for people who have never heard of it.
    pub what: &'static str,
    /// The frontend's policy; `None` is a usual load balancer instead of a frontend.
    kind: Option<PolicyKind>,
    /// The models that its servers load beside the deployed one.
    pub models: &'static [&'static str],
}

/// All policies; the first three are the default.
const ALL: [Policy; 4] = [
    Policy {
        name: "least-requests",
        what: "a usual balancer: the server with the fewest open requests",
        kind: None,
        models: &[],
    },
    Policy {
        name: "hedge",
        what: "parm's default: a late request also runs on a second server",
        kind: Some(PolicyKind::Hedge),
        models: &[],
    },
    Policy {
        name: "stand-in",
        what: "a cheaper model may answer late requests, approximately",
        kind: Some(PolicyKind::StandIn),
        models: &[STAND_IN],
    },
    Policy {
        name: "parm+",
        what: "idle servers run combined requests to restore late answers",
        kind: Some(PolicyKind::ParmPlus),
        models: &PARITIES,
    },
];

impl Policy {
    /// The names, for messages.
    pub fn names() -> String {
        ALL.map(|policy| policy.name).join(", ")
    }

    /// Returns the dispatcher's settings; `None` for a policy without a frontend.
    pub fn settings(&self) -> Option<PoolSettings> {
        let mut settings = PoolSettings { policy: self.kind?, ..PoolSettings::default() };
        // A job for each query: the work per query is counted in jobs, and the policies are compared by late jobs alone.
        settings.batch.max_size = BatchSize::ONE;
        Some(settings)
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ALL.into_iter().find(|policy| policy.name == text);
        named.ok_or_else(|| format!("unknown policy '{text}': use one of {}", Self::names()))
    }
}
