//! The dispatcher's models of a pool. Each role has one of its own: the pool's model, its stand-in or backup model, and its
//! parities. So a stand-in has the speed that it has for this pool, and an instance offers a role only if its files fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use parm_dispatcher::{Coder, ModelKey, ModelSettings};
use parm_protocol::ModelRef;
use parm_settings::{InForce, ModelRole, PolicyKind, PoolSettings};

use super::agreement::Known;
use super::coded::Coded;
use super::driver::Driver;
use super::pool::{Pool, PoolId};
use super::state::State;

/// A pool, and its models in the dispatcher.
pub(super) struct Lines {
    pub(super) pool: Arc<Pool>,
    pub(super) own: ModelKey,
    /// Its stand-in or its backup model.
    pub(super) helper: Option<(Arc<ModelRef>, ModelKey)>,
    /// What is known about its stand-in, if it ever had one.
    pub(super) stand_in: Option<Known>,
    /// Its parity models, which are all at the same instances.
    pub(super) parity: Option<ModelKey>,
    /// Its settings, and what of them is in force.
    pub(super) settings: Option<(PoolSettings, InForce)>,
    /// The runs of stand-ins and parity models that it had before, and those of them that nobody needed any more.
    pub(super) past_jobs: [u64; 2],
}

/// The names of a pool's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) own: ModelKey,
    pub(super) helper: Option<ModelKey>,
    pub(super) parity: Option<ModelKey>,
    /// Whether its parities or its backup model have instances of their own.
    pub(super) is_apart: bool,
}

impl Lines {
    pub(super) fn new(pool: Arc<Pool>, own: ModelKey) -> Self {
        Self { pool, own, helper: None, stand_in: None, parity: None, settings: None, past_jobs: [0; 2] }
    }

    fn policy(&self) -> Option<PolicyKind> {
        self.settings.as_ref().map(|(_, in_force)| in_force.policy)
    }

    pub(super) fn keys(&self) -> Keys {
        Keys {
            own: self.own,
            helper: self.helper.as_ref().map(|(_, key)| *key),
            parity: self.parity,
            is_apart: matches!(self.policy(), Some(PolicyKind::Parm | PolicyKind::ApproximateBackup)),
        }
    }

    /// How many of so many instances run only its parities or its backup model.
    pub(super) fn apart(&self, instances: usize) -> usize {
        let own = self.settings.as_ref();
        own.map_or(0, |(settings, in_force)| settings.dedicated_instances(in_force, instances))
    }
}

impl State {
    /// The names of all pools' models.
    pub(super) fn model_keys(&self) -> BTreeMap<PoolId, Keys> {
        self.pools.iter().map(|(id, lines)| (*id, lines.keys())).collect()
    }

    /// Puts a pool's settings into effect, unless the pool was removed meanwhile.
    pub(super) fn configure(
        &mut self,
        driver: &Driver,
        pool: &Pool,
        (settings, in_force): (PoolSettings, InForce),
    ) {
        let codes = pool.codes();
        let Some(lines) = self.pools.get_mut(&pool.id) else { return };
        let wanted = codes.stand_in.as_ref().map(|stand_in| &stand_in.model).or(codes.backup.as_ref());
        let files = |lines: &Lines| Some(lines.settings.as_ref()?.1.stand_in_files.clone());
        let is_other = lines.helper.as_ref().map(|(model, _)| &**model) != wanted
            || (wanted.is_some() && files(lines).is_some_and(|known| known != in_force.stand_in_files));
        let mut gone = Vec::new();
        if is_other {
            gone.extend(lines.helper.take().map(|(_, key)| key));
            lines.stand_in.iter_mut().for_each(Known::restart);
            if let Some(wanted) = wanted {
                let key = self.dispatcher.add_model(ModelSettings::default());
                lines.helper = Some((wanted.clone().into(), key));
                self.models.insert(key, pool.id);
            }
        }
        if codes.stand_in.is_some() {
            let known = lines.stand_in.get_or_insert_default();
            known.agreement.configure(settings.stand_in.agreement.floor.get());
        }
        let groups = settings.coding_settings(&in_force);
        match (&groups, lines.parity) {
            (None, _) => gone.extend(lines.parity.take()),
            (Some(_), Some(_)) => {}
            (Some(_), None) => {
                let key = self.dispatcher.add_model(ModelSettings::default());
                lines.parity = Some(key);
                self.models.insert(key, pool.id);
            }
        }
        let is_background = in_force.policy != PolicyKind::Parm;
        match self.coded.get_mut(&pool.id) {
            // Without codes it makes no groups, but keeps its counts and ends the groups that it has.
            Some(coded) => {
                coded.coder.configure(groups.unwrap_or_default());
                (coded.codes, coded.is_background) = (codes, is_background);
            }
            None => {
                let new =
                    |groups| Coded { coder: Coder::new(groups), codes, is_background, failures: [0; 2] };
                self.coded.extend(groups.map(|groups| (pool.id, new(groups))));
            }
        }
        for counters in gone.iter().filter_map(|key| self.dispatcher.counters(*key)) {
            lines.past_jobs[0] += counters.jobs;
            lines.past_jobs[1] += counters.stopped;
        }
        lines.settings = Some((settings, in_force));
        let (helper, parity) = (lines.keys().helper, lines.parity);
        self.configure_own(driver, pool.id);
        self.react(driver, |state, now| {
            let Some(lines) = state.pools.get(&pool.id) else { return };
            let Some((settings, in_force)) = &lines.settings else { return };
            let most = in_force.max_rows;
            let of_helper = settings
                .model_settings(in_force, ModelRole::StandIn { max_rows: most.min(in_force.stand_in_rows) });
            // Parities differ in shape, so each runs alone.
            let of_parity = settings.model_settings(in_force, ModelRole::Parity { max_rows: most });
            helper.into_iter().for_each(|key| state.dispatcher.configure(now, key, of_helper));
            parity.into_iter().for_each(|key| state.dispatcher.configure(now, key, of_parity));
            for key in gone {
                state.dispatcher.remove_model(now, key);
            }
        });
    }

    /// Configures a pool's own model. While its stand-in's answers are withheld it has none.
    pub(super) fn configure_own(&mut self, driver: &Driver, pool: PoolId) {
        let Some(lines) = self.pools.get(&pool) else { return };
        let Some((settings, in_force)) = &lines.settings else { return };
        let is_withheld = lines.stand_in.as_ref().is_some_and(|known| known.agreement.is_withheld());
        let stand_in = lines.keys().helper.filter(|_| !is_withheld);
        let settings = settings.model_settings(in_force, ModelRole::Deployed { stand_in });
        let own = lines.own;
        self.react(driver, |state, now| {
            state.dispatcher.configure(now, own, settings);
        });
    }

    /// Removes a pool and its models.
    pub(super) fn forget(&mut self, driver: &Driver, pool: PoolId) {
        let Some(lines) = self.pools.get_mut(&pool) else { return };
        lines.stand_in = None;
        let lines = lines.keys();
        self.react(driver, |state, now| {
            state.coded.remove(&pool);
            for key in [Some(lines.own), lines.helper, lines.parity].into_iter().flatten() {
                state.dispatcher.remove_model(now, key);
            }
        });
        // Running jobs may still answer; nothing starts any more.
        self.pools.remove(&pool);
        self.models.retain(|_, of| *of != pool);
    }
}
