//! A policy in the comparison: its dispatch settings and how the instances are divided.

use std::num::NonZeroU8;

use parm_settings::{PolicyKind, PoolSettings};
use parm_simulator::Lengths;
use serde::{Deserialize, Serialize};

/// A policy and its instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contender {
    /// The dispatch settings, with the same fields as in the frontend's configuration.
    pub dispatch: PoolSettings,
    /// Number of instances, if it differs from the experiment's.
    pub instances: Option<u32>,
    /// Instances that serve only parity models. Default 0: all serve everything, and the policy divides them.
    pub parity_only: u32,
    /// How batches treat queries of unequal lengths, in a simulation: `mixed` without regard to them, `equal` lengths only,
    /// or `padded` where that pays. Default `mixed`.
    pub lengths: Lengths,
}

/// The predefined policies and their descriptions.
pub const POLICIES: &[(&str, &str)] = &[
    ("none", "no redundancy, on the deployed instances alone"),
    ("equal", "no redundancy, on all instances: Equal-Resources, the baseline"),
    ("replicate", "every query on two instances, as soon as two are free"),
    ("hedge", "late queries once more, within a budget"),
    ("parm", "the paper's: a parity per two queries, on a third of the instances"),
    ("parm+", "parities on idle instances, hedges within a budget, groups of 2 to 4"),
    ("approximate-backup", "every query on a cheaper model too, on instances of its own"),
    ("stand-in", "a cheaper model for late queries, hedges within a budget"),
];

/// The instances of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Total number of instances.
    pub(crate) instances: u32,
    /// The instances to which loads refer.
    pub(crate) deployed: u32,
}

impl Contender {
    /// Returns the predefined policy of this name.
    pub(crate) fn named(name: &str, resources: Resources) -> Option<Self> {
        let mut contender = Contender::default();
        let policy = match name {
            "none" => PolicyKind::None,
            "equal" => PolicyKind::Equal,
            "replicate" => PolicyKind::Replicate,
            "hedge" => PolicyKind::Hedge,
            "parm" => PolicyKind::Parm,
            "parm+" => PolicyKind::ParmPlus,
            "approximate-backup" => PolicyKind::ApproximateBackup,
            "stand-in" => PolicyKind::StandIn,
            _ => return None,
        };
        contender.dispatch.policy = policy;
        if policy == PolicyKind::ParmPlus {
            contender.dispatch.coding.k_choices = (3..=4).filter_map(NonZeroU8::new).collect();
        }
        if policy == PolicyKind::None {
            contender.instances = Some(resources.deployed);
        }
        Some(contender)
    }
}

impl Contender {
    /// Returns the policy for every `k` and `r`, with the suffix of each name: a group of a given size does not follow
    /// the load.
    pub(crate) fn variants(self, ks: &[NonZeroU8], rs: &[NonZeroU8]) -> Vec<(String, Self)> {
        if !self.dispatch.policy.is_coded() {
            return vec![(String::new(), self)];
        }
        let each = |values: &[NonZeroU8]| match values {
            [] => vec![None],
            values => values.iter().copied().map(Some).collect(),
        };
        let mut variants = Vec::new();
        for k in each(ks) {
            for r in each(rs) {
                let (mut name, mut variant) = (String::new(), self.clone());
                let coding = &mut variant.dispatch.coding;
                if let Some(k) = k {
                    (coding.k, coding.k_choices) = (k, Vec::new());
                    coding.parm_plus.k_follows_load = false;
                    name += &format!(" k={k}");
                }
                if let Some(r) = r {
                    coding.r = r;
                    name += &format!(" r={r}");
                }
                variants.push((name, variant));
            }
        }
        variants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_policy_exists() {
        let resources = Resources { instances: 18, deployed: 12 };
        for (name, _) in POLICIES {
            assert!(Contender::named(name, resources).is_some(), "{name} is missing");
        }
        assert_eq!(Contender::named("hope", resources), None);
    }

    #[test]
    fn hedge_has_the_settings_that_are_served() {
        let resources = Resources { instances: 18, deployed: 12 };
        let dispatch = |name| Contender::named(name, resources).unwrap().dispatch;
        assert_eq!(dispatch("hedge"), PoolSettings { policy: PolicyKind::Hedge, ..PoolSettings::default() });
    }

    #[test]
    fn only_coded_policies_come_in_variants() {
        let resources = Resources { instances: 18, deployed: 12 };
        let (two, three) = (NonZeroU8::new(2).unwrap(), NonZeroU8::new(3).unwrap());
        let names = |name: &str| {
            let variants =
                Contender::named(name, resources).unwrap().variants(&[two, three], &[NonZeroU8::MIN]);
            variants
                .into_iter()
                .map(|(name, variant)| (name, variant.dispatch.coding.k.get()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("parm"), [(" k=2 r=1".to_owned(), 2), (" k=3 r=1".to_owned(), 3)]);
        assert_eq!(names("hedge"), [(String::new(), 2)]);
    }
}
