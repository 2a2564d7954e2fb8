//! Lists the policies of the demo and their settings.

use std::str::FromStr;

use parm_encoder::Kind;
use parm_settings::{BatchSize, PolicyKind, PoolSettings};

/// A policy of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The same instances without redundancy: the baseline.
    Equal,
    /// Duplicates of late jobs; ejects slow instances.
    Hedge,
    /// The paper's policy, with a third of the instances for parities.
    Parm,
    /// Parities on idle instances, and hedges for queries that these cannot help; ejects slow instances.
    ParmPlus,
    /// A cheaper model for late queries; ejects slow instances.
    StandIn,
}

/// The names, for messages.
pub const NAMES: &str = "equal, hedge, parm, parm+, stand-in";

/// All policies, in the order of columns.
pub const ALL: [Policy; 5] = [Policy::Equal, Policy::Hedge, Policy::Parm, Policy::ParmPlus, Policy::StandIn];

impl Policy {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Equal => "equal",
            Policy::Hedge => "hedge",
            Policy::Parm => "parm",
            Policy::ParmPlus => "parm+",
            Policy::StandIn => "stand-in",
        }
    }

    /// Whether it uses parity models.
    pub fn is_coded(self) -> bool {
        matches!(self, Policy::Parm | Policy::ParmPlus)
    }

    /// Returns the dispatcher's settings. Equal-Resources and the paper's policy do not eject instances; the others do.
    pub fn settings(self, code: Option<Kind>) -> PoolSettings {
        let (policy, ejects) = match self {
            Policy::Equal => (PolicyKind::Equal, false),
            Policy::Hedge => (PolicyKind::Hedge, true),
            Policy::Parm => (PolicyKind::Parm, false),
            Policy::ParmPlus => (PolicyKind::ParmPlus, true),
            Policy::StandIn => (PolicyKind::StandIn, true),
        };
        let mut settings = PoolSettings { policy, ..PoolSettings::default() };
        settings.ejection.enabled = ejects;
        // A job for each query: the work per query is counted in jobs, and the policies are compared by late jobs alone.
        settings.batch.max_size = BatchSize::ONE;
        settings.coding.code = code;
        settings
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| format!("unknown policy '{text}': use one of {NAMES}"))
    }
}
