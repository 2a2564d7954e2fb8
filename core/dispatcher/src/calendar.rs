//! The calendar: when to look at a query or an instance again. It is the only timer of the dispatcher.
//!
//! Entries are not removed. An entry counts only if its moment is still the one that the query or the instance has noted, and
//! entries of ended queries find nothing. Most queries end long before the deadline that they have noted. So entries beyond the
//! next milliseconds lie unsorted in slots, and those that do not count any more are dropped when their slot comes near.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::Time;
use crate::instance::InstanceKey;
use crate::query::QueryKey;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    Query(QueryKey),
    Instance(InstanceKey),
}

/// A slot has two to the power of so many nanoseconds: four milliseconds.
const SLOT: u32 = 22;

/// Future looks.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    /// Those of the slots up to `near`, the next first.
    next: BinaryHeap<Reverse<(Time, Look)>>,
    near: u64,
    later: BTreeMap<u64, Vec<(Time, Look)>>,
}

impl Calendar {
    pub(crate) fn note(&mut self, at: Time, look: Look) {
        let slot = at.as_nanos() >> SLOT;
        if slot <= self.near {
            self.next.push(Reverse((at, look)));
        } else {
            self.later.entry(slot).or_default().push((at, look));
        }
    }

    /// Makes sure that [`next`](Self::next) knows the next entry that counts, if there is one.
    pub(crate) fn arrange(&mut self, counts: impl Fn(Time, Look) -> bool) {
        while self.next.is_empty()
            && let Some((slot, looks)) = self.later.pop_first()
        {
            self.near = slot;
            self.next.extend(looks.into_iter().filter(|(at, look)| counts(*at, *look)).map(Reverse));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.next.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next entry that is due.
    pub(crate) fn take(&mut self, now: Time) -> Option<(Time, Look)> {
        let Reverse(first) = *self.next.peek()?;
        if first.0 > now {
            return None;
        }
        self.next.pop();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_in_order_and_those_that_do_not_count_are_dropped() {
        let mut calendar = Calendar::default();
        let look = Look::Query(QueryKey::default());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        for millis in [900, 3, 500, 1, 501, 20] {
            calendar.note(at(millis), look);
        }
        let mut taken = Vec::new();
        loop {
            calendar.arrange(|at, _| at.as_nanos() != 500_000_000);
            let Some(next) = calendar.next() else { break };
            assert_eq!(calendar.take(Time::from_nanos(next.as_nanos() - 1)), None);
            taken.extend(calendar.take(next).map(|(at, _)| at));
        }
        assert_eq!(taken, [1, 3, 20, 501, 900].map(at));
    }
}
