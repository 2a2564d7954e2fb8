//! The policies that are shown side by side.

use std::str::FromStr;

use parm_dispatch::{PolicyKind, PoolSettings};
use parm_encoder::Kind;

/// A policy of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// No redundancy on the same instances: what the others are measured against.
    Equal,
    /// Late work once more, slow instances ejected.
    Hedge,
    /// The paper's, with a third of the instances for parities.
    Parm,
    /// Ours: parities in spare time, hedges where they cannot help, slow instances ejected.
    ParmPlus,
    /// A cheaper model beside the deployed one, for late queries; slow instances ejected.
    StandIn,
}

/// Their names, for people.
pub const NAMES: &str = "equal, hedge, parm, parm+, stand-in";

/// All of them, in the order of columns.
pub const ALL: [Policy; 5] = [Policy::Equal, Policy::Hedge, Policy::Parm, Policy::ParmPlus, Policy::StandIn];

impl Policy {
    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Equal => "equal",
            Policy::Hedge => "hedge",
            Policy::Parm => "parm",
            Policy::ParmPlus => "parm+",
            Policy::StandIn => "stand-in",
        }
    }

    /// Whether it asks parity models.
    pub fn is_coded(self) -> bool {
        matches!(self, Policy::Parm | Policy::ParmPlus)
    }

    /// What the dispatcher is told. Equal-Resources and the paper's policy eject nothing; the others do.
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
        settings.coding.code = code;
        settings
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| format!("'{text}' is none of {NAMES}"))
    }
}
