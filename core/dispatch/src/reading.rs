//! How pools and instances are doing, for people who watch them: more than metrics need, and read once a second at most.

use std::time::Duration;

use super::chronicle::EndedGroup;
use super::dispatcher::{Dispatcher, PoolStatus};
use super::group::Stage;
use super::health::Reason;
use super::{InstanceId, PoolId, Time, policy};

/// How a pool is doing. Reading it begins its counts of groups anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolReading {
    /// What metrics have too.
    pub status: PoolStatus,
    /// Instances that would be usable if none were ejected.
    pub members: u32,
    /// Slots of the usable ones.
    pub slots: u32,
    /// Slots that queries keep busy.
    pub busy: f64,
    /// Median and high quantile of the deployed model's jobs; none while too few are known.
    pub service: Option<[Duration; 2]>,
    /// After how long a job is late to those who hedge.
    pub late_after: Option<Duration>,
    /// Retries that the budget pays for now, and at most.
    pub retries: (f64, f64),
    /// Likewise hedges.
    pub hedges: (f64, f64),
    /// Likewise stand-ins of late queries, where there are any.
    pub stand_ins: Option<(f64, f64)>,
    /// Of the latest answers: approximate ones, how many may be, and answers that count; where stand-ins answer.
    pub approximate: Option<[u32; 3]>,
    /// Groups that take members; none where nothing is coded.
    pub open: Option<Vec<OpenGroup>>,
    /// Groups that ended since the last reading.
    pub ended: Vec<EndedGroup>,
    /// Groups encoded since then, by size.
    pub made: Vec<(u8, u32)>,
}

/// A group that takes members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenGroup {
    /// Members that it has room for.
    pub k: u8,
    /// Members so far.
    pub members: u8,
    /// How long ago the first came.
    pub age: Duration,
}

/// How an instance is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstanceReading {
    /// Whether it takes work at all.
    pub in_service: bool,
    /// Why it does not, or not of every model.
    pub out_for: Option<Reason>,
    /// How long until it is probed.
    pub probe_in: Option<Duration>,
    /// Its answers that were compared, and those that others agreed with; old ones fade.
    pub compared: Option<(f64, f64)>,
}

impl Dispatcher {
    /// How a pool is doing; `None` if there is no such pool.
    pub fn reading(&mut self, now: Time, id: PoolId) -> Option<PoolReading> {
        let status = self.status(id)?;
        let key = self.pool_names.get(id)?;
        let now = self.now.max(now);
        let open = self.open_groups(id, now);
        let pool = self.pools.get_mut(key)?;
        let recent = pool.service.reading();
        let (ended, made) = pool.chronicle.take();
        let stand_ins = pool.stand_ins.as_deref().filter(|_| status.stand_in_cost.is_some());
        let tokens = stand_ins.map(|own| own.work.tokens());
        let given = stand_ins.map(|own| own.bound.given());
        let stands_in = pool.in_force.policy == super::PolicyKind::StandIn;
        Some(PoolReading {
            status,
            members: pool.members,
            slots: pool.slots,
            busy: pool.busy(now),
            service: recent.map(|recent| [recent.median, recent.high]),
            late_after: policy::late_to_hedges(&pool.settings, recent),
            retries: pool.retries.tokens(),
            hedges: pool.hedges.tokens(),
            stand_ins: tokens.filter(|_| stands_in),
            approximate: given.filter(|_| stands_in),
            open,
            ended,
            made,
        })
    }

    /// The median time of a pool's jobs on the deployed model and a high quantile, once enough are known.
    pub fn service(&self, id: PoolId) -> Option<[Duration; 2]> {
        let recent = self.pools.get(self.pool_names.get(id)?)?.service.reading()?;
        Some([recent.median, recent.high])
    }

    /// The share of a pool's usable slots that queries keep busy; `None` if there is no such pool.
    pub fn utilisation(&mut self, now: Time, id: PoolId) -> Option<f64> {
        let now = self.now.max(now);
        let pool = self.pools.get_mut(self.pool_names.get(id)?)?;
        Some(pool.utilisation(now))
    }

    /// How an instance is doing; `None` if there is none of that name.
    pub fn instance_reading(&self, now: Time, id: InstanceId) -> Option<InstanceReading> {
        let instance = self.instance(id)?;
        let own = &instance.health;
        let of_models = || instance.serves.iter().map(|serves| &serves.health);
        let first = [own].into_iter().chain(of_models()).find(|health| !health.in_service());
        let (compared, agreed) = instance
            .serves
            .iter()
            .map(|serves| serves.doubt.compared())
            .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Some(InstanceReading {
            in_service: self.in_service(id),
            out_for: first.and_then(|health| health.out_for()),
            probe_in: first.and_then(|health| health.probe_at()).map(|at| at.since(now)),
            compared: (compared > 0.0).then_some((compared, agreed)),
        })
    }

    fn open_groups(&self, id: PoolId, now: Time) -> Option<Vec<OpenGroup>> {
        let pool = self.pools.get(self.pool_names.get(id)?)?;
        let group = |key: super::arena::Key<super::group::Group>| {
            let group = self.groups.get(key).filter(|group| group.stage == Stage::Open)?;
            let (k, members) = (group.code.recovery.k as u8, group.slots.len() as u8);
            Some(OpenGroup { k, members, age: now.since(group.opened) })
        };
        let coded = !pool.in_force.coding.codes.is_empty();
        coded.then(|| pool.open.iter().filter_map(|(_, key)| group(*key)).collect())
    }
}
