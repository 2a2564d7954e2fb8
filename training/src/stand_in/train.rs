//! Trains stand-ins, and measures them on rows that no training saw.

use bytes::Bytes;
use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::{Calibration, Meaning, StandInAccuracy, Start};
use parm_parity_models::onnx::rewrite::End;
use parm_parity_models::onnx::{Limits, Model};

use super::StandInRecipe;
use super::outputs::{Evened, evened, evening};
use crate::evaluate::{Metric, Truth, score};
use crate::fit::{Epoch, Surroundings};
use crate::learn::{
    Augment, Learned, Lesson, Marks, Materials, Set, Teacher, copy, ends_in_softmax, fingerprint, hold,
    meaning as graph_meaning, predictions, taught,
};
use crate::{Device, Error, Loss, Network};

/// A trained stand-in.
#[derive(Clone, Debug)]
pub struct TrainedStandIn {
    /// The ONNX file, with the deployed model's inputs and outputs.
    pub model: Bytes,
    /// The marks on held-out rows: the deployed model (A_a) and the stand-in in its place (A_d).
    pub marks: Marks,
    /// The calibration of its answers; `None` unless they are classes.
    pub calibration: Option<Calibration>,
    /// The meaning of the deployed model's output.
    pub meaning: Meaning,
    /// The run's epochs.
    pub history: Vec<Epoch>,
}

/// Trains a stand-in of a recipe.
pub fn train(
    materials: Materials<'_>,
    recipe: &StandInRecipe,
    device: Device,
    around: Surroundings<'_>,
) -> Result<TrainedStandIn, Error> {
    recipe.check()?;
    let deployed = Network::new(copy(materials.graph)?, device)?.taking(materials.samples)?.saying_all()?;
    let teacher: &dyn Teacher = materials.teacher.unwrap_or(&deployed);
    let set = taught(materials, teacher)?;
    let widths = deployed.widths(materials.samples)?;
    let (outputs, values) = (widths.iter().sum(), set.values());
    if outputs != values {
        return Err(Error::Outputs { outputs, values });
    }
    // Several outputs are trained as numbers, whatever their meaning: classes follow from them.
    let are_several = widths.len() > 1;
    let usual = || if are_several { Meaning::Values } else { graph_meaning(materials.graph) };
    let meaning = recipe.meaning.unwrap_or_else(usual);
    let classes = meaning.has_classes() && !are_several;
    hold(&set, classes)?;
    let factors = are_several.then(|| evening(&set.outputs, &widths));
    let evened_teacher = factors.as_ref().map(|factors| Evened { teacher, factors });
    let (teacher, set): (&dyn Teacher, Set) = match &evened_teacher {
        Some(even) => (even, Set { outputs: evened(set.outputs, even.factors), ..set }),
        None => (teacher, set),
    };

    // The loss replaces only a softmax: any other end of the graph is trained as it is.
    let is_softmax = meaning == Meaning::Probabilities && !are_several && ends_in_softmax(materials.graph);
    let end = if is_softmax { End::Raw } else { End::AsDeployed };
    let is_raw = are_several || is_softmax || meaning != Meaning::Probabilities;
    let usual = if is_raw && classes { Loss::Kl } else { Loss::Mse };
    let loss = recipe.loss.unwrap_or(usual);
    if are_several && loss == Loss::Kl {
        return Err(Error::Setting {
            message: "kl needs a single output of classes: use mse or huber".into(),
        });
    }
    let student = Network::new(recipe.derive(materials.graph, end)?, device)?;
    // Without gradients, a row needs less memory than in a step.
    let student =
        student.taking(materials.samples)?.saying_all()?.running(recipe.run.batch.saturating_mul(4));
    let student = match &factors {
        Some(factors) => student.scaled(factors),
        None => student,
    };
    let fingerprint = fingerprint(&["stand-in", &format!("{recipe:?}")], &set, &[materials.graph]);
    let lesson = Lesson {
        networks: vec![student],
        set,
        code: CodeSpec::new(Kind::Sum, 1, 1),
        held_out: recipe.held_out,
        passes: 1.0,
        blanks: 0.0,
        loss,
        temperature: recipe.temperature,
        meaning,
        reconstructed: if is_raw { Meaning::Logits } else { Meaning::Probabilities },
        classes,
        taught: recipe.start == Start::Deployed,
        augment: (!recipe.augment.is_none())
            .then_some(Augment { how: recipe.augment, teacher: Some(teacher) }),
        run: &recipe.run,
        fingerprint,
    };
    let learned = lesson.learn(around)?;
    let served = recipe.derive(materials.graph, End::AsDeployed).map_err(Error::from);
    let model = learned.served([served], device)?.remove(0);
    let Learned { marks, calibration, history, .. } = learned;
    Ok(TrainedStandIn { model, marks, calibration, meaning, history })
}

/// The scores of a stand-in and of the deployed model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The score of an answer.
    pub metric: Metric,
    /// The deployed model's score; perfect without labels.
    pub deployed: f64,
    /// The stand-in's score.
    pub stand_in: f64,
    /// Share of the rows on which both agree; `None` if answers are numbers.
    pub agreement: Option<f64>,
}

impl Standing {
    /// The form that a bundle stores; `None` for errors, which are not fractions of 1.
    pub fn accuracy(&self) -> Option<StandInAccuracy> {
        let Self { metric, deployed, stand_in, .. } = *self;
        metric.ascends().then(|| StandInAccuracy { metric: metric.to_string(), deployed, stand_in })
    }
}

/// Runs both models on every row. `metric` is the score of an answer; by default the highest score of a classifier.
pub fn examine(
    materials: Materials<'_>,
    (stand_in, meaning): (&Bytes, Meaning),
    metric: Option<Metric>,
    device: Device,
) -> Result<Standing, Error> {
    let deployed = Network::new(copy(materials.graph)?, device)?.taking(materials.samples)?.saying_all()?;
    let set = taught(materials, materials.teacher.unwrap_or(&deployed))?;
    let are_several = deployed.widths(materials.samples)?.len() > 1;
    if are_several && metric.is_some_and(|metric| metric != Metric::AbsoluteError) {
        let message = "several outputs are judged as numbers: use --metric absolute-error, or none".into();
        return Err(Error::Setting { message });
    }
    let classes = meaning.has_classes() && !are_several;
    hold(&set, classes)?;
    let model = Model::from_bytes(stand_in.clone(), &Limits::default())?;
    let network = Network::new(model, device)?.taking(materials.samples)?.saying_all()?;
    let answers = predictions(&network, &set.inputs)?;
    let metric = metric.unwrap_or(if classes { Metric::TOP_1 } else { Metric::AbsoluteError });
    let truth = Truth::of(materials.samples, classes, &set.outputs, metric);
    let said = Truth::deployed(&set.outputs, Metric::TOP_1);
    Ok(Standing {
        metric,
        deployed: score(metric, &set.outputs, &truth)?,
        stand_in: score(metric, &answers, &truth)?,
        agreement: classes.then(|| score(Metric::TOP_1, &answers, &said)).transpose()?,
    })
}
