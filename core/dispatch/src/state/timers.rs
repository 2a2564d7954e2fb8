//! Timers of the dispatcher, in lanes and a heap.
//!
//! Most timers never fire: the query is answered before its deadline, the job ends before it is late. So deletion
//! is lazy: a timer holds a key that finds nothing once its subject is gone.
//!
//! Timers of one kind are nearly always set in order, because deadlines are a fixed time away. So each kind has a
//! first-in first-out lane, and only timers out of order go to a heap. The subject of a lane's front is usually
//! gone before it is due. Dropping dead fronts keeps lanes as short as the live timers, costs a step per timer and
//! saves the driver most wakes. Rejected: one heap for all, swept now and then (it held thousands of dead
//! deadlines at any time).
//!
//! Few events set a timer that is due before all others, and only these change the next wake. So lanes are
//! inspected for these events, for wakes, and now and then to drop dead timers. Inspecting lanes and heap after
//! every event was a tenth of all work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::api::Time;
use crate::state::keys::{GroupKey, InstanceKey, JobKey, PoolKey, QueryKey};

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A query's deadline.
    Deadline(QueryKey),
    /// A job becomes late.
    Late(JobKey),
    /// A late job without a copy is inspected again.
    StillLate(JobKey),
    /// A batch has waited long enough for more queries.
    Batch(PoolKey),
    /// Queries have waited long enough for a faster instance than the idle one.
    Faster(PoolKey),
    /// Queries have waited long enough for an instance.
    NoInstance(PoolKey),
    /// An open group has reached its maximum age.
    Age(GroupKey),
    /// A group has been kept long enough to compare its outputs.
    Watch(GroupKey),
    /// A query has waited long enough to receive an approximate answer.
    Grace(QueryKey),
    /// A query becomes late and needs a stand-in.
    Overdue(QueryKey),
    /// A token's lease may have expired.
    Lease(InstanceKey),
    /// A pool with reservations reserves at more instances.
    Widen(PoolKey),
    /// A pool's work has waited long enough for neighbours.
    Neighbours(PoolKey),
    /// An ejected instance is due for a probe, or its probe timed out.
    Probe(InstanceKey),
    /// An instance has had its time to warm up.
    Warm(InstanceKey),
    /// A retry may use the instance that failed it.
    Elsewhere(PoolKey),
    /// An instance with queued batches may be silent.
    Silence(InstanceKey),
    /// No instance of a pool may have answered for too long.
    Outage(PoolKey),
}

/// The lanes and the heap.
pub(crate) struct Timers {
    lanes: [VecDeque<Entry>; LANES],
    /// Out of order, or rare.
    heap: BinaryHeap<Reverse<Entry>>,
    next: u64,
    sweep_at: usize,
    /// The earliest timer set since the last inspection.
    unseen: Option<Time>,
    /// The number of timers set since then.
    fresh: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Time,
    /// Timers of one moment fire in the order in which they were set.
    order: u64,
    timer: Timer,
}

const LANES: usize = 7;
/// Lanes and heap are swept above this size, because a live front may hide dead timers.
const SWEEP_FLOOR: usize = 1024;
/// New timers after which dead fronts are dropped at the latest.
const LOOK_AFTER: u32 = 64;

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Default::default(),
            heap: BinaryHeap::new(),
            next: 0,
            sweep_at: SWEEP_FLOOR,
            unseen: None,
            fresh: 0,
        }
    }

    pub(crate) fn set(&mut self, at: Time, timer: Timer) {
        self.next += 1;
        self.fresh += 1;
        self.unseen = Some(self.unseen.map_or(at, |earliest| earliest.min(at)));
        let entry = Entry { at, order: self.next, timer };
        match timer.lane().map(|lane| &mut self.lanes[lane]) {
            Some(lane) if lane.back().is_none_or(|last| last.at <= at) => lane.push_back(entry),
            _ => self.heap.push(Reverse(entry)),
        }
    }

    /// Whether the next wake may be earlier than `earliest`, or dead timers should be dropped.
    pub(crate) fn worth_a_look(&self, earliest: Option<Time>) -> bool {
        let sooner = |new: Time| earliest.is_none_or(|known| new < known);
        self.unseen.is_some_and(sooner) || self.fresh >= LOOK_AFTER
    }

    /// Whether a new timer is already due.
    pub(crate) fn new_is_due(&self, now: Time) -> bool {
        self.unseen.is_some_and(|at| at <= now)
    }

    /// Requests an inspection, because the earliest timer fired.
    pub(crate) fn look_again(&mut self) {
        self.fresh = LOOK_AFTER;
    }

    /// The earliest live timer; drops dead ones before it.
    pub(crate) fn earliest(&mut self, alive: impl Fn(Timer) -> bool) -> Option<Time> {
        (self.unseen, self.fresh) = (None, 0);
        for lane in &mut self.lanes {
            while lane.front().is_some_and(|entry| !alive(entry.timer)) {
                lane.pop_front();
            }
        }
        while self.heap.peek().is_some_and(|Reverse(entry)| !alive(entry.timer)) {
            self.heap.pop();
        }
        if self.len() > self.sweep_at {
            self.lanes.iter_mut().for_each(|lane| lane.retain(|entry| alive(entry.timer)));
            self.heap.retain(|Reverse(entry)| alive(entry.timer));
            self.sweep_at = (2 * self.len()).max(SWEEP_FLOOR);
        }
        self.first().map(|(entry, _)| entry.at)
    }

    /// The next timer whose time has come, dead or alive.
    pub(crate) fn due(&mut self, now: Time) -> Option<Timer> {
        let (entry, lane) = self.first().filter(|(entry, _)| entry.at <= now)?;
        match lane {
            Some(lane) => drop(self.lanes[lane].pop_front()),
            None => drop(self.heap.pop()),
        }
        Some(entry.timer)
    }

    /// The first entry, and its lane unless it is on the heap.
    fn first(&self) -> Option<(Entry, Option<usize>)> {
        let mut first = self.heap.peek().map(|Reverse(entry)| (*entry, None));
        for (index, lane) in self.lanes.iter().enumerate() {
            if let Some(front) = lane.front()
                && first.is_none_or(|(entry, _)| *front < entry)
            {
                first = Some((*front, Some(index)));
            }
        }
        first
    }

    fn len(&self) -> usize {
        self.heap.len() + self.lanes.iter().map(VecDeque::len).sum::<usize>()
    }
}

