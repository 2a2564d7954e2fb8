//! Compares codes on one deployed model and one data set: runs the models, then judges.

use parm_encoder::Code;
use parm_parity_models::bundle::{Calibration, Meaning};

use super::{Confidence, Evaluation, Groups, Metric, Report, Truth, encode, parity};
use crate::data::Samples;
use crate::{Array, Error};

/// A model that returns its first output for rows, wherever it runs.
pub type Model<'a> = dyn Fn(&Array<f32>) -> Result<Array<f32>, Error> + 'a;

/// Groups per encoding step: bounds the memory for any data set.
const GROUPS: usize = 256;

/// A deployed model on its data.
pub struct Bench<'a> {
    deployed: &'a Model<'a>,
    inputs: &'a Array<f32>,
    outputs: Array<f32>,
    truth: Truth,
    rules: Rules,
    backup: Option<Array<f32>>,
}

/// The rules of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The score of an answer.
    pub metric: Metric,
    /// The meaning of the deployed model's outputs.
    pub meaning: Meaning,
    /// Seed of the groups.
    pub seed: u64,
}

/// A code in the comparison.
#[derive(Clone, Copy)]
pub struct Contender<'a> {
    /// The code.
    pub code: &'a dyn Code,
    /// Its parity models; empty if the deployed model answers the coded queries.
    pub models: &'a [&'a Model<'a>],
    /// The calibration of its reconstructions.
    pub calibration: Calibration,
    /// The order of queries in a group.
    pub order: Order,
}

/// The order of queries in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Random.
    #[default]
    Drawn,
    /// Along a short path through them, which helps codes that interpolate along a curve.
    Path,
}

impl<'a> Bench<'a> {
    /// Runs the deployed model on all rows. Rows without labels are judged by agreement with it.
    pub fn new(deployed: &'a Model<'a>, samples: &'a Samples, rules: Rules) -> Result<Self, Error> {
        let outputs = deployed(&samples.inputs)?;
        let truth = match (&samples.labels, &samples.values) {
            (Some(labels), _) => Truth::Classes(labels.clone()),
            (None, Some(values)) => Truth::Values(values.clone()),
            (None, None) => Truth::deployed(&outputs, rules.metric),
        };
        Self::with(deployed, &samples.inputs, outputs, truth, rules)
    }

    /// Compares with these outputs of the deployed model and this truth.
    pub(crate) fn with(
        deployed: &'a Model<'a>,
        inputs: &'a Array<f32>,
        outputs: Array<f32>,
        truth: Truth,
        rules: Rules,
    ) -> Result<Self, Error> {
        truth.check(rules.metric, &outputs)?;
        Ok(Self { deployed, inputs, outputs, truth, rules, backup: None })
    }

    /// Adds a backup model to the comparison.
    pub fn with_backup(mut self, backup: &Model<'_>) -> Result<Self, Error> {
        self.backup = Some(backup(self.inputs)?);
        Ok(self)
    }

    /// Judges a code.
    pub fn judge(&self, contender: &Contender<'_>) -> Result<Report, Error> {
        let Contender { code, models, calibration, order } = *contender;
        let mut groups = Groups::draw(self.outputs.shape()[0], code.spec().k, self.rules.seed)?;
        if order == Order::Path {
            groups = groups.along_paths(self.inputs);
        }
        let parities = self.answers(code, &groups, models)?;
        parity(&Evaluation {
            code,
            groups: &groups,
            deployed: &self.outputs,
            parities: &parities,
            truth: &self.truth,
            metric: self.rules.metric,
            confidence: Confidence::of(self.rules.meaning, calibration),
            backup: self.backup.as_ref(),
        })
    }

    /// The outputs for all coded queries.
    fn answers(
        &self,
        code: &dyn Code,
        groups: &Groups,
        models: &[&Model<'_>],
    ) -> Result<Vec<Array<f32>>, Error> {
        let coded = code.recovery().parities;
        let expected = if code.spec().kind.has_parity_models() { coded } else { 0 };
        if models.len() != expected {
            return Err(Error::Models { kind: code.spec().kind, expected, actual: models.len() });
        }
        let mut shapes = vec![Vec::new(); coded];
        let mut answers = vec![Vec::new(); coded];
        for part in groups.parts(GROUPS) {
            for (at, queries) in encode(code, &part, self.inputs)?.iter().enumerate() {
                let model = models.get(at).copied().unwrap_or(self.deployed);
                let output = model(queries)?;
                shapes[at] = output.shape().to_vec();
                answers[at].extend(output.into_data());
            }
        }
        let arrays = shapes.into_iter().zip(answers).map(|(mut shape, data)| {
            shape[0] = groups.len();
            let (what, expected, actual) = ("parity outputs", groups.len(), data.len());
            Array::new(shape, data).ok_or(Error::Rows { what, expected, actual })
        });
        arrays.collect()
    }
}
