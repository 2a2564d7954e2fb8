//! What is in force in a pool, beside what its operator wished.
//!
//! Settings are wishes. What comes of them depends on what the operator's file does not know: how many rows a model takes,
//! whether there is a default answer, and above all for which codes there are parity models. Whoever knows that (the
//! frontend, when a model or its bundle comes) says what is in force, and the settings stay as they were written; both
//! can be shown. Where nothing is known, as in simulations, settings are taken at their word.

use parm_encoder::{CodeSpec, Needs, Recovery};
use serde::{Deserialize, Serialize};

use super::{BatchSettings, CodingSettings, Fraction, PolicyKind, PoolSettings};

/// Members and parities of a group that loss patterns are judged of: what an [`parm_encoder::Set`] holds.
const MOST: usize = 64;

/// What is in force in a pool where settings may be more than there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// What hides slow and dead instances.
    pub policy: PolicyKind,
    /// How queries are put together into batches.
    pub batch: BatchSettings,
    /// Whether the model's default answer is given when the deadline passes.
    pub default_answer: bool,
    /// How queries are coded.
    pub coding: Coding,
}

/// The codes in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coding {
    /// What each makes good, one for each size of groups, in ascending order. No groups of other sizes are made.
    pub codes: Vec<Recovery>,
    /// Reconstructions below this confidence are not given.
    pub min_confidence: Fraction,
}

impl InForce {
    /// The settings at their word.
    pub fn as_wished(settings: &PoolSettings) -> Self {
        let coded = settings.policy.is_coded();
        Self {
            policy: settings.policy,
            batch: settings.batch.clone(),
            default_answer: settings.default_answer,
            coding: if coded { Coding::as_wished(&settings.coding) } else { Coding::default() },
        }
    }
}

impl Coding {
    fn as_wished(settings: &CodingSettings) -> Self {
        let sizes = settings.k_choices.iter().chain([&settings.k]);
        let codes = sizes.map(|k| recovery(settings, usize::from(k.get())));
        Self::new(codes.collect(), settings.min_confidence)
    }

    /// These codes, of which those that are too large to be judged are left out.
    pub fn new(mut codes: Vec<Recovery>, min_confidence: Fraction) -> Self {
        codes.retain(|code| code.k <= MOST && code.parities <= MOST);
        codes.sort_unstable_by_key(|code| code.k);
        codes.dedup_by_key(|code| code.k);
        Self { codes, min_confidence }
    }

    /// The code for groups of `k`.
    pub(super) fn code(&self, k: u8) -> Option<Recovery> {
        self.codes.iter().copied().find(|code| code.k == usize::from(k))
    }
}

/// What the wished code makes good in groups of `k`; where none is named, any r losses, as most codes do.
fn recovery(settings: &CodingSettings, k: usize) -> Recovery {
    let parities = usize::from(settings.r.get());
    match settings.code {
        Some(kind) => CodeSpec::new(kind, k, parities).recovery(),
        None => Recovery { k, parities, needs: Needs::AsManyAsMissing },
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use parm_encoder::Kind;

    use super::*;

    #[test]
    fn without_more_knowledge_settings_are_taken_at_their_word() {
        let mut settings = PoolSettings { policy: PolicyKind::ParmPlus, ..PoolSettings::default() };
        let sizes = [4, 3, 200, 2].map(|k| NonZeroU8::new(k).unwrap());
        settings.coding.k_choices = sizes.to_vec();
        settings.coding.code = Some(Kind::Slots);
        let in_force = InForce::as_wished(&settings);
        let codes = in_force.coding.codes;
        assert_eq!(codes.iter().map(|code| code.k).collect::<Vec<_>>(), [2, 3, 4], "no set holds 200");
        assert!(codes.iter().all(|code| code.needs == Needs::OneParity && code.parities == 1));
        settings.coding.code = None;
        let any = InForce::as_wished(&settings).coding.code(3);
        assert_eq!(any, Some(Recovery { k: 3, parities: 1, needs: Needs::AsManyAsMissing }));
        settings.policy = PolicyKind::Hedge;
        assert_eq!(InForce::as_wished(&settings).coding.codes, []);
    }
}
