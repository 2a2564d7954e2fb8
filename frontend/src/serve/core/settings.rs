//! The dispatch settings wished for, and what is refused of them: what could never be followed, and a change that no model
//! it is about could follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_dispatch::{PolicyKind, PoolSettings};

use super::Core;
use crate::error::Error;
use crate::serve::coding::Library;
use crate::serve::pool::Pool;

/// Dispatch settings as they are wished for: those of the configuration until the admin API changes them.
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

    /// Refuses policies that could never be followed, whatever models come.
    pub(super) fn check(&self, library: &Library) -> Result<(), Error> {
        std::iter::once(&self.default).chain(self.models.values()).try_for_each(|own| check(own, library))
    }
}

impl Core {
    /// Dispatch settings as they are wished for.
    pub(crate) fn settings(&self) -> PoolSettingsByModel {
        self.settings.lock().clone()
    }

    /// How often they were changed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Changes dispatch settings; queries under way stay. If `change` fails nothing is changed, nor if a policy is wanted
    /// for which there are no codes: `of` names the model that the change is about, or none for all.
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
        // Listed now: a model that arrives later finds the new settings, one that arrived before must get them here.
        self.catalog.all().iter().for_each(|pool| self.apply_settings(pool));
        self.roster.settle(&self.driver, &self.catalog);
        self.examine();
        Ok(changed)
    }

    /// Settings that no served model of those concerned could follow are a mistake.
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
                    problem.get_or_insert_with(|| format!("model '{name}' cannot be coded so: {reason}"));
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
            "policy approximate-backup needs a cheaper model: name one with backup_model"
        }
        PolicyKind::StandIn if settings.stand_in.model.is_none() && !library.has_stand_ins() => {
            "policy stand-in needs a cheaper model: name one with stand_in.model or --stand-in, or a folder with bundles \
             that have one with frontend.bundles or --bundles"
        }
        _ => return Ok(()),
    };
    Err(Error::BadSettings { reason: reason.into() })
}
