//! The event heap: future events in order of time, and in insertion order at the same time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use parm_workload::clock::Moment;

/// The future events.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    heap: BinaryHeap<Entry<E>>,
    noted: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Moment,
    order: u64,
    event: E,
}

impl<E> Calendar<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), noted: 0 }
    }

    pub(crate) fn note(&mut self, at: Moment, event: E) {
        self.noted += 1;
        self.heap.push(Entry { at, order: self.noted, event });
    }

    /// Returns the time of the next event: never, if there is none.
    pub(crate) fn next_at(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |entry| entry.at)
    }

    pub(crate) fn take(&mut self) -> Option<E> {
        self.heap.pop().map(|entry| entry.event)
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed, because the heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_and_then_by_insertion() {
        let mut calendar = Calendar::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            calendar.note(Moment::from_nanos(at), name);
        }
        let order: String = std::iter::from_fn(|| calendar.take()).collect();
        assert_eq!((order.as_str(), calendar.next_at()), ("abcd", Moment::NEVER));
    }
}
