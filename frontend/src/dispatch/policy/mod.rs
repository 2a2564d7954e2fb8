//! Redundancy policies: siblings that say what extra work a batch gets, and when. The dispatcher does the work.

mod equal;
mod hedge;
mod none;
mod replicate;

use std::time::Duration;

use super::quantile::Reading;
use super::{PolicyKind, PoolSettings};

/// What a policy decides.
pub(super) trait Policy: Send {
    /// Copies of a batch to send along with it, each to an instance of its own.
    fn copies(&self) -> u8 {
        0
    }

    /// How long after its start a job is late and gets a copy, given the pool's recent service times; `None` for never.
    fn late_after(&self, _recent: Option<Reading>) -> Option<Duration> {
        None
    }
}

/// The policy that a pool's settings name.
pub(super) fn build(settings: &PoolSettings) -> Box<dyn Policy> {
    match settings.policy {
        PolicyKind::None => Box::new(none::None),
        PolicyKind::Equal => Box::new(equal::Equal),
        PolicyKind::Replicate => Box::new(replicate::Replicate::new(&settings.replicate)),
        PolicyKind::Hedge => Box::new(hedge::Hedge::new(&settings.hedge)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_say_what_a_batch_gets() {
        let ms = Duration::from_millis;
        let recent = Some(Reading { median: ms(20), high: ms(60) });
        let even = Some(Reading { median: ms(20), high: ms(21) });
        // Copies at once; late with a long tail, without one, and while nothing is known.
        let check = |kind, copies, late: [Option<Duration>; 3]| {
            let policy = build(&PoolSettings { policy: kind, ..PoolSettings::default() });
            assert_eq!(policy.copies(), copies, "{kind:?}");
            assert_eq!([recent, even, None].map(|recent| policy.late_after(recent)), late, "{kind:?}");
        };
        check(PolicyKind::None, 0, [None; 3]);
        check(PolicyKind::Equal, 0, [None; 3]);
        check(PolicyKind::Replicate, 1, [None; 3]);
        check(PolicyKind::Hedge, 0, [Some(ms(60)), Some(ms(25)), None]);
    }
}
