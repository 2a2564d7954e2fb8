//! Training a base model: learning from labels is learning from a teacher who is always sure, in groups of one.

use bytes::Bytes;
use parm_encoder::{CodeSpec, Kind};
use serde::{Deserialize, Serialize};

use super::{Shape, build};
use crate::data::Samples;
use crate::distil::{
    Aim, Augment, Coder, Exam, Lesson, LessonPlan, Set, Split, Targets, largest, predictions,
};
use crate::fit::{self, Epoch, Settings, Surroundings};
use crate::groups::Sampling;
use crate::loss::Scores;
use crate::{Array, Augmentation, Device, Error, Loss, Network};

/// How a base model is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Base {
    /// The architecture: see `parm train base --help`. Default `mlp`.
    pub model: String,
    /// Changes of images between epochs. Default none.
    pub augment: Augmentation,
    /// Rows held out to choose the best epoch. Default 5000, and at most a sixth.
    pub held_out: usize,
    /// The run.
    pub run: Settings,
}

impl Default for Base {
    fn default() -> Self {
        Self {
            model: "mlp".into(),
            augment: Augmentation::default(),
            held_out: 5000,
            run: Settings::default(),
        }
    }
}

/// A trained base model.
#[derive(Clone, Debug)]
pub struct TrainedBase {
    /// The ONNX file.
    pub model: Bytes,
    /// Accuracy on the rows held out; where numbers are predicted, the share of their variance that is explained.
    pub score: f64,
    /// The run's epochs.
    pub history: Vec<Epoch>,
}

/// Trains a base model.
pub fn train(
    samples: &Samples,
    base: &Base,
    device: Device,
    around: Surroundings<'_>,
) -> Result<TrainedBase, Error> {
    let set =
        Set { inputs: samples.inputs.clone(), outputs: truth(samples)?, labels: samples.labels.clone() };
    let (values, classes) = (set.values(), set.labels.is_some());
    let seed = base.run.seed;
    let model = build(&base.model, &Shape { dims: set.dims().to_vec(), outputs: values, seed })?;
    let fingerprint = crate::parity::fingerprint(&["base", &format!("{base:?}")], &set, &[&model]);
    let (train, held_out) = Split::random(set.len(), base.held_out, seed).of(&set);
    let mut coder = Coder::new(&CodeSpec::new(Kind::Sum, 1, 1), set.dims())?;
    let exam = Exam::new(held_out, &mut coder, seed)?;
    let augment = (!base.augment.is_none()).then_some(Augment { how: base.augment, teacher: None });
    let targets = Targets { aim: Aim::Slots(vec![0]), values };
    let plan = LessonPlan {
        sampling: Sampling { k: 1, groups: train.len(), blanks: 0.0, seed },
        batch: base.run.batch,
        loss: if classes { Loss::Kl } else { Loss::Mse },
        temperature: 1.0,
        scores: Scores::Probabilities,
        classes,
    };
    let networks = vec![Network::new(model, device)?];
    let mut lesson = Lesson::new(networks, train, exam, coder, targets, augment, plan)?;
    let history = fit::run(&mut lesson, &base.run, &fingerprint, around)?;
    let (exam, coder, networks) = (&lesson.exam, &lesson.coder, &lesson.networks);
    let marks = if classes { exam.classify(coder, networks)? } else { exam.regress(coder, networks)? };
    Ok(TrainedBase { model: networks[0].export()?, score: marks.degraded, history })
}

/// The fraction of rows that a classifier gets right.
pub fn accuracy(model: &Network, samples: &Samples) -> Result<f64, Error> {
    let labels = samples.labels.as_ref().ok_or(Error::NoLabels)?;
    let said = predictions(model, &samples.inputs)?;
    let values = said.shape()[1];
    let right = said.data().chunks_exact(values).zip(labels).filter(|(said, label)| largest(said) == **label);
    Ok(right.count() as f64 / labels.len().max(1) as f64)
}

/// What a sure teacher would say: one for the row's class, or the numbers to predict.
fn truth(samples: &Samples) -> Result<Array<f32>, Error> {
    if let Some(values) = &samples.values {
        let rows = values.shape()[0];
        let width = values.data().len() / rows.max(1);
        return values.clone().reshape(vec![rows, width]).ok_or(Error::OutputKind);
    }
    let labels = samples.labels.as_ref().ok_or(Error::NoLabels)?;
    let classes = samples.complete_classes()?;
    let mut hot = vec![0.0; labels.len() * classes];
    labels.iter().enumerate().for_each(|(row, &label)| hot[row * classes + label] = 1.0);
    Ok(Array::new(vec![labels.len(), classes], hot).expect("a value for each class"))
}
