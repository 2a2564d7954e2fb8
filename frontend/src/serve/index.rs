//! Repository index: all models with their state, and the reason if they are not served.
//!
//! An unloaded model stays listed with its instances' reason, as in Triton, because scripts wait for that. Models that
//! only serve others (parity models, backups) are marked but not hidden: they are served like any other, another
//! frontend in front of this one needs them, and clients that load or unload by this list must find them. The mark is a
//! `reason`, which clients ignore for a `READY` model.

use std::collections::BTreeSet;
use std::sync::Arc;

use parm_protocol::ModelIndex;

use super::core::Core;
use super::pool::Pool;

/// Builds the index, including models that instances know but do not serve.
pub(super) fn of(core: &Core, absent: Vec<ModelIndex>, ready_only: bool) -> Vec<ModelIndex> {
    let pools = core.catalog.all();
    let mut index: Vec<_> = pools.iter().map(|pool| entry(core, pool)).collect();
    let mut known: BTreeSet<_> =
        pools.iter().map(|pool| (pool.model.name.clone(), pool.version.clone())).collect();
    // Several instances may have unloaded it; the first one's reason is used.
    index
        .extend(absent.into_iter().filter(|model| known.insert((model.name.clone(), model.version.clone()))));
    index.retain(|model| !ready_only || model.state == "READY");
    index
}

fn entry(core: &Core, pool: &Arc<Pool>) -> ModelIndex {
    let served = pool.is_served();
    let reason = match served {
        true => core.serves_others(&pool.model.name).unwrap_or_default(),
        false => "no instance serves the model now".into(),
    };
    ModelIndex {
        name: pool.model.name.clone(),
        version: pool.version.clone(),
        state: if served { "READY" } else { "UNAVAILABLE" }.into(),
        reason,
    }
}
