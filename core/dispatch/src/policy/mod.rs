//! Redundancy policies: the extra work of a batch, and its time.
//!
//! Each file is a policy and implements [`Policy`]; [`build`] chooses one. A policy knows settings and
//! measurements only, so this layer is below the state, which holds the policy of each pool.

mod approximate_backup;
mod equal;
mod hedge;
mod hooks;
mod none;
mod once;
mod parm;
mod parm_plus;
mod replicate;
mod stand_in;

use std::time::Duration;

use crate::api::{InForce, PolicyKind, PoolSettings};
use crate::measure::quantile::Reading;
pub(crate) use hooks::{Along, Policy};

/// The age at which a hedging policy would treat a job as late.
pub(crate) fn late_to_hedges(settings: &PoolSettings, recent: Option<Reading>) -> Option<Duration> {
    hedge::Hedge::new(&settings.hedge).late_after(recent)
}

/// The effective policy of a pool.
pub(crate) fn build(settings: &PoolSettings, in_force: &InForce) -> Box<dyn Policy> {
    match in_force.policy {
        PolicyKind::None => Box::new(none::None),
        PolicyKind::Once => Box::new(once::Once),
        PolicyKind::Equal => Box::new(equal::Equal),
        PolicyKind::Replicate => Box::new(replicate::Replicate::new(&settings.replicate)),
        PolicyKind::Hedge => Box::new(hedge::Hedge::new(&settings.hedge)),
        PolicyKind::Parm => Box::new(parm::Parm::new(&settings.coding)),
        PolicyKind::ParmPlus => Box::new(parm_plus::ParmPlus::new(settings, &in_force.coding)),
        PolicyKind::ApproximateBackup => {
            Box::new(approximate_backup::ApproximateBackup::new(&settings.coding))
        }
        PolicyKind::StandIn => Box::new(stand_in::StandIn::new(&settings.stand_in, &settings.hedge)),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use PolicyKind::{ApproximateBackup, Equal, Hedge, Parm, ParmPlus, Replicate};

    use super::*;
    use crate::api::Usual;

    const NOTHING: Along = Along { copies: 0, group: None, at_once: false, backup: false };

    fn wished(settings: &PoolSettings) -> Box<dyn Policy> {
        build(settings, &InForce::as_wished(settings))
    }

    fn policy(kind: PolicyKind) -> Box<dyn Policy> {
        wished(&PoolSettings { policy: kind, ..PoolSettings::default() })
    }

    #[test]
    fn policies_say_what_goes_along_with_a_batch() {
        let check = |kind, utilisation, along| assert_eq!(policy(kind).along(utilisation), along, "{kind:?}");
        check(PolicyKind::None, 0.4, NOTHING);
        check(Equal, 0.4, NOTHING);
        check(Hedge, 0.4, NOTHING);
        check(Replicate, 0.4, Along { copies: 1, ..NOTHING });
        check(Parm, 0.9, Along { group: Some(2), ..NOTHING });
        check(ApproximateBackup, 0.4, Along { backup: true, ..NOTHING });
        check(ParmPlus, 0.1, Along { copies: 1, ..NOTHING });
        check(ParmPlus, 0.4, Along { group: Some(2), ..NOTHING });
        check(ParmPlus, 0.66, Along { group: Some(2), ..NOTHING });
        check(ParmPlus, 0.81, NOTHING);
    }

    #[test]
    fn policies_say_when_a_job_is_late() {
        let ms = Duration::from_millis;
        let tailed = Some(Reading { median: ms(20), high: ms(60) });
        let even = Some(Reading { median: ms(20), high: ms(21) });
        let check = |kind, late: [Option<Duration>; 3]| {
            let readings = [tailed, even, None];
            assert_eq!(readings.map(|recent| policy(kind).late_after(recent)), late, "{kind:?}");
        };
        let hedged = [Some(ms(60)), Some(ms(25)), None];
        [PolicyKind::None, PolicyKind::Once, Equal, Replicate, Parm, ApproximateBackup]
            .into_iter()
            .for_each(|kind| check(kind, [None; 3]));
        [Hedge, ParmPlus].into_iter().for_each(|kind| check(kind, hedged));
        let fast = Reading { median: ms(1) / 20, high: ms(1) / 10 };
        assert_eq!(policy(Hedge).late_after(Some(fast)), Some(ms(1)));
    }

    #[test]
    fn policies_say_how_long_a_reconstruction_is_held_back() {
        let ms = Duration::from_millis;
        let recent = Some(Reading { median: ms(40), high: ms(200) });
        let mut settings = PoolSettings::default();
        let mut check = |kind, usual, cold, warm| {
            (settings.policy, settings.coding.grace.of) = (kind, usual);
            let policy = wished(&settings);
            assert_eq!((policy.grace(None), policy.grace(recent)), (cold, warm), "{kind:?}");
        };
        for kind in [ParmPlus, ApproximateBackup] {
            check(kind, Usual::Median, ms(100), ms(50));
            check(kind, Usual::Tail, ms(100), ms(250));
        }
        for kind in [PolicyKind::None, Equal, Replicate, Hedge, Parm] {
            check(kind, Usual::Median, ms(0), ms(0));
        }
    }

    #[test]
    fn groups_grow_with_the_load_as_far_as_there_are_models_for() {
        let mut settings = PoolSettings { policy: ParmPlus, ..PoolSettings::default() };
        settings.coding.k_choices = [3, 4].into_iter().filter_map(NonZeroU8::new).collect();
        let policy = wished(&settings);
        let sizes = [0.3, 0.4, 0.45, 0.5, 0.7, 0.9].map(|utilisation| policy.along(utilisation).group);
        assert_eq!(sizes, [None, Some(2), Some(3), Some(4), Some(4), None]);
    }

    #[test]
    fn only_parm_plus_on_a_shared_pool_leaves_instances_idle() {
        let mut settings = PoolSettings { policy: ParmPlus, ..PoolSettings::default() };
        assert_eq!([1, 6, 18, 21, 1000].map(|n| wished(&settings).headroom(n)), [0, 0, 1, 1, 50]);
        settings.coding.parm_plus.shared_pool = false;
        assert_eq!(wished(&settings).headroom(18), 0);
        [Replicate, Parm, ApproximateBackup]
            .into_iter()
            .for_each(|kind| assert_eq!(policy(kind).headroom(18), 0));
    }

    #[test]
    fn policies_keep_instances_for_parities_as_the_paper_does() {
        let check = |kind, instances, kept| assert_eq!(policy(kind).dedicated(instances), kept, "{kind:?}");
        [PolicyKind::None, Equal, Replicate, Hedge, ParmPlus].into_iter().for_each(|kind| check(kind, 18, 0));
        for (instances, kept) in [(18, 6), (36, 12), (4, 1), (2, 1), (1, 0)] {
            [Parm, ApproximateBackup].into_iter().for_each(|kind| check(kind, instances, kept));
        }
        let mut settings = PoolSettings { policy: Parm, ..PoolSettings::default() };
        settings.coding.parity_instances = std::num::NonZeroU32::new(4);
        assert_eq!([18, 4, 1].map(|instances| wished(&settings).dedicated(instances)), [4, 3, 0]);
    }
}
