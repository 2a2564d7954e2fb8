//! Requested dispatch settings, with their checks.
//!
//! Settings that could never apply are rejected, and so is a change that no model concerned could follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parm_settings::{PolicyKind, PoolSettings};
use parm_transport::Settling;
use serde_json::{Value, json};

use super::{Control, Core};
use crate::admin::differences;
use crate::console::{Happening, Kind};
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
        self.control.lock().settings.clone()
    }

    /// Number of changes.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Changes dispatch settings, for queries in progress too. Nothing changes if `change` fails, if the settings could never
    /// apply, or if none of the served models concerned could follow them; if only some could, the others hedge. `of` is the
    /// model concerned, or `None` for all without settings of their own.
    pub(crate) fn change_settings(
        self: &Arc<Self>,
        of: Option<&str>,
        change: impl FnOnce(&mut PoolSettingsByModel) -> Result<(), Error>,
    ) -> Result<PoolSettingsByModel, Error> {
        let control = &mut *self.control.lock();
        let mut next = control.settings.clone();
        change(&mut next)?;
        next.check(&self.library)?;
        self.check_plans(&self.catalog.all(), &next, of)?;
        control.settings = next.clone();
        self.revision.fetch_add(1, Ordering::Relaxed);
        self.apply_all(control);
        Ok(next)
    }

    /// Derives everything from the settings and the bundles again.
    fn apply_all(self: &Arc<Self>, control: &mut Control) {
        self.catalog.all().iter().for_each(|pool| self.apply_settings(control, pool));
        control.roster.settle(&self.driver, &self.catalog, None);
        self.examine(control);
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

/// Dispatch settings of a configuration: those of all models, and those of single models.
pub type Dispatch = (PoolSettings, BTreeMap<String, PoolSettings>);

/// A reload of dispatch settings, by paths of fields.
///
/// Problem: the settings in use differ from the file once an operator has changed them live. To replace them all would undo
/// those changes, even if the file is the same.
///
/// Choice: a merge of three versions. A field that differs between the former file and the new one takes the new value; the
/// others stay as they are. A model's own settings that appear in the file or disappear from it do so as a whole.
///
/// Rejected: writing live changes into the file, which often comes from a repository or a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Fields that the file changed.
    pub applied: Vec<String>,
    /// Those that had been changed live to another value.
    pub overridden: Vec<String>,
}

impl Core {
    /// Applies the differences between two versions of the configuration.
    pub(crate) fn reload_settings(
        self: &Arc<Self>,
        before: &Dispatch,
        now: &Dispatch,
    ) -> Result<Reloaded, Error> {
        if before == now {
            return Ok(Reloaded::default());
        }
        let (before, now) = (version(before), version(now));
        let mut reloaded = Reloaded::default();
        self.change_settings(None, |live| {
            let next = merged(&before, &now, live)?;
            reloaded = report(&before, &now, live);
            *live = next;
            Ok(())
        })?;
        let text = format!("the configuration was read again: {}", reloaded.applied.join(", "));
        self.driver.tell(Kind::Settings, Happening { text, ..Happening::default() });
        Ok(reloaded)
    }
}

fn version((default, models): &Dispatch) -> PoolSettingsByModel {
    PoolSettingsByModel { default: default.clone(), models: models.clone() }
}

/// The settings in use with the changes of the file.
fn merged(
    before: &PoolSettingsByModel,
    now: &PoolSettingsByModel,
    live: &PoolSettingsByModel,
) -> Result<PoolSettingsByModel, Error> {
    if before == live {
        return Ok(now.clone());
    }
    let next = value(Some(&written(before)), Some(&written(now)), Some(&written(live))).unwrap_or_default();
    let read = |settings: &Value, file: &PoolSettings| {
        serde_json::from_value::<PoolSettings>(settings.clone())
            .map(|settings| settings.with_constants_of(file))
            .map_err(|error| Error::BadSettings { reason: error.to_string() })
    };
    let models = next["models"].as_object().into_iter().flatten();
    let models = models.map(|(name, own)| Ok((name.clone(), read(own, now.of(name))?)));
    Ok(PoolSettingsByModel {
        default: read(&next["dispatch"], &now.default)?,
        models: models.collect::<Result<_, Error>>()?,
    })
}