impl Timer {
    fn lane(self) -> Option<usize> {
        match self {
            Timer::Deadline(_) => Some(0),
            Timer::Late(_) => Some(1),
            Timer::Age(_) => Some(2),
            Timer::Grace(_) => Some(3),
            Timer::Watch(_) => Some(4),
            Timer::Overdue(_) => Some(5),
            Timer::Batch(_) | Timer::Faster(_) | Timer::NoInstance(_) | Timer::Elsewhere(_) => None,
            Timer::Lease(_) => Some(6),
            Timer::StillLate(_) | Timer::Probe(_) | Timer::Warm(_) => None,
            Timer::Widen(_) | Timer::Neighbours(_) | Timer::Silence(_) | Timer::Outage(_) => None,
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::arena::Key;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn deadline(raw: u64) -> Timer {
        Timer::Deadline(Key::from_raw(raw))
    }

    #[test]
    fn timers_fire_in_order_of_time_whatever_lane_they_are_in() {
        let mut timers = Timers::new();
        let late = |raw| Timer::Late(Key::from_raw(raw));
        for (ms, timer) in [(5, deadline(1)), (3, late(2)), (9, deadline(3)), (4, deadline(4)), (5, late(5))]
        {
            timers.set(at(ms), timer);
        }
        let fired: Vec<_> = std::iter::from_fn(|| timers.due(at(5))).collect();
        assert_eq!(
            fired,
            [late(2), deadline(4), deadline(1), late(5)],
            "the moment's in the order of setting"
        );
        assert_eq!(timers.earliest(|_| true), Some(at(9)));
    }

    #[test]
    fn inspection_is_needed_for_an_earlier_timer_or_many_new_ones() {
        let mut timers = Timers::new();
        timers.set(at(5), deadline(1));
        assert!(timers.worth_a_look(None) && !timers.new_is_due(at(4)) && timers.new_is_due(at(5)));
        let earliest = timers.earliest(|_| true);
        timers.set(at(7), deadline(2));
        assert!(!timers.worth_a_look(earliest));
        timers.set(at(4), Timer::Late(Key::from_raw(3)));
        assert!(timers.worth_a_look(earliest));
        let earliest = timers.earliest(|_| true);
        (0..u64::from(LOOK_AFTER)).for_each(|raw| timers.set(at(9), deadline(10 + raw)));
        assert!(timers.worth_a_look(earliest), "some of them may be dead");
    }

    #[test]
    fn nobody_is_woken_for_the_dead_and_they_do_not_pile_up() {
        let mut timers = Timers::new();
        timers.set(at(0), deadline(0));
        // The front lives, so the dead behind it have to be swept.
        let alive = |timer| timer == deadline(0) || timer == deadline(99_999);
        for raw in 1..100_000 {
            timers.set(at(raw), deadline(raw));
            assert_eq!(timers.earliest(alive), Some(at(0)));
        }
        assert!(timers.len() <= SWEEP_FLOOR + 1, "{}", timers.len());
        assert_eq!((timers.due(at(0)), timers.earliest(alive)), (Some(deadline(0)), Some(at(99_999))));
    }
}
