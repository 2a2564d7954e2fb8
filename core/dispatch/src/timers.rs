//! Everything that waits for a time.
//!
//! Most timers never fire: the query is answered long before its deadline, the job ends before it is late. So deletion
//! is lazy: a timer names what it is for by a key that finds nothing once that is gone.
//!
//! Timers of one kind are nearly always set in the order in which they are due, as deadlines are a fixed time away. So
//! each kind has a lane, first in first out, and only what comes out of order goes to a heap. What a lane's front is for
//! is usually gone before it is due, so dropping dead fronts keeps lanes as short as what is alive, costs a step per
//! timer, and spares the driver nearly every wake for nothing. One heap for all, swept now and then, held thousands of
//! dead deadlines at any time.
//!
//! Few events set a timer that is due before all others, and only such a one changes when the dispatcher is to be woken.
//! So the lanes are looked at for those events and for wakes, and else once in a while to drop what is dead: looking at
//! the lanes and a heap after every event was a tenth of all the work.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::Time;
use super::arena::Key;
use super::group::Group;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::query::Query;

/// What a time is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The answer is no longer wanted.
    Deadline(Key<Query>),
    /// The job counts as late.
    Late(Key<Job>),
    /// A late job that got no copy is to be looked at again.
    StillLate(Key<Job>),
    /// A batch has waited long enough for company.
    Batch(Key<Pool>),
    /// Queries have waited long enough for an instance.
    NoInstance(Key<Pool>),
    /// A group is old.
    Age(Key<Group>),
    /// A group has been kept long enough to compare its outputs.
    Watch(Key<Group>),
    /// A query has waited long enough to be given something else than its prediction.
    Grace(Key<Query>),
    /// A query is late, and wants a stand-in.
    Overdue(Key<Query>),
    /// A token's lease may be over.
    Lease(Key<Instance>),
    /// A pool that asks for instances is to ask for more.
    Widen(Key<Pool>),
    /// A pool's work has waited for neighbours long enough.
    Neighbours(Key<Pool>),
    /// An ejected instance is to be probed, or its probe is overdue.
    Probe(Key<Instance>),
    /// An instance has had its time to warm up.
    Warm(Key<Instance>),
    /// A retry has waited long enough for another instance than the one that failed it.
    Elsewhere(Key<Pool>),
    /// An instance that was given work ahead of time may be silent.
    Silence(Key<Instance>),
}

/// The lanes and the heap.
pub(super) struct Timers {
    lanes: [VecDeque<Entry>; LANES],
    /// Out of order, or rare.
    heap: BinaryHeap<Reverse<Entry>>,
    next: u64,
    sweep_at: usize,
    /// The earliest timer that was set since the last look; none if there is nothing new.
    unseen: Option<Time>,
    /// Timers that were set since then.
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
/// A lane or heap that grows beyond this is swept: its front may live on while what is behind dies.
const SWEEP_FLOOR: usize = 1024;
/// Timers after which the dead at the fronts are dropped at the latest.
const LOOK_AFTER: u32 = 64;

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            lanes: Default::default(),
            heap: BinaryHeap::new(),
            next: 0,
            sweep_at: SWEEP_FLOOR,
            unseen: None,
            fresh: 0,
        }
    }

    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        self.next += 1;
        self.fresh += 1;
        self.unseen = Some(self.unseen.map_or(at, |earliest| earliest.min(at)));
        let entry = Entry { at, order: self.next, timer };
        match timer.lane().map(|lane| &mut self.lanes[lane]) {
            Some(lane) if lane.back().is_none_or(|last| last.at <= at) => lane.push_back(entry),
            _ => self.heap.push(Reverse(entry)),
        }
    }

    /// Whether `earliest` may be before a time that was the earliest at the last look, or has dead to drop.
    pub(super) fn worth_a_look(&self, earliest: Option<Time>) -> bool {
        let sooner = |new: Time| earliest.is_none_or(|known| new < known);
        self.unseen.is_some_and(sooner) || self.fresh >= LOOK_AFTER
    }

    /// Whether a timer was set since the last look whose time has come.
    pub(super) fn new_is_due(&self, now: Time) -> bool {
        self.unseen.is_some_and(|at| at <= now)
    }

    /// What the last look found has fired: another one is due.
    pub(super) fn look_again(&mut self) {
        self.fresh = LOOK_AFTER;
    }

    /// The earliest time that something alive waits for; drops the dead before it.
    pub(super) fn earliest(&mut self, alive: impl Fn(Timer) -> bool) -> Option<Time> {
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
    pub(super) fn due(&mut self, now: Time) -> Option<Timer> {
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
            Timer::Batch(_) | Timer::NoInstance(_) | Timer::Elsewhere(_) => None,
            Timer::Lease(_) => Some(6),
            Timer::StillLate(_) | Timer::Probe(_) | Timer::Warm(_) => None,
            Timer::Widen(_) | Timer::Neighbours(_) | Timer::Silence(_) => None,
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
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
    fn only_a_timer_before_the_others_is_worth_a_look_until_many_were_set() {
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
