//! Requested dispatch settings, with their checks.
//!
//! Settings that could never apply are rejected, and so is a change that no model concerned could follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_settings::{PolicyKind, PoolSettings};

use super::Core;
use crate::error::Error;
use crate::serve::coding::Library;
use crate::serve::pool::Pool;

/// Requested dispatch settings: those of the configuration, until the admin API changes them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolSettingsByModel {
    pub(crate) default: PoolSettings,
    pub(crate) models: BTreeMap<String, PoolSettings>,
}

impl PoolSettingsByModel {
    /// The settings of a model.
    pub(crate) fn of(&self, model: &str) -> &PoolSettings {
        self.models.get(model).unwrap_or(&self.default)
    }

    /// Rejects policies that could never apply to any model.
    pub(super) fn check(&self, library: &Library) -> Result<(), Error> {
        std::iter::once(&self.default).chain(self.models.values()).try_for_each(|own| check(own, library))
    }
}

impl Core {
    /// The requested dispatch settings.
    pub(crate) fn settings(&self) -> PoolSettingsByModel {
        self.settings.lock().clone()
    }

    /// Number of changes.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Changes dispatch settings; queries in progress are not affected. Nothing changes if `change` fails or if a
    /// policy needs codes that do not exist. `of` is the model concerned, or `None` for all.
    pub(crate) fn change_settings(
        self: &Arc<Self>,
        of: Option<&str>,
        change: impl FnOnce(&mut PoolSettingsByModel) -> Result<(), Error>,
    ) -> Result<PoolSettingsByModel, Error> {
        let changed = {
            let mut settings = self.settings.lock();
            let mut next = settings.clone();
            change(&mut next)?;
            next.check(&self.library)?;
            self.check_plans(&self.catalog.all(), &next, of)?;
            *settings = next.clone();
            self.revision.fetch_add(1, Ordering::Relaxed);
            next
        };
        // Listed now: a model that arrives later uses the new settings, and one that arrived before gets them here.
        self.catalog.all().iter().for_each(|pool| self.apply_settings(pool));
        self.roster.settle(&self.driver, &self.catalog);
        self.examine();
        Ok(changed)
    }

    /// Rejects settings that none of the served models concerned could follow.
    fn check_plans(
        &self,
        pools: &[Arc<Pool>],
        settings: &PoolSettingsByModel,
        of: Option<&str>,
    ) -> Result<(), Error> {
        let mut problem = None;
        let concerned = |pool: &&Arc<Pool>| match of {
            Some(name) => pool.model.name == name,
            None => !settings.models.contains_key(&pool.model.name),
        };
        for pool in pools.iter().filter(concerned) {
            match self.plan(pool, settings.of(&pool.model.name)) {
                Ok(_) => return Ok(()),
                Err(reason) => {
                    let name = &pool.model.name;
                    problem.get_or_insert_with(|| format!("cannot code model '{name}': {reason}"));
                }
            }
        }
        problem.map_or(Ok(()), |reason| Err(Error::BadSettings { reason }))
    }
}

fn check(settings: &PoolSettings, library: &Library) -> Result<(), Error> {
    let reason = match settings.policy {
        PolicyKind::Parm | PolicyKind::ParmPlus if library.is_empty() && settings.coding.code.is_none() => {
            "policies parm and parm+ need codes: name a folder with bundles (NAME/parm.toml) with frontend.bundles or \
             --bundles, or, for linear models, set coding.code = \"mds\""
        }
        PolicyKind::ApproximateBackup if settings.backup_model.is_none() => {
            "policy approximate-backup needs a cheaper model: set backup_model"
        }
        PolicyKind::StandIn if settings.stand_in.model.is_none() && !library.has_stand_ins() => {
            "policy stand-in needs a cheaper model: name one with stand_in.model or --stand-in, or a folder with bundles \
             that have one with frontend.bundles or --bundles"
        }
        _ => return Ok(()),
    };
    Err(Error::BadSettings { reason: reason.into() })
}
