//! The queue of a pool: by priority, then by arrival, with a lane for every shape, as only one shape fits in a batch.
//!
//! Lanes delete lazily: a query that was answered or cancelled finds nothing under its key and is passed over. Its lane
//! is tidied when the dead could outnumber the living, so memory follows the living, which the pool's limit bounds.

use std::collections::VecDeque;

use super::arena::Key;
use super::query::{Keys, Query};
use super::{BatchSettings, ShapeId, Time};

/// Queries that wait for an instance and were never tried.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// In the order in which they are served; nearly always one.
    lanes: Vec<(LaneId, Lane)>,
    waiting: u32,
}

/// Which queries may share a batch, in the order in which lanes are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId {
    pub(super) priority: u8,
    pub(super) shape: ShapeId,
    /// Its queries share no batch.
    pub(super) alone: bool,
}

#[derive(Debug, Default)]
struct Lane {
    entries: VecDeque<Queued>,
    alive: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    query: Key<Query>,
    arrived: Time,
}

/// Empty lanes that are kept for their memory; more would be a shape-happy client's doing.
const LANES_KEPT: usize = 8;
const DEAD_ALLOWED: usize = 16;

impl Queue {
    /// Queries that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    pub(super) fn push(&mut self, id: LaneId, query: Key<Query>, arrived: Time) {
        let index = self.find(id).unwrap_or_else(|index| {
            self.lanes.insert(index, (id, Lane::default()));
            index
        });
        let lane = &mut self.lanes[index].1;
        lane.entries.push_back(Queued { query, arrived });
        lane.alive += 1;
        self.waiting += 1;
    }

    /// A query of this lane is gone: `alive` says so of its key.
    pub(super) fn gone(&mut self, id: LaneId, alive: impl Fn(Key<Query>) -> bool) {
        let Ok(index) = self.find(id) else { return };
        let lane = &mut self.lanes[index].1;
        lane.alive -= 1;
        self.waiting -= 1;
        while lane.entries.front().is_some_and(|entry| !alive(entry.query)) {
            lane.entries.pop_front();
        }
        if lane.entries.len() > 2 * lane.alive as usize + DEAD_ALLOWED {
            lane.entries.retain(|entry| alive(entry.query));
        }
        self.prune(index);
    }

    /// The lane that a free instance should take a batch from: the first priority with one that is ready, and there
    /// the one whose first query came first.
    pub(super) fn ready(&self, now: Time, batch: &BatchSettings) -> Option<LaneId> {
        if self.waiting == 0 {
            return None;
        }
        let mut best: Option<(u8, Time, LaneId)> = None;
        for (id, lane) in &self.lanes {
            let Some(first) = lane.entries.front() else { continue };
            if best.is_some_and(|(priority, ..)| priority < id.priority) {
                break;
            }
            let full = id.alone || lane.alive >= u32::from(batch.max_size.get());
            let ready = full || first.arrived + batch.max_delay <= now;
            if ready && best.is_none_or(|(_, arrived, _)| first.arrived < arrived) {
                best = Some((id.priority, first.arrived, *id));
            }
        }
        best.map(|(_, _, id)| id)
    }

    /// When the first batch will be ready for its age.
    pub(super) fn ready_at(&self, batch: &BatchSettings) -> Option<Time> {
        self.lanes
            .iter()
            .filter_map(|(_, lane)| lane.entries.front())
            .map(|first| first.arrived + batch.max_delay)
            .min()
    }

    /// Priority and arrival of the query that comes next.
    pub(super) fn first(&self) -> Option<(u8, Time)> {
        let heads =
            self.lanes.iter().filter_map(|(id, lane)| Some((id.priority, lane.entries.front()?.arrived)));
        heads.min()
    }

    /// The first and the last query of a lane that has several.
    pub(super) fn ends(
        &self,
        id: LaneId,
        alive: impl Fn(Key<Query>) -> bool,
    ) -> Option<(Key<Query>, Key<Query>)> {
        let lane = &self.lanes[self.find(id).ok()?].1;
        if lane.alive < 2 {
            return None;
        }
        let first = lane.entries.front()?;
        let last = lane.entries.iter().rev().find(|entry| alive(entry.query))?;
        Some((first.query, last.query))
    }

    /// Takes a batch out of a lane.
    pub(super) fn take(&mut self, id: LaneId, most: u16, alive: impl Fn(Key<Query>) -> bool) -> Keys {
        let (mut keys, most) = (Keys::new(), if id.alone { 1 } else { most });
        let Ok(index) = self.find(id) else { return keys };
        let lane = &mut self.lanes[index].1;
        while keys.len() < usize::from(most) {
            let Some(entry) = lane.entries.pop_front() else { break };
            if alive(entry.query) {
                keys.push(entry.query);
            }
        }
        while lane.entries.front().is_some_and(|entry| !alive(entry.query)) {
            lane.entries.pop_front();
        }
        lane.alive -= keys.len() as u32;
        self.waiting -= keys.len() as u32;
        self.prune(index);
        keys
    }

    /// Every query that waits.
    pub(super) fn iter(&self) -> impl Iterator<Item = Key<Query>> {
        self.lanes.iter().flat_map(|(_, lane)| lane.entries.iter().map(|entry| entry.query))
    }

    fn find(&self, id: LaneId) -> Result<usize, usize> {
        self.lanes.binary_search_by_key(&id.rank(), |(id, _)| id.rank())
    }

    fn prune(&mut self, index: usize) {
        if self.lanes.len() > LANES_KEPT && self.lanes[index].1.alive == 0 {
            self.lanes.remove(index);
        }
    }
}

