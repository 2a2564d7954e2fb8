//! What an operator can set about coding groups.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_encoder::Kind;
use serde::{Deserialize, Serialize};

use super::{DetectionSettings, Fraction, duration};

/// How queries are grouped, and what is done with the parities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodingSettings {
    /// Which of the bundle's codes: `sum`, `weighted`, `tiles`, `slots` or `mds`. `mds` needs no bundle where the model is
    /// linear, as that computes its own parities; with any other model its reconstructions are wrong. Default: the
    /// bundle's most accurate for `k` and `r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Kind>,
    /// Queries per group: a parity costs one job per `k` queries. Default 2.
    pub k: NonZeroU8,
    /// Values of `k` that groups may have besides, under `parm+`. Default: all up to 4 that the bundle has a code of
    /// this kind and `r` for.
    pub k_choices: Vec<NonZeroU8>,
    /// Parities per group: as many predictions of a group can be missing at a time. Default 1.
    pub r: NonZeroU8,
    /// What the decoder needs; when serving, what the code says counts. Default `any-k`.
    pub needs: Needs,
    /// Milliseconds after which a group that is not full is coded as it is, with blank slots. Default 20.
    #[serde(rename = "max_age_ms", with = "duration::millis")]
    pub max_age: Duration,
    /// Code groups that are not full (of at least two batches) when they are old; if not, they go without. Default true.
    pub partial_groups: bool,
    /// How long a reconstruction is held back in favour of the prediction, under `parm+` and `approximate-backup`.
    pub grace: GraceSettings,
    /// Reconstructions below this confidence are not given, and above 0 none of outputs that are no classes, which have
    /// none; the threshold of the bundle's calibration counts where it is higher. Default 0.
    pub min_confidence: Fraction,
    /// What to do for a query whose reconstruction is not confident enough. Default `hedge`.
    pub unsure: Unsure,
    /// Under `parm+`: every instance takes queries and parities. If not, 1 of k + 1 takes parities only. Default true.
    pub shared_pool: bool,
    /// Under `parm+`: parities wait for instances that have no queries to run. Default true.
    pub parities_yield: bool,
    /// Under `parm+`: share of the instances that must stay idle when a parity or a copy starts, so that a query that
    /// comes while it runs finds one free. Rounded: by default none of fewer than 10 instances. Default 0.05.
    pub headroom: Fraction,
    /// Under `parm+`: late jobs that no parity can replace are duplicated, as under `hedge`. Default true.
    pub hedge: bool,
    /// Under `parm+`: groups grow with the load, and end where there is no room for parities. Default true.
    pub k_follows_load: bool,
    /// How instances whose answers are wrong are found.
    pub detection: DetectionSettings,
    /// Instances kept for parities under `parm`, and under `parm+` without a shared pool. Default: one of `k + 1`, as in
    /// the paper; fewer leave more for queries where the load is high.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_instances: Option<NonZeroU32>,
}

/// What a decoder needs to recover a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Any `k` of the `k + r` outputs of a group, as sum, weighted and MDS codes do.
    #[default]
    AnyK,
    /// One parity output, whose slots are predictions already.
    OneParity,
}

/// What to do for a query whose reconstruction is not confident enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsure {
    /// Go on waiting for the prediction.
    Wait,
    /// Duplicate it now, within the hedge budget.
    #[default]
    Hedge,
}

/// How long a reconstruction is held back, counted from the query's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraceSettings {
    /// Times the pool's usual time from arrival to prediction. Default 1.25.
    pub factor: f64,
    /// What is usual. Default `median`.
    pub of: Usual,
    /// Milliseconds while too few times are known. Default 100.
    #[serde(rename = "cold_ms", with = "duration::millis")]
    pub cold: Duration,
}

/// What counts as the usual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
            k: NonZeroU8::new(2).expect("positive"),
            k_choices: Vec::new(),
            r: NonZeroU8::MIN,
            needs: Needs::default(),
            max_age: Duration::from_millis(20),
            partial_groups: true,
            grace: GraceSettings::default(),
            min_confidence: Fraction::percent(0),
            unsure: Unsure::default(),
            shared_pool: true,
            parities_yield: true,
            headroom: Fraction::percent(5),
            hedge: true,
            k_follows_load: true,
            detection: DetectionSettings::default(),
            parity_instances: None,
        }
    }
}

impl Default for GraceSettings {
    fn default() -> Self {
        Self { factor: 1.25, of: Usual::Median, cold: Duration::from_millis(100) }
    }
}
