//! Reading of all counts and states at one time, from which frames are made.

use std::collections::HashMap;
use std::sync::Arc;

use super::objective::Tail;
use super::sums::Totals;
use crate::discovery::{Member, View};
use crate::serve::reading::{GroupsReading, InstanceId, InstanceReading, ModelReading, Time};
use crate::serve::{Frontend, Pool};

/// Maximum instances in a frame.
pub(super) const INSTANCES: usize = 1024;

/// A reading.
pub(super) struct Moment {
    pub(super) at: Time,
    /// In milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) pools: Vec<OfPool>,
    pub(super) instances: Vec<OfInstance>,
}

/// State of a pool.
pub(super) struct OfPool {
    pub(super) pool: Arc<Pool>,
    pub(super) reading: ModelReading,
    /// `None` if nothing is coded.
    pub(super) groups: Option<GroupsReading>,
    pub(super) totals: Totals,
    pub(super) tail: Option<Tail>,
    pub(super) queue_limit: u32,
    /// Whether clients may receive answers of stand-ins.
    pub(super) stands_in: bool,
}

/// State of an instance.
pub(super) struct OfInstance {
    pub(super) member: Arc<Member>,
    pub(super) view: View,
    pub(super) reading: Option<InstanceReading>,
    /// Finished jobs, and how many of them failed.
    pub(super) jobs: [u64; 2],
}

/// Values read under the dispatcher's lock.
pub(crate) struct Glance {
    pub(crate) pools: Vec<Option<(ModelReading, Option<GroupsReading>)>>,
    pub(crate) instances: HashMap<InstanceId, InstanceReading>,
}

impl Moment {
    pub(super) fn now(frontend: &Frontend) -> Self {
        let core = &frontend.core;
        let pools = core.catalog.all();
        let members: Vec<_> = frontend.fleet.members().into_iter().take(INSTANCES).collect();
        let views: Vec<_> = members.iter().map(|member| member.view()).collect();
        let known = views.iter().filter_map(|view| Some(view.instance.as_ref()?.id)).collect::<Vec<_>>();
        let at = core.driver.now();
        let mut glance = core.driver.glance(&pools, &known);
        let settings = core.settings();
        let of_pool = |(pool, read): (Arc<Pool>, Option<_>)| {
            let (reading, groups) = read?;
            let wished = settings.of(&pool.model.name);
            Some(OfPool {
                reading,
                groups,
                totals: pool.sums.totals(),
                tail: pool.sums.objective.tail(),
                queue_limit: wished.queue_limit.get(),
                stands_in: pool.codes().stand_in.is_some(),
                pool,
            })
        };
        let of_instance = |(member, view): (Arc<Member>, View)| {
            let instance = view.instance.as_ref();
            let id = instance.map(|instance| instance.id);
            OfInstance {
                member,
                reading: id.and_then(|id| glance.instances.get(&id).copied()),
                jobs: instance.map_or([0, 0], |instance| instance.ended()),
                view,
            }
        };
        let readings = std::mem::take(&mut glance.pools);
        Self {
            at,
            at_ms: core.driver.wall_ms(at),
            pools: pools.into_iter().zip(readings).filter_map(of_pool).collect(),
            instances: members.into_iter().zip(views).map(of_instance).collect(),
        }
    }
}
