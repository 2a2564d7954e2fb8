//! Readings of the dispatcher's state for metrics, the console and neighbours.

use std::time::Duration;

use parm_shares::Account;

use crate::api::{
    GroupsReading, Held, InstanceId, InstanceReading, LatencyReading, OpenGroup, Payer, PolicyKind, PoolId,
    PoolReading, PoolStatus, Time,
};
use crate::dispatcher::Dispatcher;
use crate::policy::late_to_hedges;
use crate::rules::batching::objective;
use crate::state::group::Stage;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::GroupKey;
use crate::state::pool::Pool;

/// The quantile of latencies that is compared with the objective.
const TAIL: f64 = 0.99;

impl Dispatcher {
    /// The state of a pool; `None` if it is unknown.
    pub fn reading(&mut self, now: Time, id: PoolId) -> Option<PoolReading> {
        let status = self.status(id)?;
        let key = self.state.pool_names.get(id)?;
        let now = self.now.max(now);
        let pool = self.state.pools.get_mut(key)?;
        let recent = pool.service.reading();
        let stand_ins = pool.stand_ins.as_deref().filter(|_| status.stand_in_cost.is_some());
        let tokens = stand_ins.map(|own| own.work.tokens());
        let given = stand_ins.map(|own| own.bound.given());
        let stands_in = pool.in_force.policy == PolicyKind::StandIn;
        Some(PoolReading {
            status,
            members: pool.members,
            slots: pool.slots,
            busy: pool.busy(now),
            service: recent.map(|recent| [recent.median, recent.high]),
            late_after: late_to_hedges(&pool.settings, recent),
            retries: pool.retries.tokens(),
            hedges: pool.hedges.tokens(),
            stand_ins: tokens.filter(|_| stands_in),
            approximate: given.filter(|_| stands_in),
        })
    }

    /// The median and a high quantile of the times of a pool's deployed model, once enough are known.
    pub fn service(&self, id: PoolId) -> Option<[Duration; 2]> {
        let recent = self.state.pools.get(self.state.pool_names.get(id)?)?.service.reading()?;
        Some([recent.median, recent.high])
    }

    /// The utilisation of a pool's usable slots by queries; `None` if the pool is unknown.
    pub fn utilisation(&mut self, now: Time, id: PoolId) -> Option<f64> {
        let now = self.now.max(now);
        let pool = self.state.pools.get_mut(self.state.pool_names.get(id)?)?;
        Some(pool.utilisation(now))
    }

    /// The state of an instance; `None` if it is unknown.
    pub fn instance_reading(&self, now: Time, id: InstanceId) -> Option<InstanceReading> {
        let instance = self.state.instance(id)?;
        let own = &instance.health;
        let of_models = || instance.serves.iter().map(|serves| &serves.health);
        let first = [own].into_iter().chain(of_models()).find(|health| !health.in_service());
        let (compared, agreed) = instance
            .serves
            .iter()
            .map(|serves| serves.doubt.compared())
            .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let factors = instance.serves.iter().map(|serves| f64::from(serves.speed.factor()));
        let slower = factors.max_by(f64::total_cmp).filter(|factor| *factor != 1.0);
        Some(InstanceReading {
            slower,
            in_service: self.in_service(id),
            out_for: first.and_then(|health| health.out_for()),
            probe_in: first.and_then(|health| health.probe_at()).map(|at| at.since(now)),
            compared: (compared > 0.0).then_some((compared, agreed)),
        })
    }

    /// The coding groups of a pool; `None` if its policy codes nothing.
    pub fn groups(&mut self, now: Time, id: PoolId) -> Option<GroupsReading> {
        let pool = self.state.pools.get_mut(self.state.pool_names.get(id)?)?;
        let mut made = std::mem::take(&mut pool.made).into_vec();
        made.sort_unstable();
        let group = |key: &GroupKey| {
            let group = self.state.groups.get(*key).filter(|group| group.stage == Stage::Open)?;
            let (k, members) = (group.code.recovery.k as u8, group.slots.len() as u8);
            Some(OpenGroup { k, members, age: now.since(group.opened) })
        };
        let coded = !pool.in_force.coding.codes.is_empty();
        coded.then(|| GroupsReading {
            open: pool.open.iter().filter_map(|(_, key)| group(key)).collect(),
            made,
        })
    }

    /// Starts or stops tracing the steps of queries.
    pub fn follow_queries(&mut self, traced: bool) {
        self.state.traced = traced;
    }
    /// The state of a pool; `None` if it is unknown.
    pub fn status(&self, pool: PoolId) -> Option<PoolStatus> {
        let pool = self.state.pools.get(self.state.pool_names.get(pool)?)?;
        Some(PoolStatus {
            queued: pool.queue.waiting(),
            unanswered: pool.unanswered,
            running: pool.running,
            usable_instances: pool.usable,
            stand_in_cost: pool.stand_ins.is_some().then(|| pool.stand_in_cost_at(false)),
            stand_in_cost_apart: pool
                .stand_ins
                .as_ref()
                .filter(|_| pool.apart > 0)
                .map(|_| pool.stand_in_cost_at(true)),
            agreement: pool.stand_ins.as_ref().and_then(|stand_ins| stand_ins.agreement()),
            in_outage: pool.outage_since.is_some(),
            withheld: pool.stand_ins.as_ref().is_some_and(|stand_ins| stand_ins.withheld),
            latency: latency(pool),
            counters: pool.counters,
        })
    }
    /// The sizes of the state.
    pub fn held(&self) -> Held {
        Held {
            queries: self.state.queries.len(),
            jobs: self.state.jobs.len(),
            groups: self.state.groups.len(),
            instances: self.state.instances.len(),
            pools: self.state.pools.len(),
        }
    }
    /// Whether an instance takes work. False if it drains, is ejected (as a whole or with every model), or is
    /// unknown.
    pub fn in_service(&self, instance: InstanceId) -> bool {
        let works = |serves: &Serves| serves.health.in_service();
        let any = |instance: &&Instance| instance.serves.is_empty() || instance.serves.iter().any(works);
        self.state.instance(instance).filter(|instance| instance.usable()).filter(any).is_some()
    }
    /// Whether an instance takes work of a pool.
    pub fn takes(&self, instance: InstanceId, pool: PoolId) -> bool {
        let Some(pool) = self.state.pool_names.get(pool) else { return false };
        let usable = self.state.instance(instance).filter(|instance| instance.usable());
        usable.and_then(|instance| instance.serves(pool)).is_some_and(|serves| serves.health.in_service())
    }
    /// The accounts of configured shares and of pools.
    pub fn shares(&self) -> impl Iterator<Item = (Payer, &Account)> {
        self.state.book.accounts().map(|(payer, account)| (*payer, account))
    }
    /// The number of jobs at each instance without tokens that has some. Neighbours receive it.
    pub fn held_without_tokens(&self) -> impl Iterator<Item = (InstanceId, u16)> {
        let open = |instance: &&Instance| instance.tokens.is_none() && !instance.jobs.is_empty();
        let held = |instance: &Instance| u16::try_from(instance.jobs.len()).unwrap_or(u16::MAX);
        let instances = self.state.instances.iter().map(|(_, instance)| instance);
        instances.filter(open).map(move |instance| (instance.id, held(instance)))
    }
}

/// The tail of a pool's predictions next to its objective, once both are known.
fn latency(pool: &Pool) -> Option<LatencyReading> {
    pool.response.reading()?;
    Some(LatencyReading { p99: pool.response.quantile(TAIL), objective: objective(pool)? })
}
