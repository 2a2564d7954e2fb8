//! A cheaper model answers late queries: at once where an instance is idle, before everything else once they are late.
//!
//! Problem: a straggler costs up to ten times a query's time. A duplicate hides it for one more time of a query, begun late;
//! a parity for a share of the work, but it waits for its group. A cheaper model of the same signature needs no group and
//! ends soon; but what it says is approximate, and where it runs a query may have to wait.
//!
//! Choice: two modes. *Spare*: a query that was started gets a stand-in as soon as an instance is idle that will not be
//! wanted meanwhile. While a stand-in takes a share `c` of a query's time and queries keep `b` slots busy, about `b c` of
//! them end and as many come; how many more come than end is a matter of chance, with a standard deviation of
//! `sqrt(2 b c)`. So many instances stay idle beside it. That is one rule for everything: where little runs, or the
//! stand-in is cheap, nearly every query has one; as load or cost rise there is room more and more seldom, and what is
//! left is *late*: a query that is 1.15 usual times old goes before everything in the queue, for it has waited longest
//! and needs the least; within a budget that counts work. Age counts from arrival, as clients count, and "usual" without
//! the wait for an instance: where all wait, all are late. One that still waits is taken out of the queue for its
//! stand-in, which so replaces a query's work by a part of it: that is what ends a queue. It need not be late for that
//! if it cannot be in time any more: with 8 ms of waiting behind it, a query of 20 ms is answered after 28 by the deployed
//! model, and after 23, the earliest that is allowed, by its stand-in. The more approximate answers were given of those
//! that may be, the longer such a query waits for an instance of its own after all: so they are left to stragglers where
//! queues are the rule, as in small pools.
//!
//! Where room is scarce it goes to who needs it most. A query that was started where the last answer was slow is likely
//! late: it gets the last idle instance. One that waited so long that it will be late in any case comes before the others,
//! and these by age.
//!
//! A job takes more than one row only as far as that is cheaper: where a row costs the same alone, waiting for others to be
//! done only delays the first.
//!
//! What stand-ins cannot help (clients who want exact answers, stand-ins that are late themselves, answers beyond the bound)
//! a hedge within a budget does. Where a stand-in's answer is expected before a hedge would be done, there is no hedge, nor
//! where queries wait: where half of the instances are slow, exact duplicates doubled the tail that they were to shorten.
//!
//! A slow instance that is kept does little harm here, as its late queries have stand-ins, and one that is put out is
//! missed. So whether the others could do without it takes into account how many of them are slow too.
//!
//! Rejected: another stand-in for one that takes long, and queries for slow instances last (both changed nothing: who is
//! slow is out of service soon); a fixed number of idle instances (right at one load and cost only); a limit on utilisation alone (what is
//! measured varies, and a small pool is full by chance at any); stand-ins for all, queued (a stand-in that comes after the
//! prediction is work for nothing); lateness by the median of all latencies (it rises with the queue, and with it what
//! counts as late: then nothing ends the queue).
//!
//! Cold start: until times are known nothing is late; what a stand-in costs is a setting until a worker has measured it.

use std::time::Duration;

use super::hedge::Hedge;
use super::{Policy, grace};
use crate::quantile::Reading;
use crate::{Cost, HedgeSettings, StandInSettings};

pub(super) struct StandIn {
    settings: StandInSettings,
    hedge: Hedge,
}

/// Standard deviations of what may be wanted meanwhile that stay idle.
const SAFE: f64 = 1.0;

/// Share of the capacity that slow instances hold which counts as busy.
const LOST: f64 = 0.8;

/// Queries that wait, per slot, beside which nothing is duplicated.
const CROWDED: f64 = 0.2;

/// A row more must make the job this much cheaper than a job of its own.
const CHEAPER: f64 = 0.75;

impl StandIn {
    pub(super) fn new(settings: &StandInSettings, hedge: &HedgeSettings) -> Self {
        Self { settings: settings.clone(), hedge: Hedge::new(hedge) }
    }
}

impl Policy for StandIn {
    fn hedges(&self) -> bool {
        self.settings.hedge
    }

    fn gives_ahead(&self) -> bool {
        // Else nobody looks whether jobs are late.
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
