//! The calendar: when to look at a query or an instance again. It is the only timer of the dispatcher.
//!
//! Entries are not removed. An entry counts only if its moment is still the one that the query or the instance has noted, and
//! entries of ended queries find nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::instance::InstanceKey;
use crate::query::QueryKey;
use crate::time::Time;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    Query(QueryKey),
    Instance(InstanceKey),
}

/// Future looks, the next first.
#[derive(Debug, Default)]
pub(crate) struct Calendar(BinaryHeap<Reverse<(Time, Look)>>);

impl Calendar {
    pub(crate) fn note(&mut self, at: Time, look: Look) {
        self.0.push(Reverse((at, look)));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next entry that is due.
    pub(crate) fn take(&mut self, now: Time) -> Option<(Time, Look)> {
        let Reverse(first) = *self.0.peek()?;
        if first.0 > now {
            return None;
        }
        self.0.pop();
        Some(first)
    }
}