fn written(of: &PoolSettingsByModel) -> Value {
    json!({ "dispatch": of.default, "models": of.models })
}

fn value(before: Option<&Value>, now: Option<&Value>, live: Option<&Value>) -> Option<Value> {
    if before == now {
        return live.cloned();
    }
    let (Some(Value::Object(old)), Some(Value::Object(new)), Some(Value::Object(used))) = (before, now, live)
    else {
        return now.cloned();
    };
    let names: BTreeSet<&String> = new.keys().chain(used.keys()).collect();
    let merged = names.into_iter().filter_map(|name| {
        value(old.get(name), new.get(name), used.get(name)).map(|value| (name.clone(), value))
    });
    Some(Value::Object(merged.collect()))
}

/// The changes of the file, and those that replace another value that was set live.
fn report(before: &PoolSettingsByModel, now: &PoolSettingsByModel, live: &PoolSettingsByModel) -> Reloaded {
    let paths = |from: &PoolSettingsByModel, to: &PoolSettingsByModel| -> BTreeSet<String> {
        let differences = differences(&written(from), &written(to));
        differences.into_iter().map(|field| format!("frontend.{}", field.path)).collect()
    };
    let applied = paths(before, now);
    let (changed_live, replaced) = (paths(before, live), paths(live, now));
    let is_overridden = |path: &&String| changed_live.contains(*path) && replaced.contains(*path);
    let overridden = applied.iter().filter(is_overridden).cloned().collect();
    Reloaded { applied: applied.into_iter().collect(), overridden }
}

/// Polls bundles for as long as the frontend lives, and applies changes once they have settled.
pub(super) async fn follow_bundles(core: Weak<Core>) {
    let mut settling = Settling::default();
    while let Some(strong) = core.upgrade() {
        let every = strong.config.bundles_interval;
        let timers = strong.driver.timers;
        let look = timers.offload(move || {
            let is_first = settling.is_new();
            if settling.look(strong.library.stamp()) && !is_first {
                strong.reload();
                // A new manifest refers to new files.
                settling.believe(strong.library.stamp());
            }
            settling
        });
        match look.await {
            Ok(looked) => settling = looked,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // the runtime ends
            },
        }
        tokio::time::sleep(every).await;
    }
}

impl Core {
    /// Rereads the bundles and applies their contents.
    fn reload(self: &Arc<Self>) {
        if self.library.read() {
            tracing::info!("bundles changed");
            self.apply_all(&mut self.control.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use parm_settings::PolicyKind;

    use super::*;

    fn with(policy: PolicyKind, queue_limit: u32) -> PoolSettings {
        let queue_limit = NonZeroU32::new(queue_limit).unwrap();
        PoolSettings { policy, queue_limit, ..PoolSettings::default() }
    }

    fn of(default: PoolSettings, models: &[(&str, PoolSettings)]) -> PoolSettingsByModel {
        let models = models.iter().map(|(name, own)| ((*name).to_owned(), own.clone())).collect();
        PoolSettingsByModel { default, models }
    }

    const HEDGE: PolicyKind = PolicyKind::Hedge;
    const NONE: PolicyKind = PolicyKind::None;

    #[test]
    fn reload_names_live_changes_that_the_file_replaces() {
        let (before, now) = (of(with(HEDGE, 10), &[]), of(with(HEDGE, 20), &[]));
        let live = of(with(NONE, 15), &[]);
        assert_eq!(merged(&before, &now, &live).unwrap(), of(with(NONE, 20), &[]));
        let path = ["frontend.dispatch.queue_limit".to_owned()];
        assert_eq!(report(&before, &now, &live).overridden, path);
        let live = of(with(HEDGE, 20), &[]);
        assert_eq!(report(&before, &now, &live).overridden, [""; 0], "it has the file's value already");
    }

    #[test]
    fn model_of_the_file_comes_and_goes_with_it() {
        let (without, listed) = (of(with(HEDGE, 10), &[]), of(with(HEDGE, 10), &[("m", with(NONE, 10))]));
        assert_eq!(merged(&without, &listed, &without).unwrap(), listed);
        assert_eq!(merged(&listed, &without, &listed).unwrap(), without);
        assert_eq!(
            merged(&listed, &listed, &without).unwrap(),
            without,
            "removed live, unchanged in the file"
        );
    }
}
