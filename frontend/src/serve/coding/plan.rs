//! What a pool's settings come to: which of the bundle's codes are used, and what the dispatcher is to do with them.
//!
//! Settings say what is wanted (a policy, k, r, perhaps a code); a bundle says what there is. Where the two do not meet the
//! reason is told, and nothing is coded: a code that the parity models were not trained for would give wrong answers.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::Arc;

use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::{ModelFile, Signature};
use parm_protocol::ModelRef;

use super::codable::Guards;
use super::coder::Coder;
use super::codes::Codes;
use super::default::DefaultAnswer;
use super::library::{Bundle, Entry};
use crate::dispatch::{Fraction, Needs, PolicyKind, PoolSettings};
use crate::serve::pool::Pool;

/// Group sizes that are used when none are named. Of larger groups more members are late together, and a parity is worth
/// less.
const SIZES: std::ops::RangeInclusive<u8> = 2..=4;

/// The settings of a pool's dispatch, and the codes that they need.
pub(crate) struct Plan {
    pub(crate) settings: PoolSettings,
    pub(crate) codes: Codes,
}

/// What a pool is to do, or why it cannot do as the settings say. `magnitude` is the largest that may be mixed.
pub(crate) fn plan(
    pool: &Pool,
    wanted: &PoolSettings,
    bundle: Option<&Bundle>,
    magnitude: f32,
) -> Result<Plan, String> {
    let mut settings = wanted.clone();
    let deployed = bundle.map(|bundle| &bundle.manifest.deployed);
    let default_answer = deployed.and_then(|deployed| DefaultAnswer::of(deployed, pool.batched));
    settings.default_answer &= default_answer.is_some();
    let mut codes = Codes { default_answer, ..Codes::default() };
    match settings.policy {
        PolicyKind::None | PolicyKind::Equal | PolicyKind::Replicate | PolicyKind::Hedge => {}
        PolicyKind::ApproximateBackup => {
            let name = settings.backup_model.clone().filter(|name| *name != pool.model.name);
            let name = name.ok_or("name a cheaper model with backup_model")?;
            codes.backup = Some(ModelRef::latest(name));
        }
        PolicyKind::Parm | PolicyKind::ParmPlus => {
            codes.coders = coders(&mut settings, bundle)?;
            let arithmetic = codes.coders.values().any(|coder| coder.code.spec().kind != Kind::Slots);
            let range = |name: &str| deployed?.inputs.iter().find(|input| input.name == name)?.range;
            let ranges: Vec<_> = pool.metadata.inputs.iter().map(|input| range(&input.name)).collect();
            codes.guards = Some(Guards::new(&ranges, magnitude, arithmetic));
        }
    }
    Ok(Plan { settings, codes })
}

/// Chooses the codes, and tells the dispatcher of them.
fn coders(
    settings: &mut PoolSettings,
    bundle: Option<&Bundle>,
) -> Result<BTreeMap<usize, Arc<Coder>>, String> {
    let coding = &settings.coding;
    let (k, r) = (usize::from(coding.k.get()), usize::from(coding.r.get()));
    let kind = match coding.code {
        Some(kind) => kind,
        None => bundle
            .and_then(|bundle| bundle.best(k, r))
            .map(|entry| entry.parity.code.kind)
            .ok_or_else(|| lack(k, r, bundle))?,
    };
    if let Some(why) = refusal(kind) {
        return Err(why.to_owned());
    }
    let mut coders: BTreeMap<usize, Arc<Coder>> = BTreeMap::new();
    if let Some(bundle) = bundle {
        // The best come first, so that the first of each k stays.
        for entry in bundle.of(kind, r) {
            if let std::collections::btree_map::Entry::Vacant(place) = coders.entry(entry.parity.code.k) {
                place.insert(Arc::new(trained(entry, bundle)));
            }
        }
    }
    if coders.is_empty() && kind == Kind::Mds {
        let sizes = if coding.k_choices.is_empty() {
            SIZES.collect()
        } else {
            coding.k_choices.iter().map(|k| k.get()).collect::<Vec<_>>()
        };
        for k in sizes.into_iter().chain([coding.k.get()]).map(usize::from) {
            let code = CodeSpec::new(Kind::Mds, k, r).build().map_err(|error| error.to_string())?;
            coders.insert(k, Arc::new(Coder::plain(Arc::from(code))));
        }
    }
    let needs = coders.get(&k).and_then(|coder| coder.needs()).ok_or_else(|| lack(k, r, bundle))?;
    // One rule of recovery for all sizes: the dispatcher has one.
    coders.retain(|_, coder| coder.needs() == Some(needs));
    if coding.k_choices.is_empty() {
        coders.retain(|size, _| *size == k || *size <= usize::from(*SIZES.end()));
    } else {
        let choices: Vec<usize> = coding.k_choices.iter().map(|k| usize::from(k.get())).collect();
        if let Some(missing) = choices.iter().find(|choice| !coders.contains_key(choice)) {
            return Err(lack(*missing, r, bundle));
        }
        coders.retain(|size, _| *size == k || choices.contains(size));
    }
    tell(settings, &coders, needs);
    Ok(coders)
}

fn tell(settings: &mut PoolSettings, coders: &BTreeMap<usize, Arc<Coder>>, needs: Needs) {
    let coding = &mut settings.coding;
    coding.needs = needs;
    coding.k_choices = coders.keys().filter_map(|k| NonZeroU8::new(u8::try_from(*k).ok()?)).collect();
    let threshold = coders.values().map(|coder| coder.calibration.threshold).fold(0.0, f32::max);
    let threshold = Fraction::try_from(f64::from(threshold)).unwrap_or(Fraction::percent(0));
    if threshold > coding.min_confidence {
        coding.min_confidence = threshold;
    }
}

/// The coder of an entry of a bundle.
fn trained(entry: &Entry, bundle: &Bundle) -> Coder {
    let parity = &entry.parity;
    let deployed = &bundle.manifest.deployed;
    let model =
        |file: &ModelFile| ModelRef { name: file.name.clone(), version: Some(file.version.to_string()) };
    let outputs = deployed.outputs.iter();
    Coder {
        models: parity.models.iter().map(model).collect(),
        digests: parity.models.iter().map(|file| file.sha256.clone()).collect(),
        calibration: parity.calibration.unwrap_or_default(),
        meanings: outputs.map(|output| (output.name.clone(), output.meaning)).collect(),
        deployed: Some(Signature::from(deployed)),
        ..Coder::plain(entry.code.clone())
    }
}

/// Why a code is not served.
fn refusal(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Sum | Kind::Weighted | Kind::Tiles | Kind::Slots | Kind::Mds | Kind::Learned => None,
        Kind::Replicate => {
            Some("code replicate only copies queries: choose policy replicate, which needs no groups")
        }
        Kind::Berrut | Kind::Spline => Some(
            "codes berrut and spline send no query as it is, so every answer would be approximate: they can be evaluated, \
             not served; choose another code",
        ),
    }
}

fn lack(k: usize, r: usize, bundle: Option<&Bundle>) -> String {
    let Some(bundle) = bundle else {
        return "there is no bundle for it: put NAME/parm.toml into the folder that `bundles` names, or set coding.code = \
                \"mds\" if the model is linear"
            .into();
    };
    let has: Vec<String> = bundle
        .entries
        .iter()
        .map(|Entry { parity, .. }| format!("{} k={} r={}", parity.code.kind, parity.code.k, parity.code.r))
        .collect();
    let has = if has.is_empty() { "none that can be used".into() } else { has.join(", ") };
    format!("its bundle has no code for k = {k}, r = {r}: it has {has}")
}
