//! Sizes of batches: how many rows an instance takes, and whether it waits for more.
//!
//! Problem: large batches save work, and make each of their queries wait for the others. The best size depends on the
//! load, on the queue and on how the time of a batch grows with its rows. A fixed size fits one load.
//!
//! Choice: with an idle instance for each waiting query nothing is batched. Otherwise a free instance takes the number
//! of rows for which the mean finish of the waiting queries, at one batch of this size after the other on all
//! instances, plus a price for the work is least. The price of the work of a row is the wait that it causes for later
//! queries: by queueing theory utilisation over idleness, where utilisation is what the present arrivals need at this
//! size. So sizes that cannot carry the load are out, and beyond capacity the size with the least work for
//! a row remains. A batch that would miss the deadline of its oldest query is not made if a smaller one meets it.
//!
//! If single rows cannot carry the load, a free instance waits until it has the rows that the load needs, at most for
//! the time in which another instance becomes free. Otherwise all instances would start with one or two rows at the same
//! time, and the next queries would wait for a whole run. A single instance, or one of an idle pool, never waits.
//!
//! Rejected: all waiting rows (a burst that a dozen instances would share makes one long batch: p99 2 to 4 times as long
//! at half load); the least finish of the waiting queries alone (it batches too late, and p99 doubles near capacity); a
//! largest size found from the load (it is too large for short queues); a latency objective as a setting (clients give
//! deadlines, and the least finish needs no limit).
//!
//! Cold start: one row, until its time is known; larger sizes are tried when a queue has built up.

use std::time::Duration;

