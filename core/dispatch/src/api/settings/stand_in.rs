//! What an operator can set about stand-ins: cheaper models that answer late queries.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_durations::{Millis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BudgetSettings, Factor, Fraction, GraceSettings, Unsure, Usual};

/// When stand-ins run, and when their answers are given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StandInSettings {
    /// The stand-in, by name: it takes and gives the same tensors as the deployed model. Default: the bundle's cheapest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Time of a job of one row as a share of a query's, until a worker has measured it or enough were seen. Default 0.5.
    pub cost: Factor,
    /// Run stand-ins of queries that are not late too, where instances are idle. Default true.
    pub spare: bool,
    /// Share of the pool that queries may keep busy for spare stand-ins to run. Default 0.9.
    pub spare_up_to: Fraction,
    /// Run stand-ins of late queries, before everything that waits. Default true.
    pub late: bool,
    /// A query is late this many medians of the pool's usual time after its arrival; one that waits for an instance, as soon
    /// as it is clear that it will be. Default 1.15.
    pub late_factor: Factor,
    /// Work on late queries, in the time of a query on the deployed model, per query. Default: `ratio` 0.1, `burst` 100.
    pub late_budget: BudgetSettings,
    /// Most rows of a job. Default 8.
    pub max_rows: NonZeroU8,
    /// How long an answer is held back in favour of the prediction. Default 1.15 medians.
    pub grace: GraceSettings,
    /// Most answers that may be approximate, as a share of all. It is kept by holding them back for longer, never by failing
    /// a query. Default 0.05.
    pub bound: Fraction,
    /// The answers over which that share is counted. Default 50000.
    #[serde(with = "Whole::<1, 10_000_000>")]
    pub bound_window: NonZeroU32,
    /// Duplicate late jobs that no stand-in can replace, as under `hedge`: not while queries wait for instances, nor where a
    /// stand-in's answer comes sooner. Default true.
    pub hedge: bool,
    /// Answers below this confidence are not given; the threshold of the bundle's calibration counts where it is higher. Answers of
    /// a stand-in that no bundle describes have no confidence: above 0 none of them is given, and the log warns of it. Default 0.
    pub min_confidence: Fraction,
    /// What to do for a query whose stand-in is not confident enough. Default `hedge`.
    pub unsure: Unsure,
    /// What follows from how often stand-ins agree with predictions.
    pub agreement: AgreementSettings,
}

/// Predictions are compared with their stand-ins wherever both are in. What follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgreementSettings {
    /// Below this agreement clients are given no stand-in's answer. Default 0.8.
    pub floor: Fraction,
    /// Agreement above the floor at which they are again. Default 0.02.
    pub recovery: Fraction,
    /// Latest comparisons that count. Default 1000.
    #[serde(with = "Whole::<1, 10_000_000>")]
    pub window: NonZeroU32,
    /// Chance that an answer of an instance that is well raises a false alarm, about. Default 1e-8.
    pub significance: Fraction,
    /// An instance is looked for that gets at least this share of its answers wrong. Default 0.5.
    pub wrong_share: Fraction,
    /// Comparisons of the other instances before anybody is suspected: how often stand-ins are wrong about right answers is
    /// learned from them. Default 200.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub min_samples: NonZeroU32,
    /// Take suspects out of service, where the others can do without them. If not, they are only reported. Default true.
    pub eject: bool,
    /// Milliseconds after which an ejected suspect is probed and given another chance, half suspected already. Default
    /// 60000.
    #[serde(rename = "quarantine_ms", with = "Millis")]
    pub quarantine: Duration,
}

impl Default for StandInSettings {
    fn default() -> Self {
        Self {
            model: None,
            cost: Factor::percent(50),
            spare: true,
            spare_up_to: Fraction::percent(90),
            late: true,
            late_factor: Factor::percent(115),
            late_budget: BudgetSettings { ratio: Fraction::percent(10), burst: 100 },
            max_rows: const { NonZeroU8::new(8).unwrap() },
            grace: GraceSettings {
                factor: Factor::percent(115),
                of: Usual::Median,
                cold: Duration::from_millis(100),
            },
            bound: Fraction::percent(5),
            bound_window: const { NonZeroU32::new(50_000).unwrap() },
            hedge: true,
            min_confidence: Fraction::percent(0),
            unsure: Unsure::default(),
            agreement: AgreementSettings::default(),
        }
    }
}

impl Default for AgreementSettings {
    fn default() -> Self {
        Self {
            floor: Fraction::percent(80),
            recovery: Fraction::percent(2),
            window: const { NonZeroU32::new(1000).unwrap() },
            significance: Fraction::billionths(10),
            wrong_share: Fraction::percent(50),
            min_samples: const { NonZeroU32::new(200).unwrap() },
            eject: true,
            quarantine: Duration::from_secs(60),
        }
    }
}
