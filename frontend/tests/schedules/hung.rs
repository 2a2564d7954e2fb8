//! Promise about queries at hung instances.
//!
//! If late jobs are hedged without a budget limit, a query does not wait for its deadline at hung instances while a
//! healthy, suitable instance is idle.

use std::time::Duration;

use parm_settings::{PolicyKind, PoolSettings};
use tokio::time::Instant;

use crate::schedule::{Guilt, Model, Temper};
use crate::world::{Row, Truth};

/// Time that a query may be at hung instances. The slowest job of a slowed instance takes less.
const LEFT: Duration = Duration::from_millis(1200);
/// Time that another instance has been idle by then: an alarm and a job take less.
const IDLE: Duration = Duration::from_millis(150);
/// The largest budget that other schedules draw.
const AMPLE: u32 = 1000;

/// Jobs that a query may have at a time if settings allow a hedge of every late job; otherwise 0. A job is late only
/// after `min_delay` and a multiple of the median.
pub(crate) fn hedged(own: &PoolSettings) -> usize {
    let hedges = match own.policy {
        PolicyKind::Hedge => true,
        PolicyKind::StandIn => own.stand_in.hedge,
        PolicyKind::ParmPlus => own.coding.parm_plus.hedge,
        _ => false,
    };
    let budget = &own.hedge.budget;
    let at_will = hedges
        && (budget.burst > AMPLE && budget.ratio.get() > 0.05 && budget.ratio.get() < 0.95)
        && own.hedge.min_delay < Duration::from_millis(100);
    if at_will { usize::from(own.max_attempts.get()).max(2) } else { 0 }
}

/// Finds a query that is left to hung instances.
pub(crate) fn nothing_is_left_to_the_hung(truth: &mut Truth) {
    let now = Instant::now();
    // An idle instance that settings have taken out of service helps no query.
    if truth.lied || truth.excuses.health || now < truth.rules_since + LEFT || truth.start.elapsed() < LEFT {
        return;
    }
    let open = truth.open.iter().map(|number| &truth.requests[*number]);
    let rows = open.flat_map(|request| request.first..request.first + request.ask.rows.len());
    let Some((row, idle)) =
        rows.into_iter().find_map(|row| Some((row, is_left(truth, &truth.rows[row], now)?)))
    else {
        return;
    };
    let Row { request, holders, .. } = truth.rows[row].clone();
    let ask = truth.requests[request].ask.clone();
    truth.breach("no query is left to the hung next to an idle instance", || {
        format!("row {row} of request {request} ({ask}) is at workers {holders:?}, worker {idle} is idle")
    });
}

/// The idle instance that could answer a row that only hung instances have.
fn is_left(truth: &Truth, row: &Row, now: Instant) -> Option<usize> {
    let request = &truth.requests[row.request];
    let ask = &request.ask;
    let since = now - LEFT;
    let hung = |server: &usize| matches!(truth.servers[*server].temper, Temper::Hung | Temper::Deaf);
    let of_it = |own: &crate::schedule::Serving| own.model == Model::Asked(ask.model);
    let versions = |version: u8| {
        truth.servers.iter().any(|own| own.models.keys().any(|own| of_it(own) && own.version == version))
    };
    let most = truth.rules.get(&ask.model).map_or(0, |rules| rules.hedged);
    let excused = row.holders.len() >= most
        || row.guilt != Guilt::Good
        || row.answered
        || row.faults + row.neighbours > 0
        || row.holders.is_empty()
        || row.taken > since
        || !row.holders.iter().all(hung)
        || ask.asleep.is_some()
        || request.deadline < now
        // The service times of a new version are unknown.
        || (versions(1) && versions(2))
        || truth.is_in_flux(ask.model, request.sent)
        || !row.warm;
    if excused {
        return None;
    }
    let idle_since = now - IDLE;
    (0..truth.servers.len()).find(|server| {
        let own = &truth.servers[*server];
        let is_idle = own.holds == 0 && own.idle_since <= idle_since;
        is_idle && truth.is_steady(*server, since) && truth.has(*server, ask, since)
    })
}
