//! Overload: who is given up where more comes than can be done in time.
//!
//! Problem: a queue that is served in order of arrival makes everybody wait equally long, and where more comes than can be
//! done that is until just before the deadline. Every query is started with less time left than a run takes: instances are
//! busy all the time, and nobody is answered in time. A limit on the queue's length prevents that only if it is as short as
//! the deadline and the service times want it, which nobody keeps up to date.
//!
//! Choice: when an instance is free, those at the head of the queue that would hardly be in time are refused at once, so
//! that the instance does what somebody still waits for. Hardly in time is who has less time left than all but the slowest
//! runs take, and a quarter more. Nobody is refused unless somebody must be: the queue must be so long that, in its turn,
//! its last query would be too late as well. And nobody is refused for nothing: the last must have time enough if it were
//! next. So a short burst loses no query, and deadlines that are shorter than a run change nothing.
//!
//! Only queries that are served before the last of the lane count as its turn: those of its own share that are not less
//! urgent. Other shares take their weight's part of the slots. Counting the whole queue would let a backlog of the least
//! urgent queries, or the flood of one tenant, get the urgent queries of another one refused.
//!
//! Rejected: the last first (under a steady overload who came when it began would wait in vain); refusal on arrival by
//! the expected wait (it depends on what others ask for later, on priorities and on other models); whoever has least time
//! left first (everybody fails under overload). Clients that go away without having said when are not known here: where
//! they do, the queue's limit must be short.
//!
//! Cold start: while service times are not known nobody is refused.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::pool::Pool;
use super::query::{Aid, Query};
use super::queue::LaneId;
use super::time::times;
use super::{Reject, Time};

/// Times what nearly all runs take that a query must have left to be run.
const MARGIN: f64 = 1.25;

/// A turn is not counted beyond so many runs.
const MOST_RUNS: f64 = 1e6;

impl Dispatcher {
    /// Refuses those at the head of a lane that can hardly be in time, where somebody must be refused. Somebody is left.
    pub(super) fn give_up_hopeless(&mut self, key: Key<Pool>, lane: LaneId) {
        while self.is_overloaded(key, lane) {
            let Some((first, _)) = self.ends(key, lane) else { return };
            self.pools[key].counters.given_up += 1;
            self.without_prediction(first, Reject::Overload);
        }
    }

    /// Whether the first of a lane has hardly time enough, and the last has, but not in its turn.
    fn is_overloaded(&self, key: Key<Pool>, lane: LaneId) -> bool {
        let pool = &self.pools[key];
        let (Some(recent), Some(taken)) = (pool.service.reading(), pool.taken()) else { return false };
        let Some((first, last)) = self.ends(key, lane) else { return false };
        let (first, last) = (&self.queries[first], &self.queries[last]);
        let ends_at: Time = self.now + recent.high.mul_f64(MARGIN);
        let turn = times(taken, self.runs_before(pool, lane));
        first.deadline < ends_at
            && last.deadline >= ends_at
            && last.deadline < ends_at + turn
            // Its stand-in is on its way.
            && first.aid == Aid::None
    }

    /// How many runs of the pool's slots go before the last query of a lane: those of its share that are not less urgent,
    /// by the part of the slots that the share has while others wait too.
    fn runs_before(&self, pool: &Pool, lane: LaneId) -> f64 {
        let before = f64::from(pool.queue.waiting_until(lane.payer, lane.priority));
        let all: f64 = pool.queue.payers().map(|payer| self.book.weight(&payer)).sum();
        let part = if all > 0.0 { self.book.weight(&lane.payer) / all } else { 1.0 };
        (before / (f64::from(pool.slots.max(1)) * part)).min(MOST_RUNS)
    }

    /// The first and the last query of a lane.
    fn ends(&self, key: Key<Pool>, lane: LaneId) -> Option<(Key<Query>, Key<Query>)> {
        self.pools[key].queue.ends(lane, |query| self.queries.get(query).is_some_and(|query| query.queued))
    }
}
