//! Derives a model's effective settings from the requested ones.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parm_protocol::{ModelRef, TensorMetadata};
use parm_settings::{Fraction, InForce, PolicyKind, PoolSettings};

use super::{Control, Core};
use crate::serve::coding::{self, Bundle, Codes, Plan, StandIn, StandInStanding, Standing};
use crate::serve::pool::{Description, Files, Pool};

/// Warns once if a stand-in's answers are never used, because the settings require a confidence and no bundle defines
/// one.
fn warn_if_never_sure(pool: &Pool, wished: &PoolSettings, in_force: &InForce, codes: &Codes) {
    let least = wished.stand_in.min_confidence.get();
    let stand_in = codes.stand_in.as_ref().filter(|_| in_force.policy == PolicyKind::StandIn && least > 0.0);
    let unsure = stand_in.filter(|stand_in| !stand_in.has_confidence());
    if pool.never_sure.swap(unsure.is_some(), Ordering::Relaxed) {
        return;
    }
    if let Some(stand_in) = unsure {
        let (model, stand_in) = (&pool.model.name, &stand_in.model.name);
        tracing::warn!(
            %model, %stand_in, min_confidence = least,
            "answers of the stand-in are never given: no bundle has an output of classes and a calibration, so they have no confidence: \
             set stand_in.min_confidence to 0, or describe the stand-in in the model's bundle"
        );
    }
}

