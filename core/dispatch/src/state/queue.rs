//! The queue of a pool: by priority, then by arrival, with a lane for each payer and shape.
//!
//! A batch has one shape and one payer, so each combination has a lane. Lanes delete lazily: a query that was
//! answered or cancelled finds nothing under its key and is skipped. A lane is swept when the dead could outnumber
//! the living, so memory follows the living queries, which the pool's limit bounds.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Payer, ShapeId, Time};
use crate::state::keys::{Keys, QueryKey};

/// Queries that wait for an instance and were never tried.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Sorted by priority; there is nearly always one.
    lanes: Vec<(LaneId, Lane)>,
    waiting: u32,
}

/// Which queries may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneId {
    pub(crate) priority: u8,
    pub(crate) payer: Payer,
    pub(crate) shape: ShapeId,
    /// Its queries are served alone.
    pub(crate) alone: bool,
}

/// The time at which a batch may start although an instance is free: with so many rows, or when its first query has
/// waited for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) rows: u16,
    pub(crate) wait: Duration,
}

impl Readiness {
    pub(crate) const AT_ONCE: Self = Self { rows: 1, wait: Duration::ZERO };
}

#[derive(Debug, Default)]
struct Lane {
    entries: VecDeque<Queued>,
    alive: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    query: QueryKey,
    arrived: Time,
}

/// Empty lanes that are kept for their memory. Clients that vary shapes must not keep more.
const LANES_KEPT: usize = 8;
const DEAD_ALLOWED: usize = 16;

