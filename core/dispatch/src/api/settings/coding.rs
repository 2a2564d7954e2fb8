//! What an operator can set about coding groups.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_durations::Millis;
use parm_encoder::Kind;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{DetectionSettings, Factor, Fraction};

/// How queries are grouped, and what is done with the parities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct CodingSettings {
    /// Which of the bundle's codes: `sum`, `weighted`, `tiles`, `slots` or `mds`. `mds` needs no bundle where the model is
    /// linear, as that computes its own parities; with any other model its reconstructions are wrong. Default: the
    /// bundle's most accurate for `k` and `r`; in simulations, one that makes any `r` losses good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub code: Option<Kind>,
    /// Queries per group: a parity costs one job per `k` queries. Default 2.
    pub k: NonZeroU8,
    /// Values of `k` that groups may have besides, under `parm+`. Default: all up to 4 that the bundle has a code of
    /// this kind and `r` for.
    pub k_choices: Vec<NonZeroU8>,
    /// Parities per group: as many predictions of a group can be missing at a time. Default 1.
    pub r: NonZeroU8,
    /// Milliseconds after which a group that is not full is coded as it is, with blank slots. Default 20.
    #[serde(rename = "max_age_ms", with = "Millis")]
    pub max_age: Duration,
    /// How long a reconstruction is held back in favour of the prediction, under `parm+` and `approximate-backup`.
    pub grace: GraceSettings,
    /// Reconstructions below this confidence are not given, and above 0 none of outputs that are no classes, which have
    /// none; the threshold of the bundle's calibration counts where it is higher. Default 0.
    pub min_confidence: Fraction,
    /// What to do for a query whose reconstruction is not confident enough. Default `hedge`.
    pub unsure: Unsure,
    /// Under `parm+`: share of the instances that must stay idle when a parity or a copy starts, so that a query that
    /// comes while it runs finds one free. Rounded to whole instances, so by default none with fewer than 10. Default 0.05.
    pub headroom: Fraction,
    /// What `parm+` adds to `parm`, each of which can be switched off to see what it is worth.
    pub parm_plus: ParmPlusSettings,
    /// How instances whose answers are wrong are found.
    pub detection: DetectionSettings,
    /// Instances kept for parities under `parm`, and under `parm+` without a shared pool. Default: one of `k + 1`, as in
    /// the paper; fewer leave more for queries where the load is high.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_instances: Option<NonZeroU32>,
}

/// What `parm+` adds to `parm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParmPlusSettings {
    /// Under both: groups that are not full (of at least two batches) are coded when they are old; if not, they go
    /// without. Default true.
    pub partial_groups: bool,
    /// Every instance takes queries and parities. If not, 1 of k + 1 takes parities only. Default true.
    pub shared_pool: bool,
    /// Parities wait for instances that have no queries to run. Default true.
    pub parities_yield: bool,
    /// Late jobs that no parity can replace are duplicated, as under `hedge`. Default true.
    pub hedge: bool,
    /// Groups grow with the load, and end where there is no room for parities. Default true.
    pub k_follows_load: bool,
}

/// What to do for a query whose reconstruction is not confident enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unsure {
    /// Go on waiting for the prediction.
    Wait,
    /// Duplicate it now, within the hedge budget.
    #[default]
    Hedge,
}

/// How long a reconstruction is held back, counted from the query's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GraceSettings {
    /// Times the pool's usual time from arrival to prediction.
    pub factor: Factor,
    /// What is usual. Default `median`.
    pub of: Usual,
    /// Milliseconds while too few times are known. Default 100.
    #[serde(rename = "cold_ms", with = "Millis")]
    pub cold: Duration,
}

/// What counts as the usual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Usual {
    /// Half of all are faster.
    #[default]
    Median,
    /// All are faster but the share that the hedge budget names: for service times that vary widely by nature.
    Tail,
}

impl Default for CodingSettings {
    fn default() -> Self {
        Self {
            code: None,
            k: const { NonZeroU8::new(2).unwrap() },
            k_choices: Vec::new(),
            r: NonZeroU8::MIN,
            max_age: Duration::from_millis(20),
            grace: GraceSettings::default(),
            min_confidence: Fraction::percent(0),
            unsure: Unsure::default(),
            headroom: Fraction::percent(5),
            parm_plus: ParmPlusSettings::default(),
            detection: DetectionSettings::default(),
            parity_instances: None,
        }
    }
}

impl Default for ParmPlusSettings {
    fn default() -> Self {
        Self {
            partial_groups: true,
            shared_pool: true,
            parities_yield: true,
            hedge: true,
            k_follows_load: true,
        }
    }
}

impl Default for GraceSettings {
    fn default() -> Self {
        Self { factor: Factor::percent(125), of: Usual::Median, cold: Duration::from_millis(100) }
    }
}

impl Serialize for CodingSettings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

/// Fields that were here once, and what is to be set now.
const MOVED: [(&str, &str); 6] = [
    ("partial_groups", "coding.parm_plus.partial_groups"),
    ("shared_pool", "coding.parm_plus.shared_pool"),
    ("parities_yield", "coding.parm_plus.parities_yield"),
    ("hedge", "coding.parm_plus.hedge"),
    ("k_follows_load", "coding.parm_plus.k_follows_load"),
    ("needs", "coding.code, such as \"slots\" for a code whose parities predict every member by themselves"),
];

/// A field under its old name is an error that says the new one.
impl<'de> Deserialize<'de> for CodingSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from).map_err(|error| {
            let text = error.to_string();
            let moved = MOVED.iter().find(|(old, _)| text.contains(&format!("unknown field `{old}`")));
            moved.map_or(error, |(old, new)| D::Error::custom(format!("coding.{old} is gone: set {new}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_moved_is_refused_with_its_new_place() {
        for (old, new) in MOVED {
            let error = toml::from_str::<CodingSettings>(&format!("{old} = true")).unwrap_err().to_string();
            assert!(error.contains(new), "{old}: {error}");
        }
        let now = toml::from_str::<CodingSettings>("[parm_plus]\nhedge = false").unwrap();
        assert!(!now.parm_plus.hedge && now.parm_plus.shared_pool);
        let unknown = toml::from_str::<CodingSettings>("colour = 1").unwrap_err().to_string();
        assert!(unknown.contains("unknown field `colour`"), "{unknown}");
        let written = toml::to_string(&CodingSettings::default()).unwrap();
        assert_eq!(toml::from_str::<CodingSettings>(&written).unwrap(), CodingSettings::default());
    }
}
