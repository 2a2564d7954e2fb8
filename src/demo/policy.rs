//! Lists the policies of the demo: what each does in words, its servers, its models and its settings.

use std::str::FromStr;

use parm_encoder::Kind;
use parm_settings::{BatchSize, PolicyKind, PoolSettings};

/// The deployed model, and the linear one of `exact`, which is its own parity model.
const MODEL: &str = "fashion-lenet";
const LINEAR: &str = "fashion-linear";
/// The stand-in, and the deployed model's parity models.
pub const STAND_IN: &str = "fashion-perceptron";
const PARITIES: [&str; 4] =
    ["fashion-lenet-slots-k2", "fashion-lenet-slots-k3", "fashion-lenet-slots-k4", "fashion-lenet-sum-k2"];
const CODED: &[&str] = &[MODEL, PARITIES[0], PARITIES[1], PARITIES[2], PARITIES[3]];

/// A policy of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub name: &'static str,
    /// What it does, for people who have never heard of it.
    pub what: &'static str,
    /// The frontend's policy; `None` is a usual load balancer instead of a frontend.
    kind: Option<PolicyKind>,
    pub servers: usize,
    /// The deployed model first, then the others that its servers load.
    pub models: &'static [&'static str],
}

/// All policies; the first three are the default.
const ALL: [Policy; 7] = [
    Policy {
        name: "least-requests",
        what: "a usual balancer: the server with the fewest open requests",
        kind: None,
        servers: 12,
        models: &[MODEL],
    },
    Policy {
        name: "hedge",
        what: "parm's default: a late request also runs on a second server",
        kind: Some(PolicyKind::Hedge),
        servers: 12,
        models: &[MODEL],
    },
    Policy {
        name: "stand-in",
        what: "a cheaper model may answer late requests, approximately",
        kind: Some(PolicyKind::StandIn),
        servers: 12,
        models: &[MODEL, STAND_IN],
    },
    Policy {
        name: "parm+",
        what: "idle servers run combined requests to restore late answers",
        kind: Some(PolicyKind::ParmPlus),
        servers: 12,
        models: CODED,
    },
    Policy {
        name: "exact",
        what: "parm+ with a linear model: restored answers are exact",
        kind: Some(PolicyKind::ParmPlus),
        servers: 12,
        models: &[LINEAR],
    },
    Policy {
        name: "parm",
        what: "as in the paper: 6 of 18 servers run only combined requests",
        kind: Some(PolicyKind::Parm),
        servers: 18,
        models: CODED,
    },
    Policy {
        name: "equal",
        what: "the paper's baseline: 18 servers run each request once",
        kind: Some(PolicyKind::Equal),
        servers: 18,
        models: &[MODEL],
    },
];

impl Policy {
    /// The most servers of a policy.
    pub const MOST_SERVERS: u32 = 18;

    /// The names, for messages.
    pub fn names() -> String {
        ALL.map(|policy| policy.name).join(", ")
    }

    /// Returns the deployed model.
    pub fn model(&self) -> &'static str {
        self.models[0]
    }

    /// Returns the dispatcher's settings; `None` for a policy without a frontend.
    pub fn settings(&self) -> Option<PoolSettings> {
        let policy = self.kind?;
        let mut settings = PoolSettings { policy, ..PoolSettings::default() };
        // The paper's policies do not eject instances.
        settings.ejection.enabled = !matches!(policy, PolicyKind::Equal | PolicyKind::Parm);
        // A job for each query: the work per query is counted in jobs, and the policies are compared by late jobs alone.
        settings.batch.max_size = BatchSize::ONE;
        settings.coding.code = self.is_linear().then_some(Kind::Mds);
        Some(settings)
    }

    /// Whether the model is linear, and needs no bundle.
    pub fn is_linear(&self) -> bool {
        self.model() == LINEAR
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ALL.into_iter().find(|policy| policy.name == text);
        named.ok_or_else(|| format!("unknown policy '{text}': use one of {}", Self::names()))
    }
}
