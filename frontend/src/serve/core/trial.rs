//! Linearity tests of models that run their own parities, before they are coded.

use std::sync::{Arc, Weak};

use parm_dispatch::{PolicyKind, PoolSettings};
use parm_encoder::{Kind, Requirement};

use super::Core;
use crate::serve::coding::{self, Bundle};
use crate::serve::pool::Pool;

/// Whether a pool may be coded as configured, as far as its model must be linear: not before the test, and never if it
/// fails.
pub(super) fn passed(pool: &Pool, settings: &PoolSettings, bundle: Option<&Bundle>) -> Result<bool, String> {
    if !runs_own_parities(settings, bundle) {
        return Ok(true);
    }
    if bundle.is_some() {
        return Err("its bundle has no code mds: omit coding.code to use one that it has".into());
    }
    pool.linearity.verdict().map_or(Ok(false), |verdict| verdict.map(|()| true))
}

/// Whether the deployed model would run its own parities, because no bundle has models for them.
fn runs_own_parities(settings: &PoolSettings, bundle: Option<&Bundle>) -> bool {
    let is_coded = matches!(settings.policy, PolicyKind::Parm | PolicyKind::ParmPlus);
    let trained = |bundle: &Bundle| !bundle.of(Kind::Mds, settings.coding.r.get().into()).is_empty();
    is_coded
        && settings.coding.code.is_some_and(|kind| kind.requires() == Requirement::AffineModel)
        && !bundle.is_some_and(trained)
}

impl Core {
    /// Starts the linearity tests that the settings require.
    pub(super) fn examine(self: &Arc<Self>) {
        for pool in self.catalog.all() {
            let settings = self.settings.lock().of(&pool.model.name).clone();
            let bundle = self.library.bundle(&pool.model.name, &pool.version);
            // Parity models have no parities of their own, and upstream servers take no tensors.
            let is_own = bundle.is_none() && self.library.part_of(&pool.model.name).is_none();
            let is_wanted = is_own && !pool.is_route && runs_own_parities(&settings, None);
            if is_wanted && pool.is_served() && pool.linearity.claim() {
                tokio::spawn(settle(Arc::downgrade(self), pool));
            }
        }
    }
}

/// Tests a pool's model, and codes it if it is linear. An instance that fails is retried.
async fn settle(core: Weak<Core>, pool: Arc<Pool>) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        if !strong.catalog.all().iter().any(|known| known.id == pool.id) {
            return;
        }
        let limits = &strong.config.instances;
        let (patience, pause) = (limits.health_timeout, limits.models_interval);
        let instance = strong.roster.one_of(&pool);
        drop(strong);
        if let Some(instance) = instance {
            match coding::examine(&pool, &*instance.client, patience).await {
                Ok(verdict) => {
                    pool.linearity.settle(verdict);
                    let Some(core) = core.upgrade() else { return };
                    core.apply_settings(&pool);
                    core.roster.settle(&core.driver, &core.catalog);
                    return;
                }
                Err(error) => {
                    let model = &pool.model.name;
                    tracing::warn!(%model, %error, "linearity test failed: trying again");
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}
