//! Settings of stand-ins: cheaper models that answer late queries.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::redundancy::UsualBudget;
use super::{BudgetSettings, Factor, Fraction, GraceSettings, Unsure, Usual};

/// The budget of late queries.
type Late = UsualBudget<10, 100>;

/// Stand-ins, under `stand-in`: a cheaper model answers late queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StandInSettings {
    /// Name of the stand-in. Its tensors are those of the deployed model. Default: the cheapest of the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Time of a job of one row as a share of a query's, until it is measured. Default 0.5.
    pub cost: Factor,
    /// Runs stand-ins of queries that are not late on idle instances. Default true.
    pub spare: bool,
    /// Utilisation by queries up to which these run. With more, the next query would find no idle instance.
    #[serde(skip)]
    pub spare_up_to: Fraction,
    /// Runs stand-ins of late queries, before all waiting work. Default true.
    pub late: bool,
    /// Age of a late query, in medians of the usual time. Default 1.15.
    // A query that waits for an instance is late as soon as it is clear that it will be.
    pub late_factor: Factor,
    /// Budget of stand-ins for late queries, in runs of the deployed model. Unused ones are saved up to 100.
    #[serde(deserialize_with = "Late::deserialize")]
    pub late_budget: BudgetSettings,
    /// Largest number of rows in a job: workers do not measure the cost of more.
    #[serde(skip)]
    pub max_rows: NonZeroU8,
    /// Grace: time that a stand-in's answer waits for the prediction.
    pub grace: GraceSettings,
    /// Largest share of approximate answers. At the bound, answers wait longer for predictions; no query fails. Default 0.05.
    pub bound: Fraction,
    /// Number of latest answers over which that share is counted. In any 1,000 answers there may be 20 more. Default 50000.
    #[serde(with = "Whole::<1, 10_000_000>")]
    pub bound_window: NonZeroU32,
    /// Hedges late jobs that no stand-in can replace. Default true.
    // Not while queries wait for instances, nor if a stand-in's answer comes sooner.
    pub hedge: bool,
    /// Least confidence of an answer that is returned; a higher threshold of the bundle counts. Stand-ins without a bundle have
    /// no confidence and need 0. Default 0.
    pub min_confidence: Fraction,
    /// Action for a query whose stand-in has too little confidence. Default `hedge`.
    pub unsure: Unsure,
    /// Answers from stand-ins on instances without the deployed model while no instance with it answers: `answer`, or
    /// `fail` for none. The bound does not count them. Default `answer`.
    // Clients with a bound of their own, or that accept only exact answers, get none.
    pub in_outage: InOutage,
    /// Comparison of stand-ins with predictions.
    pub agreement: AgreementSettings,
}

/// Answers while no instance with the deployed model answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InOutage {
    /// Stand-ins answer.
    #[default]
    Answer,
    /// Queries wait for an instance, and fail.
    Fail,
}

/// Comparison of predictions with their stand-ins, and its consequences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgreementSettings {
    /// Least agreement with predictions at which stand-ins answer. Default 0.8.
    pub floor: Fraction,
    /// Agreement above the floor at which stand-ins answer again, so that chance does not switch them on and off.
    #[serde(skip)]
    pub recovery: Fraction,
    /// Latest comparisons that count: an agreement of 0.8 is then known to 0.013 (standard error).
    #[serde(skip)]
    pub window: NonZeroU32,
    /// Probability of a false alarm for each answer: about one in a hundred million.
    #[serde(skip)]
    pub significance: Fraction,
    /// Share of wrong answers that the test assumes of a faulty instance.
    #[serde(skip)]
    pub wrong_share: Fraction,
    /// Comparisons of the other instances before an instance is suspected. They show how often stand-ins disagree with right
    /// answers.
    #[serde(skip)]
    pub min_samples: NonZeroU32,
    /// Ejects instances whose predictions disagree, if the others can bear the load. Otherwise they are only reported. Default
    /// true.
    pub eject: bool,
    /// Time after which an ejected suspect is probed and returns, half suspected. A new fault is found within it.
    #[serde(skip)]
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
            late_budget: Late::SETTINGS,
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
            in_outage: InOutage::default(),
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
