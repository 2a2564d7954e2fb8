//! `stand-in`: a cheaper model answers late queries.
//!
//! It runs early on idle instances, and first in line for late queries.
//!
//! Problem: a straggler takes up to ten times a query's time. A hedge takes one more service time and starts late.
//! A parity costs a part of the work, but waits for its group. A cheaper model of the same signature needs no
//! group and ends soon, but its answer is approximate, and queries may have to wait for the instance that runs it.
//!
//! Choice: two modes. *Spare*: a started query gets a stand-in as soon as an instance is idle that will not be
//! needed meanwhile. While a stand-in takes a share `c` of a query's time and queries keep `b` slots busy, about
//! `b c` queries end and as many arrive. The difference has a standard deviation of `sqrt(2 b c)`, so that many
//! instances stay idle. If load or cost are low, nearly every query has a stand-in; as they rise, fewer have one.
//! *Late*: a query older than 1.15 usual times goes before the whole queue, because it has waited longest and
//! needs least, within a budget of work. Age counts from arrival. The usual time excludes the wait for an
//! instance; otherwise all queries would count as punctual in a queue.
//!
//! A late query that still waits leaves the queue for its stand-in, which replaces the work of the query by a part
//! of it. That ends queues. It leaves early if it cannot be in time: after 8 ms of waiting, a query of 20 ms is
//! answered after 28 ms by the deployed model and after 23 ms, the earliest allowed, by its stand-in. The more of
//! the bound on approximate answers is used, the longer such a query waits for an instance of its own. So in small
//! pools, where queues are common, approximate answers are left to stragglers.
//!
//! Scarce room goes to the neediest query: first one that was started where the last answer was slow (it gets the
//! last idle instance), then one that waited too long to be in time, then the oldest. A job takes several rows
//! only as far as that is cheaper than separate jobs.
//!
//! A hedge within a budget covers the rest: exact clients, late stand-ins, answers beyond the bound. No hedge is
//! sent if the stand-in's answer is expected before the hedge's, or if queries wait: with half of the instances
//! slow, exact duplicates doubled the tail. A slow instance that stays does little harm here, because its late
//! queries have stand-ins, and an ejected one is missed; so ejection takes the number of slow instances into
//! account.
//!
//! Instances with the stand-in and without the deployed model (in the frontend, or on other machines) come first: their
//! work delays no query and needs no budget. They run stand-ins of late queries only, and bridge outages
//! (`rules::outage`).
//!
//! Rejected: a second stand-in for a slow one, and queries for slow instances last (no effect, since slow
//! instances are soon ejected); a fixed number of idle instances (right at one load and cost only); a limit on
//! utilisation alone (measurements vary, and a small pool is full by chance at any load); stand-ins for all
//! queries, queued (a stand-in after the prediction is wasted); lateness by the median of all latencies (it rises
//! with the queue, so the queue never ends).
//!
//! Cold start: until times are known no query is late. The cost of a stand-in is a setting until a worker has
//! measured it.

use std::time::Duration;

use super::hedge::Hedge;
use super::hooks::{Policy, grace};
use crate::api::{Cost, HedgeSettings, StandInSettings};
use crate::measure::quantile::Reading;

pub(crate) struct StandIn {
    settings: StandInSettings,
    hedge: Hedge,
}

/// Standard deviations of the demand that stay idle.
const SAFE: f64 = 1.0;

/// Share of the capacity of slow instances that counts as lost.
const LOST: f64 = 0.8;

/// Waiting queries per slot above which no job is duplicated.
const CROWDED: f64 = 0.2;

/// A job of several rows must be this much cheaper than separate jobs.
const CHEAPER: f64 = 0.75;

impl StandIn {
    pub(crate) fn new(settings: &StandInSettings, hedge: &HedgeSettings) -> Self {
        Self { settings: settings.clone(), hedge: Hedge::new(hedge) }
    }
}

impl Policy for StandIn {
    fn hedges(&self) -> bool {
        self.settings.hedge
    }

    fn gives_ahead(&self) -> bool {
        // Without hedging no timer finds a silent instance.
        self.settings.hedge
    }

    fn late_after(&self, recent: Option<Reading>) -> Option<Duration> {
        self.settings.hedge.then(|| self.hedge.late_after(recent)).flatten()
    }

    fn kept_idle(&self, busy: f64, slots: u32, cost: f64) -> Option<u32> {
        let room = busy <= f64::from(slots) * self.settings.spare_up_to.get();
        let pays = self.settings.spare && cost < 1.0;
        (room && pays).then(|| (SAFE * (2.0 * busy * cost).sqrt()).round() as u32)
    }

    fn hedges_beside(&self) -> f64 {
        CROWDED
    }

    fn lost_to_slowness(&self) -> f64 {
        LOST
    }

    fn rows_at_once(&self, cost: &Cost, waiting: usize) -> usize {
        let most = waiting.min(usize::from(self.settings.max_rows.get()));
        let pays = |rows: &usize| cost.of(*rows) <= *rows as f64 * cost.of(1) * CHEAPER;
        (2..=most).rev().find(pays).unwrap_or(1)
    }

    fn grace(&self, recent: Option<Reading>) -> Duration {
        grace(&self.settings.grace, recent)
    }
}
