//! Settings of stand-ins: cheaper models that answer late queries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Factor, Fraction};

/// Stand-ins, under `stand-in`: a cheaper model answers late queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StandInSettings {
    /// Name of the stand-in. Its tensors are those of the deployed model. Default: the cheapest of the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Age of a late query, in medians of the usual time. Its stand-in's answer is given from then on. Default 1.15.
    // A query that waits for an instance is late as soon as it is clear that it will be.
    pub late_factor: Factor,
    /// Largest share of approximate answers in any minute, and 20 in any case. At the bound, late queries wait for predictions; no
    /// query fails. Default 0.05.
    pub bound: Fraction,
    /// Hedges late jobs that no stand-in can replace, unless queries wait for instances or a stand-in's answer comes sooner. Only
    /// tests of stand-ins alone do without.
    #[serde(skip)]
    pub hedge: bool,
    /// Least confidence of an answer that is returned; a higher threshold of the bundle counts. Stand-ins without a bundle have
    /// no confidence and need 0. Default 0.
    pub min_confidence: Fraction,
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
    /// Ejects instances whose predictions disagree, if the others can bear the load. Otherwise they are only reported. Default
    /// true.
    pub eject: bool,
}

impl Default for StandInSettings {
    fn default() -> Self {
        Self {
            model: None,
            late_factor: Factor::percent(115),
            bound: Fraction::percent(5),
            hedge: true,
            min_confidence: Fraction::percent(0),
            in_outage: InOutage::default(),
            agreement: AgreementSettings::default(),
        }
    }
}

impl Default for AgreementSettings {
    fn default() -> Self {
        Self { floor: Fraction::percent(80), eject: true }
    }
}