impl LaneId {
    /// Its fields in one number of the same order.
    fn rank(self) -> u64 {
        u64::from(self.priority) << 33 | u64::from(self.shape.0) << 1 | u64::from(self.alone)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::time::Duration;

    use super::*;

    const SHAPE: ShapeId = ShapeId(0);

    fn lane(priority: u8, shape: ShapeId) -> LaneId {
        LaneId { priority, shape, alone: false }
    }

    fn key(raw: u64) -> Key<Query> {
        Key::from_raw(raw)
    }

    fn batch(size: u16, delay_ms: u64) -> BatchSettings {
        let max_size = NonZeroU16::new(size).expect("positive");
        BatchSettings { max_size, max_delay: Duration::from_millis(delay_ms) }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn higher_priority_goes_first_and_then_the_oldest() {
        let mut queue = Queue::default();
        queue.push(lane(128, SHAPE), key(1), at(1));
        queue.push(lane(128, ShapeId(1)), key(2), at(0));
        queue.push(lane(1, SHAPE), key(3), at(2));
        let order: Vec<_> = std::iter::from_fn(|| {
            let lane = queue.ready(at(3), &batch(1, 0))?;
            queue.take(lane, 1, |_| true).first().copied()
        })
        .collect();
        assert_eq!(order, [key(3), key(2), key(1)]);
    }

    #[test]
    fn a_batch_waits_for_company_until_it_is_full_or_old() {
        let mut queue = Queue::default();
        let lane = lane(128, SHAPE);
        queue.push(lane, key(1), at(0));
        assert_eq!(queue.ready(at(4), &batch(2, 5)), None);
        assert_eq!(queue.ready_at(&batch(2, 5)), Some(at(5)));
        assert_eq!(queue.ready(at(5), &batch(2, 5)), Some(lane));
        queue.push(lane, key(2), at(1));
        assert_eq!(queue.ready(at(1), &batch(2, 5)), Some(lane));
    }

    #[test]
    fn the_dead_are_passed_over_and_do_not_pile_up() {
        let mut queue = Queue::default();
        let lane = lane(128, SHAPE);
        (0..1000).for_each(|raw| queue.push(lane, key(raw), at(0)));
        // All but the first die, so the front is never dead.
        for dead in 1..1000 {
            queue.gone(lane, |query| query == key(0) || query.raw() > dead);
        }
        assert!(queue.lanes[0].1.entries.len() <= DEAD_ALLOWED + 2);
        assert_eq!(queue.waiting(), 1);
        assert_eq!(queue.take(lane, 8, |query| query == key(0)).as_slice(), [key(0)]);
        assert_eq!((queue.waiting(), queue.first()), (0, None));
    }
}
