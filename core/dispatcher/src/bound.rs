//! The bound on approximate answers: at most a share of a model's answers in any minute, by the clock.
//!
//! When an approximate answer is given, at most this share of the answers of the minute before it was approximate, itself
//! included. Twenty are always allowed, so that a model with few requests gets a first one. A minute by the clock is what an
//! operator checks on a dashboard; a window of a number of answers means three seconds on a busy model and an hour on a quiet
//! one.
//!
//! As the bound fills, the wait for the exact answer grows ([`Bound::stretch`]), so that the approximations that are left go
//! to the slowest queries.

use std::collections::BTreeMap;

use slotmap::new_key_type;

use crate::Time;
use crate::turns::Payer;

/// Approximate answers that are allowed in a minute with few answers.
const FLOOR: u32 = 20;

/// The growth of the wait: with half of the bound used it is a twentieth longer.
const STIFFNESS: f64 = 0.05;

const SECOND: u64 = 1_000_000_000;
/// A minute and the second that is being filled: any sixty seconds lie within.
const SECONDS: usize = 61;

new_key_type! {
    /// The name of the bounds that the versions of a model share.
    pub(crate) struct BoundsKey;
}

/// The bounds of a model. Its versions share them: during a rollout each of them must not use the whole.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) all: Bound,
    /// The same for the queries whose clients named a bound, by payer and by the bound in thousandths.
    pub(crate) of_clients: BTreeMap<(Payer, u16), Bound>,
}

impl Bounds {
    /// Whether one more answer to a client with this bound may be approximate.
    pub(crate) fn client_has_room(&self, now: Time, payer: Payer, most: u16) -> bool {
        let own = self.of_clients.get(&(payer, most));
        own.map_or(most >= 1000, |own| own.has_room(now, f64::from(most) / 1000.0))
    }

    /// A query of a client with a bound was answered.
    pub(crate) fn note_client(&mut self, now: Time, payer: Payer, most: u16, approximate: bool) {
        let own = self.of_clients.entry((payer, most)).or_insert_with(Bound::without_floor);
        own.note(now, approximate);
    }
}

/// The answers of the last minute.
#[derive(Debug)]
pub(crate) struct Bound {
    /// All answers and the approximate ones of each second, in a ring.
    seconds: Box<[(u32, u32); SECONDS]>,
    current: u64,
    all: u32,
    approximate: u32,
    /// Approximate answers that a minute with few answers may have.
    floor: u32,
}

impl Default for Bound {
    fn default() -> Self {
        Self { seconds: Box::new([(0, 0); SECONDS]), current: 0, all: 0, approximate: 0, floor: FLOOR }
    }
}

impl Bound {
    /// The bound of clients that named one: it holds from the first minute on.
    fn without_floor() -> Self {
        Self { floor: 0, ..Self::default() }
    }

    /// A query was answered.
    pub(crate) fn note(&mut self, now: Time, approximate: bool) {
        self.pass(now);
        let second = &mut self.seconds[(self.current % SECONDS as u64) as usize];
        second.0 += 1;
        second.1 += u32::from(approximate);
        self.all += 1;
        self.approximate += u32::from(approximate);
    }

    /// Whether one more answer may be approximate, if this share of them may be.
    pub(crate) fn has_room(&self, now: Time, share: f64) -> bool {
        let [approximate, most, _] = self.minute(now, share);
        approximate < most
    }

    /// The approximate answers of the last minute, how many there may be, and all answers.
    pub(crate) fn minute(&self, now: Time, share: f64) -> [u32; 3] {
        let (mut all, mut approximate) = (self.all, self.approximate);
        for second in self.passed(now) {
            all -= self.seconds[second].0;
            approximate -= self.seconds[second].1;
        }
        [approximate, self.most(all, share), all]
    }

    /// The factor by which the wait for the exact answer grows: 1 while few approximate answers were given.
    pub(crate) fn stretch(&self, share: f64) -> f64 {
        let left = self.most(self.all, share).saturating_sub(self.approximate).max(1);
        1.0 + STIFFNESS * f64::from(self.approximate) / f64::from(left)
    }

    /// The used part of the bound.
    pub(crate) fn used(&self, share: f64) -> f64 {
        f64::from(self.approximate) / f64::from(self.most(self.all, share).max(1))
    }

    /// The most approximate answers of a minute with so many answers and one more.
    fn most(&self, all: u32, share: f64) -> u32 {
        if share <= 0.0 { 0 } else { self.floor.max((f64::from(all + 1) * share) as u32) }
    }

    /// The places of the seconds that are over a minute old now.
    fn passed(&self, now: Time) -> impl Iterator<Item = usize> + use<> {
        let passed = self.current + 1..=now.as_nanos() / SECOND;
        passed.take(SECONDS).map(|second| (second % SECONDS as u64) as usize)
    }

    /// Forgets them.
    fn pass(&mut self, now: Time) {
        for second in self.passed(now) {
            let (all, approximate) = std::mem::take(&mut self.seconds[second]);
            self.all -= all;
            self.approximate -= approximate;
        }
        // After a pause of more than a minute the ring is empty, wherever it continues.
        self.current = self.current.max(now.as_nanos() / SECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn no_minute_has_more_than_the_share_and_a_quiet_one_has_twenty() {
        let mut bound = Bound::default();
        let mut given = Vec::new();
        // Ten answers a second for three minutes, each approximate if it may be; then one a second.
        let times = (0..1800).map(|n| n * 100).chain((0..120).map(|n| 180_000 + n * 1000));
        for millis in times {
            let approximate = bound.has_room(at(millis), 0.05);
            bound.note(at(millis), approximate);
            given.push((millis, approximate));
        }
        for (end, _) in given.iter().filter(|(_, approximate)| *approximate) {
            let minute = given.iter().filter(|(at, _)| at <= end && at + 60_000 > *end);
            let (all, approximate) =
                minute.fold((0, 0), |(all, yes), (_, own)| (all + 1, yes + u32::from(*own)));
            assert!(approximate <= 20.max(all / 20), "{approximate} of {all} in the minute before {end}");
        }
        let last = given.iter().filter(|(at, own)| *own && *at >= 240_000).count();
        assert!(last >= 20, "a quiet minute has its floor: {last}");
    }

    #[test]
    fn a_share_of_nothing_allows_nothing() {
        assert!(!Bound::default().has_room(at(0), 0.0));
    }
}
