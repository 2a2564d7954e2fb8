//! Derives a pool's codes and dispatcher settings from its configuration and its bundle.
//!
//! Settings request a policy, k, r and perhaps a code; a bundle has certain codes. If they do not match, the reason is
//! reported and nothing is coded, because a code that the parity models were not trained for would give wrong answers.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use parm_encoder::{CodeSpec, Needs};
use parm_protocol::ModelRef;
use parm_settings::{Coding, CodingSettings, Fraction, InForce, PolicyKind, PoolSettings};
use serde::Serialize;

use super::StandIn;
use super::codes::{self, Coder, Codes, reference};
use super::guards::Guards;
use super::library::{Bundle, TrainedCode};
use crate::serve::pool::Pool;

/// Group sizes that are used by default. In larger groups more members are late together, and a parity is worth less.
const SIZES: std::ops::RangeInclusive<u8> = 2..=4;

/// A pool's effective settings, and the codes that they need. The requested settings are unchanged.
pub(crate) struct Plan {
    pub(crate) in_force: InForce,
    pub(crate) codes: Codes,
}

/// Effective settings of a pool, as shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Standing {
    #[serde(flatten)]
    pub(crate) in_force: InForce,
    /// Why the policy differs from the requested one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_coded: Option<String>,
    /// State of the pool's stand-in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stand_in: Option<StandInStanding>,
}

/// A stand-in, as shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StandInStanding {
    pub(crate) model: String,
    /// Whether an instance serves it.
    pub(crate) served: bool,
    /// Time of its jobs of 1, 2, 4 and 8 rows, relative to a query's at the same speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<[f64; 4]>,
    /// Share of recent predictions that it agreed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agreement: Option<f64>,
    /// Whether the agreement is below the floor, so that clients do not receive its answers.
    pub(crate) withheld: bool,
}

/// Plans a pool's codes and settings, or returns why they are impossible. `magnitude` bounds the values that may be
/// mixed.
pub(crate) fn plan(
    pool: &Pool,
    wished: &PoolSettings,
    bundle: Option<&Bundle>,
    magnitude: f32,
) -> Result<Plan, String> {
    let mut in_force = InForce::as_wished(wished);
    if let Some(most) = pool.max_batch().and_then(NonZeroU16::new) {
        in_force.max_rows = most;
    }
    let deployed = bundle.map(|bundle| &bundle.manifest.deployed);
    let default_answer = deployed.and_then(|deployed| codes::default_answer(deployed, pool.batched));
    in_force.default_answer &= default_answer.is_some();
    let mut codes = Codes { default_answer, ..Codes::default() };
    match wished.policy {
        PolicyKind::None
        | PolicyKind::Once
        | PolicyKind::Equal
        | PolicyKind::Replicate
        | PolicyKind::Hedge => {}
        PolicyKind::ApproximateBackup => {
            let name = wished.backup_model.clone().filter(|name| *name != pool.model.name);
            let name = name.ok_or("it has no backup model: set backup_model")?;
            codes.backup = Some(ModelRef::latest(name));
        }
        PolicyKind::StandIn => {
            codes.stand_in = Some(Arc::new(stand_in(pool, wished, bundle)?));
        }
        PolicyKind::Parm | PolicyKind::ParmPlus => {
            codes.coders = coders(&wished.coding, bundle)?;
            in_force.coding = coding(wished.coding.min_confidence, &codes.coders);
            let arithmetic = codes.coders.values().any(|coder| coder.code.spec().kind.is_arithmetic());
            let range = |name: &str| deployed?.inputs.iter().find(|input| input.name == name)?.range;
            let ranges: Vec<_> = pool.metadata.inputs.iter().map(|input| range(&input.name)).collect();
            codes.guards = Some(Guards::new(&ranges, magnitude, arithmetic));
        }
    }
    Ok(Plan { in_force, codes })
}

/// Chooses the stand-in: the configured model, otherwise the bundle's cheapest.
fn stand_in(pool: &Pool, wished: &PoolSettings, bundle: Option<&Bundle>) -> Result<StandIn, String> {
    let described = bundle.map_or(&[][..], |bundle| &bundle.stand_ins);
    let (model, known) = match &wished.stand_in.model {
        Some(name) if *name == pool.model.name => return Err("it is the stand-in itself".into()),
        Some(name) => {
            (ModelRef::latest(name.clone()), described.iter().find(|known| known.model.name == *name))
        }
        None => {
            let known = described
                .first()
                .ok_or("it has no stand-in: set stand_in.model, or add [[stand_in]] to its bundle")?;
            (reference(&known.model), Some(known))
        }
    };
    let outputs = bundle.iter().flat_map(|bundle| &bundle.manifest.deployed.outputs);
    // The operator may serve another version of a configured model.
    let digest = known.filter(|_| wished.stand_in.model.is_none()).map(|known| known.model.sha256.clone());
    Ok(StandIn {
        model,
        digest,
        calibration: known.and_then(|known| known.calibration),
        min_confidence: wished.stand_in.min_confidence,
        meanings: outputs.map(|output| (output.name.clone(), output.meaning)).collect(),
    })
}