/// Says which requests are never reconstructed, because they want outputs that codes cannot add up, such as labels.
fn warn_of_outputs(pool: &Pool) {
    let (fit, others): (Vec<_>, Vec<_>) =
        pool.metadata.outputs.iter().partition(|output| coding::is_decodable(output));
    let names = |outputs: &[&TensorMetadata]| {
        outputs
            .iter()
            .map(|output| format!("{} ({})", output.name, output.datatype))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !others.is_empty() {
        tracing::warn!(
            model = %pool.model.name, outputs = names(&others), codable = names(&fit),
            "requests for these outputs join no coding group, as codes reconstruct FP32 only: name the codable outputs in requests \
             (a request without names wants all), or use the policy stand-in or hedge"
        );
    }
}

impl Core {
    /// Effective settings by model and version, of one model or all.
    pub(crate) fn standings(&self, of: Option<&str>) -> BTreeMap<String, BTreeMap<String, Standing>> {
        let mut standings = BTreeMap::<_, BTreeMap<_, _>>::new();
        for pool in self.catalog.all().iter().filter(|pool| of.is_none_or(|name| pool.model.name == name)) {
            if let Some(mut standing) = pool.standing() {
                standing.stand_in = self.stand_in_standing(pool);
                let versions = standings.entry(pool.model.name.clone()).or_default();
                versions.insert(pool.version.clone(), standing);
            }
        }
        standings
    }

    pub(super) fn plan(&self, pool: &Pool, settings: &PoolSettings) -> Result<Plan, String> {
        let mut settings = settings.clone();
        if pool.is_route {
            settings.policy = self.policy_of_route(&pool.model.name, settings.policy);
            return coding::plan(pool, &settings, None, self.config.requests.codable_magnitude);
        }
        let bundle = self.library.bundle(&pool.model.name, &pool.version);
        if !passed(pool, &settings, bundle.as_deref())? {
            settings.policy = PolicyKind::Hedge;
        }
        let mut plan =
            coding::plan(pool, &settings, bundle.as_deref(), self.config.requests.codable_magnitude)?;
        plan.in_force.stand_in_files = self.stand_in_files(&plan.codes);
        let problem = self.stand_in_of(&plan.codes).and_then(|served| StandIn::misfit(pool, &served));
        problem.map_or(Ok(plan), Err)
    }

    /// The policy of a route: only copies of whole requests can help it, and some must be sent once.
    fn policy_of_route(&self, name: &str, wished: PolicyKind) -> PolicyKind {
        match wished {
            _ if self.routes.is_once(name) => PolicyKind::Once,
            PolicyKind::None | PolicyKind::Once | PolicyKind::Equal | PolicyKind::Replicate => wished,
            _ => PolicyKind::Hedge,
        }
    }

    /// Largest share of a route's requests that is sent twice, unless the operator has settings for the route.
    fn copies_of_route(&self, control: &Control, pool: &Pool) -> Option<Fraction> {
        let own = pool.is_route && !control.settings.models.contains_key(&pool.model.name);
        own.then(|| self.routes.copies(&pool.model.name))?
    }

    /// Puts a pool's settings into effect. If their policy needs a code or a model that is not available, late queries are hedged
    /// instead, and the log has the reason; of a route the policy is replaced without one (`policy_of_route`). The default settings
    /// also apply to parity models, which have no parities of their own.
    pub(super) fn apply_settings(&self, control: &Control, pool: &Arc<Pool>) {
        let mut wished = control.settings.of(&pool.model.name).clone();
        if let Some(copies) = self.copies_of_route(control, pool) {
            wished.hedge.budget.ratio = copies;
        }
        pool.members.apply();
        let mut not_coded = None;
        let is_stand_in = wished.stand_in.model.as_ref() == Some(&pool.model.name);
        let plan = self.plan(pool, &wished).or_else(|reason| {
            let model = &pool.model.name;
            if is_stand_in || self.library.part_of(model).is_some() {
                // Parity models do not need a warning.
            } else if wished.coding.code.is_some() {
                tracing::warn!(code = %parm_protocol::StableCode::NotCoded, %model, %reason, "cannot use coding.code: hedging late queries instead");
            } else {
                tracing::info!(%model, %reason, "not coded: hedging late queries instead");
            }
            not_coded = Some(reason);
            self.plan(pool, &PoolSettings { policy: PolicyKind::Hedge, ..wished.clone() })
        });
        let uncoded = |_| Plan { in_force: InForce::as_wished(&wished), codes: Codes::default() };
        let Plan { in_force, codes } = plan.unwrap_or_else(uncoded);
        warn_if_never_sure(pool, &wished, &in_force, &codes);
        let before = pool.standing().map(|standing| standing.in_force.coding.codes);
        pool.set_codes(codes);
        if let Some(before) = before.filter(|before| *before != in_force.coding.codes) {
            let (name, before, now) = (&pool.model.name, before.len(), in_force.coding.codes.len());
            self.driver.tell_of(pool, format!("codes of {name} changed from {before} to {now}"));
        }
        if pool.codes().len() > 0 && !pool.not_decodable.swap(true, Ordering::Relaxed) {
            warn_of_outputs(pool);
        }
        let standing = Standing { in_force: in_force.clone(), not_coded, stand_in: None };
        pool.set_standing(standing, &wished);
        self.metrics.models.policy_changed(&pool.metrics, in_force.policy);
        let in_force = InForce { stand_in_rows: self.stand_in_rows(pool), ..in_force };
        self.driver.with(|state| state.configure(&self.driver, pool, (wished, in_force)));
    }
}

// Models that stand in for others, and the models that they serve.

impl Core {
    /// Describes the role of a model that only serves others, such as a stand-in.
    pub(crate) fn serves_others(&self, model: &str) -> Option<String> {
        if let Some(part) = self.library.part_of(model) {
            return Some(part);
        }
        let serves = |pool: &Arc<Pool>| {
            let codes = pool.codes();
            let stand_in = codes.stand_in.as_ref().map(|stand_in| (&stand_in.model, "stand-in"));
            let backup = codes.backup.as_ref().map(|backup| (backup, "backup model"));
            let (_, what) = stand_in.into_iter().chain(backup).find(|(known, _)| known.name == model)?;
            Some(format!("{what} of '{}'", pool.model.name))
        };
        self.catalog.all().iter().find_map(serves)
    }

    /// The pool's stand-in as it is served; a server without versions has the expected one.
    pub(super) fn stand_in_of(&self, codes: &Codes) -> Option<Description> {
        let wanted = &codes.stand_in.as_ref()?.model;
        let unnamed = || ModelRef { version: Some(String::new()), ..wanted.clone() };
        let served = self.catalog.find(wanted).or_else(|_| self.catalog.find(&unnamed()));
        served.ok().map(|pool| pool.description())
    }

    /// Digests of the files of a pool's stand-in, or its versions if no instance states a digest.
    pub(super) fn stand_in_files(&self, codes: &Codes) -> BTreeSet<String> {
        let Some(own) = codes.stand_in.as_ref() else { return BTreeSet::new() };
        if let Some(digest) = own.digest() {
            return BTreeSet::from([digest.to_ascii_lowercase()]);
        }
        let pools = self.catalog.versions(&own.model.name);
        let files: BTreeSet<String> = pools.iter().flat_map(|pool| pool.members.statements().files).collect();
        if !files.is_empty() {
            return files;
        }
        pools.iter().map(|pool| pool.version.clone()).filter(|version| !version.is_empty()).collect()
    }

    /// The largest batch that a stand-in accepts.
    pub(super) fn stand_in_rows(&self, pool: &Pool) -> NonZeroU16 {
        let own = self.stand_in_of(&pool.codes());
        let takes = own.and_then(|served| served.config).map(|config| config.max_batch_size);
        let most = match takes {
            _ if !pool.batched => 1,
            Some(most) if most > 0 => u16::try_from(most).unwrap_or(u16::MAX),
            _ => u16::MAX,
        };
        NonZeroU16::new(most).unwrap_or(NonZeroU16::MIN)
    }

    pub(super) fn stand_in_standing(&self, pool: &Pool) -> Option<StandInStanding> {
        let codes = pool.codes();
        let model = codes.stand_in.as_ref()?.model.name.clone();
        let reading = self.driver.reading(pool.id)?;
        let served = self.stand_in_of(&codes).is_some();
        Some(StandInStanding {
            model,
            served,
            cost: reading.stand_in_cost.filter(|_| served),
            agreement: reading.agreement,
            withheld: reading.withheld,
        })
    }

    /// Checks a new model against the models that it stands in for.
    pub(super) fn stand_in_came(&self, control: &Control, newcomer: &Pool) {
        for pool in self.catalog.all() {
            let named = &control.settings.of(&pool.model.name).stand_in.model;
            let stands_in = |codes: &Codes| {
                codes.stand_in.as_ref().is_some_and(|known| known.model.name == newcomer.model.name)
            };
            if named.as_ref() == Some(&newcomer.model.name) || stands_in(&pool.codes()) {
                self.apply_settings(control, &pool);
            }
        }
    }
}

/// Whether a pool may be coded as configured, as far as its file must be the bundle's, or its model linear if it runs its own
/// parities: not before the test, and never if it fails.
fn passed(pool: &Pool, settings: &PoolSettings, bundle: Option<&Bundle>) -> Result<bool, String> {
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
    let trained =
        |bundle: &Bundle| !bundle.of(parm_encoder::Kind::Mds, settings.coding.r.get().into()).is_empty();
    is_coded(settings)
        && settings.coding.code.is_some_and(parm_encoder::Kind::needs_affine_model)
        && !bundle.is_some_and(trained)
}

impl Core {
    /// Whether a pool was not removed.
    fn knows(&self, pool: &Pool) -> bool {
        self.catalog.all().iter().any(|known| known.id == pool.id)
    }

    /// Starts the linearity tests that the settings require.
    pub(super) fn examine(self: &Arc<Self>, control: &Control) {
        for pool in self.catalog.all() {
            let settings = control.settings.of(&pool.model.name);
            let bundle = self.library.bundle(&pool.model.name, &pool.version);
            // Parity models have no parities of their own, and upstream servers take no tensors.
            let is_own = bundle.is_none() && self.library.part_of(&pool.model.name).is_none();
            let is_wanted = is_own && !pool.is_route && runs_own_parities(settings, None);
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
        if !strong.knows(&pool) || !pool.linearity.is_wanted(&files) {
            return;
        }
        let limits = &strong.config.instances;
        let (patience, pause) = (limits.health_timeout, limits.models_interval);
        let instance = strong.control.lock().roster.one_of(&pool);
        drop(strong);
        if let Some(instance) = instance {
            match coding::examine(&pool, &*instance.client, patience).await {
                Ok(verdict) => {
                    pool.linearity.settle(&files, verdict);
                    let Some(core) = core.upgrade() else { return };
                    let control = &mut *core.control.lock();
                    if core.knows(&pool) {
                        core.apply_settings(control, &pool);
                        control.roster.settle(&core.driver, &core.catalog, None);
                    }
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