use crate::api::{BatchSize, times};
use crate::state::State;
use crate::state::keys::{PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::state::query::Query;
use crate::state::queue::{LaneId, Readiness};
use crate::turn::Turn;

/// The largest batch that is made without a setting.
const LARGEST: u16 = 64;

/// Sizes at which the load needs more than this part of the instances are too small.
const FULL: f64 = 0.99;

/// The price of a size that does not carry the load, in its utilisation.
const TOO_SMALL: f64 = 1000.0;

/// A larger batch must lower the cost to less than this part.
const BETTER: f64 = 0.99;

/// The part of the time until a deadline that is left for a run of unknown time.
const SPARE: f64 = 0.25;

/// The time that a query must have left for a batch, in expected times of it.
const MARGIN: f64 = 1.25;

/// The largest batch of a pool.
pub(crate) fn most_rows(pool: &Pool) -> u16 {
    let size = pool.in_force.batch.max_size.fixed().map_or(LARGEST, |size| size.get());
    size.min(pool.in_force.max_rows.get())
}

/// The latency objective that limits batches: the time that queries usually have until their deadlines. `None` before
/// the first query.
pub(crate) fn objective(pool: &Pool) -> Option<Duration> {
    Some(pool.deadlines.typical()).filter(|typical| typical.is_finite()).map(nanos)
}

/// Whether a query with so much time until its deadline could be in time, as far as known.
pub(crate) fn may_be_served(pool: &Pool, within: Duration) -> bool {
    pool.curve.sizes(1).next().is_none_or(|(_, time)| within.as_nanos() as f64 >= time)
}

/// The time at which a batch of a pool may start at this load, if its size is not fixed.
pub(crate) fn readiness(pool: &Pool, turn: &Turn) -> Readiness {
    let rate = pool.arrivals.rate(turn.now);
    let Some(Needed { rows, time, saves }) = needed(pool, rate).filter(|needed| needed.rows > 1) else {
        return Readiness::AT_ONCE;
    };
    // One more row must save more work than the instance would do until it arrives.
    if pool.running == 0 || saves * rate < 1.0 {
        return Readiness { rows, wait: Duration::ZERO };
    }
    let others = 1.0 - f64::from(pool.slots.max(1)).recip();
    // After the wait each query must have the time for the batch.
    let longest = (pool.deadlines.shortest() - MARGIN * time).max(0.0);
    Readiness { rows, wait: nanos((time / slots(pool).max(1.0) * others).min(longest)) }
}

/// The longest wait for company after which the queries with the shortest deadlines still have the time for a batch.
pub(crate) fn longest_wait(pool: &Pool) -> Duration {
    let time = pool.curve.time(pool.readiness.rows).unwrap_or_default();
    let longest = pool.deadlines.shortest() * (1.0 - SPARE) - MARGIN * time;
    if longest.is_finite() { nanos(longest.max(0.0)) } else { Duration::MAX }
}

/// The smallest size that carries the load, or the one with the least work for a row.
struct Needed {
    rows: u16,
    time: f64,
    /// The work that its last row saves if it does not run in another batch.
    saves: f64,
}

fn needed(pool: &Pool, rate: f64) -> Option<Needed> {
    let mut least: Option<Needed> = None;
    let mut below = (0, 0.0);
    for (rows, time) in sizes(pool, most_rows(pool)) {
        let each = time / f64::from(rows);
        if least.as_ref().is_none_or(|least| each < BETTER * least.time / f64::from(least.rows)) {
            let saves = each - (time - below.1) / f64::from(rows - below.0);
            least = Some(Needed { rows, time, saves });
            if utilisation(pool, rate, each) <= FULL {
                break;
            }
        }
        below = (rows, time);
    }
    least
}

/// The rows that a free instance takes from a lane.
pub(crate) fn rows_of_batch(state: &State, turn: &Turn, key: PoolKey, lane: LaneId) -> u16 {
    let pool = state.pools.at(key);
    let most = most_rows(pool);
    if pool.in_force.batch.max_size.fixed().is_some() || lane.alone || most == 1 {
        return most;
    }
    let waiting = pool.queue.waiting();
    if waiting == 1 || pool.idle.more_than(waiting - 1) {
        return pool.readiness.rows.min(most);
    }
    let first = pool.queue.first(lane).and_then(|first| state.queries.get(first));
    let left = first.map_or(f64::INFINITY, |first| first.deadline.since(turn.now).as_nanos() as f64);
    let padding = pool.padding.as_deref().zip(first.filter(|first| first.padded));
    let stretch = |rows| padding.map_or(1.0, |(padding, first)| padding.stretch(rows, first.size));
    let all = pool.queue.waiting_in(lane).min(most.into()) as u16;
    let rate = pool.arrivals.rate(turn.now);
    let (mut best, mut least) = (1, f64::INFINITY);
    for (rows, time) in sizes(pool, all) {
        let time = time * stretch(rows);
        // Beyond capacity smaller batches would serve fewer queries.
        if rows > pool.readiness.rows && MARGIN * time > left {
            break;
        }
        let cost = cost(pool, rate, waiting, rows, time);
        // Measured times are not exact, and a longer batch must be worth it.
        if cost < least * BETTER {
            (best, least) = (rows, cost);
        }
    }
    best
}

/// Whether a query has the time for a batch of so many nanoseconds.
pub(crate) fn has_time(state: &State, turn: &Turn, query: QueryKey, nanos: f64) -> bool {
    let left = |query: &Query| query.deadline.since(turn.now).as_nanos() as f64;
    state.queries.get(query).is_none_or(|query| MARGIN * nanos <= left(query))
}

/// The time that a query must have left for the batch that the load needs, if its size is not fixed.
pub(crate) fn needs_left(pool: &Pool) -> Option<Duration> {
    let auto = pool.in_force.batch.max_size.fixed().is_none();
    pool.curve.time(pool.readiness.rows).filter(|_| auto).map(|time| nanos(MARGIN * time))
}

/// The time that a waiting query takes in its turn, as a part of a batch of usual size.
pub(crate) fn time_of_row(pool: &Pool) -> Option<Duration> {
    let rows = f64::from(pool.usual_rows);
    match pool.in_force.batch.max_size {
        BatchSize::Fixed(_) | BatchSize::Server => pool.taken().map(|taken| times(taken, rows.recip())),
        BatchSize::Auto => {
            let rows = rows.round().max(1.0) as u16;
            let time = pool.curve.time(rows)?;
            Some(nanos(time / f64::from(rows)))
        }
    }
}

/// The sizes of a pool's batches, with their expected nanoseconds. A query must have the time to wait for a free
/// instance and for the run.
fn sizes(pool: &Pool, most: u16) -> impl Iterator<Item = (u16, f64)> {
    let turns = 1.0 + slots(pool).max(1.0).recip();
    let limit = objective(pool).map_or(f64::INFINITY, |objective| objective.as_nanos() as f64);
    let longest = limit / (MARGIN * turns);
    pool.curve.sizes(most).take_while(move |(rows, time)| *rows == 1 || *time <= longest)
}

/// The mean finish of waiting queries in batches of one size, with the price of the work, in nanoseconds.
fn cost(pool: &Pool, rate: f64, waiting: u32, rows: u16, time: f64) -> f64 {
    let each = time / f64::from(rows);
    let used = utilisation(pool, rate, each);
    let price = if used < FULL { used / (1.0 - used) } else { TOO_SMALL * used };
    let batches = waiting.div_ceil(rows.into());
    let slots = slots(pool);
    time * (1.0 + f64::from(batches - 1) / (2.0 * slots)) + price * each / slots
}

/// The part of the slots that arrivals keep busy if each takes so many nanoseconds.
fn utilisation(pool: &Pool, rate: f64, each: f64) -> f64 {
    rate * each / slots(pool)
}

/// The slots of a pool, without the part of other frontends.
fn slots(pool: &Pool) -> f64 {
    f64::from(pool.slots.max(1)) / f64::from(pool.sharers.max(1))
}

fn nanos(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}