/// Chooses the codes.
fn coders(coding: &CodingSettings, bundle: Option<&Bundle>) -> Result<BTreeMap<usize, Arc<Coder>>, String> {
    let (k, r) = (usize::from(coding.k.get()), usize::from(coding.r.get()));
    let kind = match coding.code {
        Some(kind) => kind,
        None => bundle
            .and_then(|bundle| bundle.best(k, r))
            .map(|entry| entry.parity.code.kind)
            .ok_or_else(|| lack(k, r, bundle))?,
    };
    if let Some(why) = refusal(&CodeSpec::new(kind, k, r)) {
        return Err(why);
    }
    let mut coders: BTreeMap<usize, Arc<Coder>> = BTreeMap::new();
    if let Some(bundle) = bundle {
        // The best come first, so the first of each k stays.
        for entry in bundle.of(kind, r) {
            if let std::collections::btree_map::Entry::Vacant(place) = coders.entry(entry.parity.code.k) {
                let trained = Some((entry.parity.clone(), bundle.manifest.deployed.clone()));
                place.insert(Arc::new(Coder { code: entry.code.clone(), trained }));
            }
        }
    }
    if coders.is_empty() && !kind.needs_bundle() {
        let sizes = if coding.k_choices.is_empty() {
            SIZES.collect()
        } else {
            coding.k_choices.iter().map(|k| k.get()).collect::<Vec<_>>()
        };
        for k in sizes.into_iter().chain([coding.k.get()]).map(usize::from) {
            let code = CodeSpec::new(kind, k, r).build().map_err(|error| error.to_string())?;
            coders.insert(k, Arc::new(Coder { code: Arc::from(code), trained: None }));
        }
    }
    if !coders.contains_key(&k) {
        return Err(lack(k, r, bundle));
    }
    if coding.k_choices.is_empty() {
        coders.retain(|size, _| *size == k || *size <= usize::from(*SIZES.end()));
    } else {
        let choices: Vec<usize> = coding.k_choices.iter().map(|k| usize::from(k.get())).collect();
        if let Some(missing) = choices.iter().find(|choice| !coders.contains_key(choice)) {
            return Err(lack(*missing, r, bundle));
        }
        coders.retain(|size, _| *size == k || choices.contains(size));
    }
    Ok(coders)
}

/// Coding parameters for the dispatcher. The calibrated confidence threshold counts if it is higher than the configured
/// one.
fn coding(min_confidence: Fraction, coders: &BTreeMap<usize, Arc<Coder>>) -> Coding {
    let threshold = coders.values().map(|coder| coder.calibration().threshold).fold(0.0, f32::max);
    let threshold = Fraction::try_from(f64::from(threshold)).unwrap_or_default();
    let least = if threshold > min_confidence { threshold } else { min_confidence };
    Coding::new(coders.values().map(|coder| coder.code.recovery()).collect(), least)
}

/// Why a code is not supported for serving, if so.
fn refusal(code: &CodeSpec) -> Option<String> {
    match code.recovery().needs {
        Needs::AsManyAsMissing | Needs::OneParity => None,
        Needs::AnyOutputs(_) => Some(format!(
            "code {} sends no query as it is, so every answer would be approximate: it can be evaluated, not served; \
             choose another code",
            code.kind
        )),
    }
}

fn lack(k: usize, r: usize, bundle: Option<&Bundle>) -> String {
    let Some(bundle) = bundle else {
        return "it has no bundle: add NAME/parm.toml to the folder of `bundles`, or set coding.code = \
                \"mds\" if the model is linear"
            .into();
    };
    let has: Vec<String> = bundle
        .entries
        .iter()
        .map(|TrainedCode { parity, .. }| {
            format!("{} k={} r={}", parity.code.kind, parity.code.k, parity.code.r)
        })
        .collect();
    let has = if has.is_empty() { "none that are usable".into() } else { has.join(", ") };
    format!("its bundle has no code for k = {k}, r = {r}: it has {has}")
}
