//! Tests before a model is coded: its file must be that of its bundle, or linear if it runs its own parities.

use std::sync::{Arc, Weak};

use parm_encoder::{Kind, Requirement};
use parm_settings::{PolicyKind, PoolSettings};

use super::Core;
use crate::serve::coding::{self, Bundle};
use crate::serve::members::Files;
use crate::serve::pool::Pool;

/// Whether a pool may be coded as configured, as far as its model must be the bundle's, or linear: not before the test, and
/// never if it fails.
pub(super) fn passed(pool: &Pool, settings: &PoolSettings, bundle: Option<&Bundle>) -> Result<bool, String> {
    let files = pool.members.statements().files;
    if is_coded(settings) {
        of_one_file(&files, bundle)?;
    }
    if !runs_own_parities(settings, bundle) {
        return Ok(true);
    }
    if bundle.is_some() {
        return Err("its bundle has no code mds: omit coding.code to use one that it has".into());
    }
    pool.linearity.verdict(&files).map_or(Ok(false), |verdict| verdict.map(|()| true))
}

fn is_coded(settings: &PoolSettings) -> bool {
    matches!(settings.policy, PolicyKind::Parm | PolicyKind::ParmPlus)
}

/// Rejects a model whose instances serve several files, or another file than that which the bundle was made for: parities
/// would not fit the predictions.
fn of_one_file(files: &Files, bundle: Option<&Bundle>) -> Result<(), String> {
    if files.len() > 1 {
        return Err(
            "its instances serve different files of this version: serve the same file everywhere".into()
        );
    }
    let made_for = bundle.map(|bundle| &bundle.manifest.deployed.sha256);
    match (files.first(), made_for) {
        (Some(own), Some(made_for)) if !own.eq_ignore_ascii_case(made_for) => Err(format!(
            "its file has sha256 {own}, and its bundle was made for {made_for}: make the bundle again, or restore the file"
        )),
        _ => Ok(()),
    }
}

/// Whether the deployed model would run its own parities, because no bundle has models for them.
fn runs_own_parities(settings: &PoolSettings, bundle: Option<&Bundle>) -> bool {
    let trained = |bundle: &Bundle| !bundle.of(Kind::Mds, settings.coding.r.get().into()).is_empty();
    is_coded(settings)
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
            let files = pool.members.statements().files;
            if is_wanted && pool.is_served() && files.len() <= 1 && pool.linearity.claim(&files) {
                tokio::spawn(settle(Arc::downgrade(self), pool, files));
            }
        }
    }
}

/// Tests a pool's model, and codes it if it is linear. An instance that fails is retried.
async fn settle(core: Weak<Core>, pool: Arc<Pool>, files: Files) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        let is_known = strong.catalog.all().iter().any(|known| known.id == pool.id);
        if !is_known || !pool.linearity.is_wanted(&files) {
            return;
        }
        let limits = &strong.config.instances;
        let (patience, pause) = (limits.health_timeout, limits.models_interval);
        let instance = strong.roster.one_of(&pool);
        drop(strong);
        if let Some(instance) = instance {
            match coding::examine(&pool, &*instance.client, patience).await {
                Ok(verdict) => {
                    pool.linearity.settle(&files, verdict);
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
