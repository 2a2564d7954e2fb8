//! Settings of coding groups.

use std::num::{NonZeroU8, NonZeroU32};

use parm_encoder::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Factor, Fraction};

/// Coding groups and parities, under `parm` and `parm+`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingSettings {
    /// Code of the bundle: `sum`, `weighted`, `tiles`, `slots` or `mds`. `mds` is for linear models, without a bundle.
    /// Default: the most accurate for `k` and `r`.
    // A linear model computes its own parities. In simulations the default is a code that restores any `r` losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub code: Option<Kind>,
    /// Queries of a group. A parity costs one job per `k` queries. Default 2.
    pub k: NonZeroU8,
    /// Other group sizes, under `parm+`. Default: all up to 4 in the bundle.
    pub k_choices: Vec<NonZeroU8>,
    /// Parities of a group: so many of its predictions can be late at a time. Default 1.
    pub r: NonZeroU8,
    /// Grace: time that a reconstruction waits for the prediction, under `parm+` and `approximate-backup`.
    pub grace: GraceSettings,
    /// Least confidence of a reconstruction that is returned; a higher threshold of the bundle counts. Outputs without
    /// confidence (regression) are returned only with 0. Default 0.
    pub min_confidence: Fraction,
    /// Additions of `parm+` to `parm`, which experiments switch off one by one.
    pub parm_plus: ParmPlusSettings,
    /// Instances for parities, under `parm`. Fewer leave more for queries under high load. Default: one of `k + 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_instances: Option<NonZeroU32>,
}

/// Additions of `parm+` to `parm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParmPlusSettings {
    /// Hedges late jobs that no parity can replace. Default true.
    pub hedge: bool,
    /// Lets groups grow with the load, and stops coding without room for parities. Default true.
    pub k_follows_load: bool,
}

/// Grace: the time that a reconstruction waits for the prediction, from the query's arrival on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GraceSettings {
    /// Grace in medians of the time from arrival to prediction. Default 1.25.
    pub factor: Factor,
}

impl Default for CodingSettings {
    fn default() -> Self {
        Self {
            code: None,
            k: const { NonZeroU8::new(2).unwrap() },
            k_choices: Vec::new(),
            r: NonZeroU8::MIN,
            grace: GraceSettings::default(),
            min_confidence: Fraction::percent(0),
            parm_plus: ParmPlusSettings::default(),
            parity_instances: None,
        }
    }
}

impl Default for ParmPlusSettings {
    fn default() -> Self {
        Self { hedge: true, k_follows_load: true }
    }
}

impl Default for GraceSettings {
    fn default() -> Self {
        Self { factor: Factor::percent(125) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_coding_are_rejected() {
        for name in ["colour", "parm_plus.shared_pool"] {
            let error = toml::from_str::<CodingSettings>(&format!("{name} = 1")).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{name}: {error}");
        }
        let read = toml::from_str::<CodingSettings>("[parm_plus]\nhedge = false").unwrap();
        assert!(!read.parm_plus.hedge && read.parm_plus.k_follows_load);
        let written = toml::to_string(&CodingSettings::default()).unwrap();
        assert_eq!(toml::from_str::<CodingSettings>(&written).unwrap(), CodingSettings::default());
    }
}
