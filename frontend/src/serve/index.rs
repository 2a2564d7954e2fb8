//! The repository index: every model, whether it can be asked for, and if not, why.
//!
//! A model that was unloaded stays listed with its instances' reason, as at Triton: scripts wait for that. Models that only
//! serve others (parity models, backups) are marked, not hidden: they are served like any other, a frontend in front of
//! this one needs them, and who loads or unloads by this list must find them in it. Their mark is a `reason`, which says
//! nothing about a model that is `READY` otherwise and which clients ignore then.

use std::collections::BTreeSet;
use std::sync::Arc;

use parm_protocol::ModelIndex;

use super::core::Core;
use super::pool::Pool;

/// The index, with what instances know and do not serve.
pub(super) fn of(core: &Core, absent: Vec<ModelIndex>, ready_only: bool) -> Vec<ModelIndex> {
    let pools = core.catalog.all();
    let mut index: Vec<_> = pools.iter().map(|pool| entry(core, pool)).collect();
    let mut known: BTreeSet<_> =
        pools.iter().map(|pool| (pool.model.name.clone(), pool.version.clone())).collect();
    // Several instances may have unloaded it; the first one's reason will do.
    index
        .extend(absent.into_iter().filter(|model| known.insert((model.name.clone(), model.version.clone()))));
    index.retain(|model| !ready_only || model.state == "READY");
    index
}

fn entry(core: &Core, pool: &Arc<Pool>) -> ModelIndex {
    let served = pool.is_served();
    let reason = match served {
        true => core.serves_others(&pool.model.name).unwrap_or_default(),
        false => "no instance serves it now".into(),
    };
    ModelIndex {
        name: pool.model.name.clone(),
        version: pool.version.clone(),
        state: if served { "READY" } else { "UNAVAILABLE" }.into(),
        reason,
    }
}