impl Queue {
    /// The number of waiting queries.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    pub(crate) fn push(&mut self, id: LaneId, query: QueryKey, arrived: Time) {
        let index = self.find(id).unwrap_or_else(|index| {
            self.lanes.insert(index, (id, Lane::default()));
            index
        });
        let lane = &mut self.lanes[index].1;
        lane.entries.push_back(Queued { query, arrived });
        lane.alive += 1;
        self.waiting += 1;
    }

    /// Notes that a query of a lane is gone. `alive` is false for its key.
    pub(crate) fn gone(&mut self, id: LaneId, alive: impl Fn(QueryKey) -> bool) {
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

    /// The lane from which a free instance takes its batch: the first by rank among the ready lanes, with its
    /// rank.
    pub(crate) fn ready<R: Ord + Copy>(
        &self,
        now: Time,
        batch: Readiness,
        rank: impl Fn(&LaneId, Time) -> R,
    ) -> Option<(R, LaneId)> {
        let each = self.ready_lanes(now, batch).map(|(id, first, _)| (rank(id, first), *id));
        each.min_by_key(|(rank, _)| *rank)
    }

    /// Lanes with a batch that may start, with the arrival of the first query and the number of queries.
    pub(crate) fn ready_lanes(
        &self,
        now: Time,
        batch: Readiness,
    ) -> impl Iterator<Item = (&LaneId, Time, u32)> {
        self.lanes.iter().filter_map(move |(id, lane)| {
            let first = lane.entries.front()?.arrived;
            let full = id.alone || lane.alive >= u32::from(batch.rows);
            (full || first + batch.wait <= now).then_some((id, first, lane.alive))
        })
    }

    /// The first query of a lane.
    pub(crate) fn first(&self, id: LaneId) -> Option<QueryKey> {
        Some(self.lanes[self.find(id).ok()?].1.entries.front()?.query)
    }

    /// The queries of a lane, and dead keys, from the first or from the last.
    pub(crate) fn in_order(&self, id: LaneId, last: bool) -> impl Iterator<Item = QueryKey> {
        let entries = self.find(id).ok().map(|index| &self.lanes[index].1.entries);
        let count = entries.map_or(0, VecDeque::len);
        let place = move |at: usize| if last { count - 1 - at } else { at };
        (0..count).filter_map(move |at| Some(entries?.get(place(at))?.query))
    }

    /// The arrival of the query that a payer's next job begins with: the oldest of its most urgent ones.
    pub(crate) fn first_arrival(&self, payer: Payer) -> Option<Time> {
        let own = self.lanes.iter().filter(|(id, lane)| id.payer == payer && lane.alive > 0);
        let first = own.filter_map(|(id, lane)| Some((id.priority, lane.entries.front()?.arrived)));
        first.min().map(|(_, arrived)| arrived)
    }

    /// Waiting queries of a lane.
    pub(crate) fn waiting_in(&self, id: LaneId) -> u32 {
        self.find(id).map_or(0, |index| self.lanes[index].1.alive)
    }

    /// Waiting queries of a payer.
    pub(crate) fn waiting_of(&self, payer: Payer) -> u32 {
        self.lanes.iter().filter(|(id, _)| id.payer == payer).map(|(_, lane)| lane.alive).sum()
    }

    /// Waiting queries of a payer in lanes of this priority or a more urgent one.
    pub(crate) fn waiting_until(&self, payer: Payer, priority: u8) -> u32 {
        let before = |id: &LaneId| id.payer == payer && id.priority <= priority;
        self.lanes.iter().filter(|(id, _)| before(id)).map(|(_, lane)| lane.alive).sum()
    }

    /// The last query of a payer's least urgent lane, if that lane is less urgent than this priority.
    pub(crate) fn less_urgent(
        &self,
        payer: Payer,
        priority: u8,
        alive: impl Fn(QueryKey) -> bool,
    ) -> Option<QueryKey> {
        let lanes = self.lanes.iter().filter(|(id, lane)| id.payer == payer && lane.alive > 0);
        let (id, lane) = lanes.max_by_key(|(id, _)| id.priority)?;
        let last = || lane.entries.iter().rev().find(|entry| alive(entry.query));
        (id.priority > priority).then(last).flatten().map(|entry| entry.query)
    }

    /// Payers with waiting queries.
    pub(crate) fn payers(&self) -> impl Iterator<Item = Payer> {
        let mut seen: SmallVec<[Payer; 4]> = SmallVec::new();
        self.lanes.iter().filter(|(_, lane)| lane.alive > 0).filter_map(move |(id, _)| {
            let new = !seen.contains(&id.payer);
            new.then(|| {
                seen.push(id.payer);
                id.payer
            })
        })
    }

    /// The time when the first batch is old enough to start.
    pub(crate) fn ready_at(&self, batch: Readiness) -> Option<Time> {
        self.lanes
            .iter()
            .filter_map(|(_, lane)| lane.entries.front())
            .map(|first| first.arrived + batch.wait)
            .min()
    }

    /// The first and the last query of a lane with at least two.
    pub(crate) fn ends(&self, id: LaneId, alive: impl Fn(QueryKey) -> bool) -> Option<(QueryKey, QueryKey)> {
        let lane = &self.lanes[self.find(id).ok()?].1;
        if lane.alive < 2 {
            return None;
        }
        let first = lane.entries.front()?;
        let last = lane.entries.iter().rev().find(|entry| alive(entry.query))?;
        Some((first.query, last.query))
    }

    /// Takes a batch out of a lane: its first queries, or its last.
    pub(crate) fn take(
        &mut self,
        id: LaneId,
        most: u16,
        last: bool,
        alive: impl Fn(QueryKey) -> bool,
    ) -> Keys {
        let (mut keys, most) = (Keys::new(), if id.alone { 1 } else { most });
        let Ok(index) = self.find(id) else { return keys };
        let lane = &mut self.lanes[index].1;
        while keys.len() < usize::from(most) {
            let entry = if last { lane.entries.pop_back() } else { lane.entries.pop_front() };
            let Some(entry) = entry else { break };
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

    /// Every waiting query, and dead keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = QueryKey> {
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
    /// Its fields as one number in the same order. A queue knows only its own pool as a payer.
    fn rank(self) -> u128 {
        let payer = match self.payer {
            Payer::Model(_) => 0,
            Payer::Share(share) => u64::from(share.0) + 1,
        };
        let place = u64::from(self.shape.0) << 1 | u64::from(self.alone);
        u128::from(self.priority) << 66 | u128::from(payer) << 33 | u128::from(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PoolId, ShareId};

    const SHAPE: ShapeId = ShapeId(0);

    fn lane(priority: u8, shape: ShapeId) -> LaneId {
        LaneId { priority, payer: Payer::Model(PoolId(0)), shape, alone: false }
    }

    /// The ready lane by priority, then by arrival.
    fn ready(queue: &Queue, now: Time, batch: Readiness) -> Option<LaneId> {
        queue.ready(now, batch, |lane, arrived| (lane.priority, arrived)).map(|(_, lane)| lane)
    }

    fn key(raw: u64) -> QueryKey {
        QueryKey::from_raw(raw)
    }

    fn batch(size: u16, delay_ms: u64) -> Readiness {
        Readiness { rows: size, wait: Duration::from_millis(delay_ms) }
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
            let lane = ready(&queue, at(3), batch(1, 0))?;
            queue.take(lane, 1, false, |_| true).first().copied()
        })
        .collect();
        assert_eq!(order, [key(3), key(2), key(1)]);
    }

    #[test]
    fn payers_have_separate_lanes() {
        let mut queue = Queue::default();
        let paid = |share| LaneId { payer: Payer::Share(ShareId(share)), ..lane(128, SHAPE) };
        [paid(1), paid(7), paid(1)]
            .into_iter()
            .zip(0..)
            .for_each(|(lane, raw)| queue.push(lane, key(raw), at(raw)));
        assert_eq!(queue.waiting_of(Payer::Share(ShareId(1))), 2);
        assert_eq!(queue.first_arrival(Payer::Share(ShareId(7))), Some(at(1)));
        let lane = queue.ready(at(9), batch(8, 0), |lane, _| std::cmp::Reverse(lane.payer)).unwrap().1;
        assert_eq!((lane, queue.take(lane, 8, false, |_| true).as_slice()), (paid(7), &[key(1)][..]));
        assert_eq!(queue.take(paid(1), 8, false, |_| true).as_slice(), [key(0), key(2)]);
    }

    #[test]
    fn a_batch_waits_for_company_until_it_is_full_or_old() {
        let mut queue = Queue::default();
        let lane = lane(128, SHAPE);
        queue.push(lane, key(1), at(0));
        assert_eq!(ready(&queue, at(4), batch(2, 5)), None);
        assert_eq!(queue.ready_at(batch(2, 5)), Some(at(5)));
        assert_eq!(ready(&queue, at(5), batch(2, 5)), Some(lane));
        queue.push(lane, key(2), at(1));
        assert_eq!(ready(&queue, at(1), batch(2, 5)), Some(lane));
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
        assert_eq!(queue.take(lane, 8, false, |query| query == key(0)).as_slice(), [key(0)]);
        assert_eq!((queue.waiting(), ready(&queue, at(1), batch(1, 0))), (0, None));
    }
}
