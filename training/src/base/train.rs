//! Trains base models: labels act as a teacher that is always certain, in groups of one.

use bytes::Bytes;
use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::{self, Design, End, Weights};
use serde::{Deserialize, Serialize};

use super::{Shape, build};
use crate::data::Samples;
use crate::fit::{Epoch, Settings, Surroundings};
use crate::learn::{
    Augment, Learned, Lesson, Set, copy, ends_in_softmax, fingerprint, largest, last, predictions,
};
use crate::{Array, Augmentation, Device, Error, Loss, Network};

/// Maximum size in bytes of the targets, one number per row and class.
const MOST_TARGET_BYTES: u64 = 4 << 30;

/// Settings for the training of a base model.
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
    /// Accuracy on the held-out rows; for numbers, the explained share of their variance.
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
    base.check()?;
    let set = told(samples, None)?;
    let shape = Shape { dims: set.dims().to_vec(), outputs: set.values(), seed: base.run.seed };
    let model = build(&base.model, &shape)?;
    let fingerprint = fingerprint(&["base", &format!("{base:?}")], &set, &[&model]);
    let network = Network::new(model, device)?.taking(samples)?;
    let learned = base.lesson(network, set, loss(samples), false, fingerprint).learn(around)?;
    let Learned { networks, marks, history, .. } = learned;
    Ok(TrainedBase { model: networks[0].export()?, score: marks.degraded, history })
}

/// Continues the training of a graph from its weights; a softmax at its end is kept.
pub fn tune(
    samples: &Samples,
    base: &Base,
    graph: &Model,
    device: Device,
    around: Surroundings<'_>,
) -> Result<TrainedBase, Error> {
    base.check()?;
    // External weights belong to the fingerprint of a run.
    let graph = &copy(graph)?;
    let ending = |end| rewrite::derive(graph, &Design::single(end, Weights::Deployed));
    // The loss replaces only a softmax over classes: any other end of the graph is trained as it is.
    let is_softmax = ends_in_softmax(graph) && samples.values.is_none();
    let end = if is_softmax { End::Raw } else { End::AsDeployed };
    let network = Network::new(ending(end)?, device)?.taking(samples)?;
    let set = told(samples, Some(width(&network, samples)?))?;
    let makes_shares = |op: &str| op.ends_with("Sigmoid") || op == "Softmax";
    let is_bounded = !is_softmax && last(graph).is_some_and(|op| makes_shares(&op));
    let loss = if is_bounded { Loss::Mse } else { loss(samples) };
    let words = ["tuned", &format!("{base:?}"), &format!("{:?}", samples.parts)];
    let fingerprint = fingerprint(&words, &set, &[graph]);
    let learned = base.lesson(network, set, loss, true, fingerprint).learn(around)?;
    let model = learned.served([ending(End::AsDeployed).map_err(Error::from)], device)?.remove(0);
    Ok(TrainedBase { model, score: learned.marks.degraded, history: learned.history })
}

/// The length of a network's output row; with labels, the number of classes.
fn width(network: &Network, samples: &Samples) -> Result<usize, Error> {
    let said = network.say(samples.inputs.range(0, samples.len().min(1)))?.shape();
    let dims = said.get(1..).unwrap_or_default();
    if dims.len() != 1 && samples.values.is_none() {
        return Err(Error::ClassDims { dims: dims.to_vec() });
    }
    Ok(dims.iter().product())
}

fn loss(samples: &Samples) -> Loss {
    if samples.labels.is_some() { Loss::Kl } else { Loss::Mse }
}

impl Base {
    fn check(&self) -> Result<(), Error> {
        self.augment.check()?;
        self.run.check()
    }

    fn lesson(
        &self,
        network: Network,
        set: Set,
        loss: Loss,
        taught: bool,
        fingerprint: String,
    ) -> Lesson<'_> {
        Lesson {
            networks: vec![network],
            code: CodeSpec::new(Kind::Sum, 1, 1),
            held_out: self.held_out,
            passes: 1.0,
            blanks: 0.0,
            loss,
            temperature: 1.0,
            meaning: Meaning::Probabilities,
            reconstructed: Meaning::Logits,
            classes: set.labels.is_some(),
            set,
            taught,
            augment: (!self.augment.is_none()).then_some(Augment { how: self.augment, teacher: None }),
            run: &self.run,
            fingerprint,
        }
    }
}

/// The accuracy of a classifier.
pub fn accuracy(model: &Network, samples: &Samples) -> Result<f64, Error> {
    let labels = samples.labels.as_ref().ok_or(Error::NoLabels)?;
    let said = predictions(model, &samples.inputs)?;
    let values = said.shape()[1];
    let right = said.data().chunks_exact(values).zip(labels).filter(|(said, label)| largest(said) == **label);
    Ok(right.count() as f64 / labels.len().max(1) as f64)
}

/// The rows with a certain teacher's answers, for a network with this many outputs if the number is known already.
fn told(samples: &Samples, outputs: Option<usize>) -> Result<Set, Error> {
    if let (Some(classes), Some(labels)) = (outputs, &samples.labels)
        && let Some(row) = labels.iter().position(|&label| label >= classes)
    {
        return Err(Error::Label { row, label: labels[row], classes });
    }
    let set = Set {
        inputs: samples.inputs.clone(),
        outputs: truth(samples, outputs)?,
        labels: samples.labels.clone(),
    };
    match outputs {
        Some(outputs) if outputs != set.values() => Err(Error::Outputs { outputs, values: set.values() }),
        _ => Ok(set),
    }
}

/// A one-hot row for the class, or the numbers to predict. A network may have more classes than the examples.
fn truth(samples: &Samples, outputs: Option<usize>) -> Result<Array<f32>, Error> {
    if let Some(values) = &samples.values {
        let rows = values.shape()[0];
        let width = values.data().len() / rows.max(1);
        return values.clone().reshape(vec![rows, width]).ok_or(Error::OutputKind);
    }
    let labels = samples.labels.as_ref().ok_or(Error::NoLabels)?;
    let classes = match outputs {
        Some(outputs) => outputs,
        None => samples.complete_classes()?,
    };
    let bytes = (labels.len() as u64).saturating_mul(classes as u64).saturating_mul(4);
    if bytes > MOST_TARGET_BYTES {
        return Err(Error::TooManyClasses { rows: labels.len(), classes, limit: MOST_TARGET_BYTES });
    }
    let mut hot = vec![0.0; labels.len() * classes];
    labels.iter().enumerate().for_each(|(row, &label)| hot[row * classes + label] = 1.0);
    Ok(Array::new(vec![labels.len(), classes], hot).expect("a value for each class"))
}
