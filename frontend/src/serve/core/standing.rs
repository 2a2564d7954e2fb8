//! Derives a model's effective settings from the requested ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_protocol::TensorMetadata;
use parm_settings::{Fraction, InForce, PolicyKind, PoolSettings};

use super::{Core, trial};
use crate::console::{Happening, Kind};
use crate::serve::coding::{self, Codes, Plan, StandIn, Standing};
use crate::serve::pool::Pool;

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
        if !trial::passed(pool, &settings, bundle.as_deref())? {
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
    fn copies_of_route(&self, pool: &Pool) -> Option<Fraction> {
        let own = pool.is_route && !self.settings.lock().models.contains_key(&pool.model.name);
        own.then(|| self.routes.copies(&pool.model.name))?
    }

    /// Puts a pool's settings into effect. If they need a code that is not available, late queries are hedged instead,
    /// and the log has the reason. The default settings also apply to parity models, which have no parities of their
    /// own.
    ///
    /// Calls are serialised: otherwise a thread with older settings could overtake another and leave them in effect.
    /// Each change of settings calls this afterwards, so the last call applies the last change.
    pub(super) fn apply_settings(&self, pool: &Arc<Pool>) {
        let _alone = self.applying.lock();
        if !self.catalog.versions(&pool.model.name).iter().any(|known| known.id == pool.id) {
            // It was listed and has been removed meanwhile.
            return;
        }
        let mut wished = self.settings.lock().of(&pool.model.name).clone();
        if let Some(copies) = self.copies_of_route(pool) {
            wished.hedge.budget.ratio = copies;
        }
        #[cfg(test)]
        self.before_force();
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
            self.tell_codes(pool, before.len(), in_force.coding.codes.len());
        }
        if pool.codes().len() > 0 && !pool.not_decodable.swap(true, Ordering::Relaxed) {
            warn_of_outputs(pool);
        }
        let standing = Standing { in_force: in_force.clone(), not_coded, stand_in: None };
        pool.set_standing(standing, &wished);
        self.metrics.policy_changed(&pool.metrics, in_force.policy);
        let in_force = InForce { stand_in_rows: self.stand_in_rows(pool), ..in_force };
        self.driver.configure(pool, wished, in_force);
    }

    /// Stops here if a test wants another thread to go first.
    #[cfg(test)]
    fn before_force(&self) {
        let hook = self.before_force.lock().clone();
        hook.into_iter().for_each(|hook| hook());
    }

    fn tell_codes(&self, pool: &Pool, before: usize, now: usize) {
        let text = format!("codes of {} changed from {before} to {now}", pool.model.name);
        self.driver.tell(Kind::Model, Happening { model: Some(pool.id), text, ..Happening::default() });
    }
}
