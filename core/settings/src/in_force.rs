//! Effective settings of a pool, next to those that the operator configured.
//!
//! The effect of settings depends on facts that the operator's file does not contain: the rows that a model takes,
//! whether it has a default answer, and for which codes parity models exist. The frontend knows them when a model
//! or a bundle loads and reports the effective settings. The configured settings stay as they were written, so
//! both can be shown. In simulations no such facts exist, and settings take effect as written.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use parm_encoder::{CodeSpec, Needs, Recovery};
use serde::{Deserialize, Serialize};

use super::{BatchSettings, CodingSettings, Fraction, PolicyKind, PoolSettings};

/// Most members and most parities of a group: the capacity of an [`parm_encoder::Set`].
const MOST: usize = 64;

/// The effective settings of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// The redundancy policy.
    pub policy: PolicyKind,
    /// How queries are batched.
    pub batch: BatchSettings,
    /// The largest batch that the model takes.
    pub max_rows: NonZeroU16,
    /// Whether the model's default answer is given when the deadline passes.
    pub default_answer: bool,
    /// How queries are coded.
    pub coding: Coding,
    /// The largest batch that its stand-in takes.
    #[serde(skip, default = "any_rows")]
    pub stand_in_rows: NonZeroU16,
    /// Files of the stand-in, or its versions where the files are unknown: another stand-in may have the same name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stand_in_files: BTreeSet<String>,
}

/// The effective codes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coding {
    /// One code for each size of groups, in ascending order. Groups of other sizes are not made.
    pub codes: Vec<Recovery>,
    /// Reconstructions below this confidence are not given.
    pub min_confidence: Fraction,
}

fn any_rows() -> NonZeroU16 {
    NonZeroU16::MAX
}

impl InForce {
    /// The settings as written.
    pub fn as_wished(settings: &PoolSettings) -> Self {
        let coded = settings.policy.is_coded();
        Self {
            policy: settings.policy,
            batch: settings.batch.clone(),
            max_rows: any_rows(),
            stand_in_rows: any_rows(),
            default_answer: settings.default_answer,
            coding: if coded { Coding::as_wished(&settings.coding) } else { Coding::default() },
            stand_in_files: BTreeSet::new(),
        }
    }
}

impl Coding {
    fn as_wished(settings: &CodingSettings) -> Self {
        let sizes = settings.k_choices.iter().chain([&settings.k]);
        let codes = sizes.map(|k| recovery(settings, usize::from(k.get())));
        Self::new(codes.collect(), settings.min_confidence)
    }

    /// These codes, without those that are too large for a [`parm_encoder::Set`].
    pub fn new(mut codes: Vec<Recovery>, min_confidence: Fraction) -> Self {
        codes.retain(|code| code.k <= MOST && code.parities <= MOST);
        codes.sort_unstable_by_key(|code| code.k);
        codes.dedup_by_key(|code| code.k);
        Self { codes, min_confidence }
    }

    /// The code for groups of `k`.
    pub fn code(&self, k: u8) -> Option<Recovery> {
        self.codes.iter().copied().find(|code| code.k == usize::from(k))
    }
}

/// The losses that the configured code recovers in groups of `k`. Without a configured code these are any `r`
/// losses, as for most codes.
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
