//! Redundancy policies: siblings that say what extra work a batch gets, and when. The dispatcher does the work.

mod approximate_backup;
mod equal;
mod hedge;
mod none;
mod parm;
mod parm_plus;
mod replicate;
mod stand_in;

use std::time::Duration;

use super::quantile::Reading;
use super::time::times;
use super::{CodingSettings, Cost, GraceSettings, InForce, PolicyKind, PoolSettings, Usual};

/// What a policy decides.
pub(super) trait Policy: Send {
    /// What goes along with a batch that is about to run, when queries keep this share of the pool busy.
    fn along(&self, _utilisation: f64) -> Along {
        Along::default()
    }

    /// How long after its start a job is late and gets a copy, given the pool's recent service times; `None` for never.
    fn late_after(&self, _recent: Option<Reading>) -> Option<Duration> {
        None
    }

    /// Whether late jobs get copies.
    fn hedges(&self) -> bool {
        false
    }

    /// Whether instances of fast models are given some ahead of time.
    fn gives_ahead(&self) -> bool {
        false
    }

    /// How many of a pool's instances are kept for parities or backups.
    fn dedicated(&self, _instances: u32) -> u32 {
        0
    }

    /// How many of a pool's instances must be idle beside the one on which spare work starts.
    fn headroom(&self, _instances: u32) -> u32 {
        0
    }

    /// How many of a pool's instances must stay idle beside the one on which a stand-in starts that nobody waits for, when
    /// queries keep so many of its slots busy and a stand-in takes this share of a query's time; `None` where none starts.
    fn kept_idle(&self, _busy: f64, _slots: u32, _cost: f64) -> Option<u32> {
        None
    }

    /// Queries that may wait, per slot, for a late job to be duplicated. With one for each everybody waits for about a service
    /// time: then what is late is so because of the queue, which duplicates would make longer.
    fn hedges_beside(&self) -> f64 {
        1.0
    }

    /// What a slow instance lacks of a well one when it is to be known whether others could do without yet another: 0 if
    /// that is not asked.
    fn lost_to_slowness(&self) -> f64 {
        0.0
    }

    /// How many of so many waiting queries a stand-in job takes.
    fn rows_at_once(&self, _cost: &Cost, _waiting: usize) -> usize {
        0
    }

    /// How long after its arrival a query may be given something else than its prediction, given the pool's recent times
    /// from arrival to prediction.
    fn grace(&self, _recent: Option<Reading>) -> Duration {
        Duration::ZERO
    }
}

/// After how long a job is late to those who hedge, whatever the policy.
pub(super) fn late_to_hedges(settings: &PoolSettings, recent: Option<Reading>) -> Option<Duration> {
    hedge::Hedge::new(&settings.hedge).late_after(recent)
}

/// What goes along with a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Along {
    /// Copies of it, each on an instance of its own.
    pub(super) copies: u8,
    /// It joins a coding group of this size.
    pub(super) group: Option<u8>,
    /// Parities of that group do not wait for idle instances.
    pub(super) at_once: bool,
    /// It runs on the backup model too.
    pub(super) backup: bool,
}

/// The policy that is in force.
pub(super) fn build(settings: &PoolSettings, in_force: &InForce) -> Box<dyn Policy> {
    match in_force.policy {
        PolicyKind::None => Box::new(none::None),
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

/// As many of what is usual as the settings say.
fn grace(settings: &GraceSettings, recent: Option<Reading>) -> Duration {
    let Some(recent) = recent else { return settings.cold };
    match settings.of {
        Usual::Median => times(recent.median, settings.factor.get()),
        Usual::Tail => times(recent.high, settings.factor.get()),
    }
}

/// One instance of `k + 1`, as `m` deployed and `m / k` others make `n`; none where there is but one.
fn one_of_k_plus_one(instances: u32, k: u8) -> u32 {
    let parts = u32::from(k) + 1;
    if instances < 2 { 0 } else { ((instances + parts / 2) / parts).max(1) }
}

/// As many as the settings say, so that one is left for queries; else as many as in the paper.
fn kept_for_parities(instances: u32, settings: &CodingSettings) -> u32 {
    let paper = || one_of_k_plus_one(instances, settings.k.get());
    settings.parity_instances.map_or_else(paper, |kept| kept.get().min(instances.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use PolicyKind::{ApproximateBackup, Equal, Hedge, Parm, ParmPlus, Replicate};

    use super::*;

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
        [PolicyKind::None, Equal, Replicate, Parm, ApproximateBackup]
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
