//! Trains stand-ins.

use bytes::Bytes;
use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::{Calibration, Meaning, Start};
use parm_parity_models::onnx::rewrite::End;

use super::StandInRecipe;
use super::outputs::{Evened, evened, evening};
use crate::distil::{Aim, Augment, Coder, Exam, Lesson, LessonPlan, Marks, Set, Split, Targets, Teacher};
use crate::fit::{self, Epoch, Surroundings};
use crate::groups::Sampling;
use crate::loss::Scores;
use crate::parity::{
    Materials, calibrate, copy, ends_in_softmax, fingerprint, finished, hold, meaning as graph_meaning,
    taught,
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

    let seed = recipe.run.seed;
    // The loss replaces only a softmax: any other end of the graph is trained as it is.
    let (end, scores) = match meaning {
        _ if are_several => (End::AsDeployed, Scores::Logits),
        Meaning::Probabilities if ends_in_softmax(materials.graph) => (End::Raw, Scores::Logits),
        Meaning::Probabilities => (End::AsDeployed, Scores::Probabilities),
        _ => (End::AsDeployed, Scores::Logits),
    };
    let loss = match scores {
        Scores::Logits if are_several => recipe.loss.unwrap_or(Loss::Mse),
        Scores::Logits => recipe.loss(meaning),
        Scores::Probabilities => recipe.loss.unwrap_or(Loss::Mse),
    };
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
    let (train, held_out) = Split::random(set.len(), recipe.held_out, seed).of(&set);
    let mut coder = Coder::new(&CodeSpec::new(Kind::Sum, 1, 1), set.dims())?;
    let exam = Exam::new(held_out, &mut coder, seed)?;
    let plan = LessonPlan {
        sampling: Sampling { k: 1, groups: train.len(), blanks: 0.0, seed },
        batch: recipe.run.batch,
        loss,
        temperature: recipe.temperature,
        scores: if meaning == Meaning::Probabilities { Scores::Probabilities } else { Scores::Logits },
        classes,
        taught: recipe.start == Start::Deployed,
    };
    drop(set);
    let targets = Targets { aim: Aim::Slots(vec![0]), values };
    let augment =
        (!recipe.augment.is_none()).then_some(Augment { how: recipe.augment, teacher: Some(teacher) });
    let mut lesson = Lesson::new(vec![student], train, exam, coder, targets, augment, plan)?;
    let history = fit::run(&mut lesson, &recipe.run, &fingerprint, around)?;

    let (exam, coder) = (&lesson.exam, &lesson.coder);
    let marks = match classes {
        true => exam.classify(coder, &lesson.networks)?,
        false => exam.regress(coder, &lesson.networks)?,
    };
    let calibration = if classes { Some(calibrate(exam, coder, &lesson.networks, scores)?) } else { None };
    let served = std::iter::once(recipe.derive(materials.graph, End::AsDeployed).map_err(Error::from));
    let model = finished(&lesson.networks, served, device)?.remove(0);
    Ok(TrainedStandIn { model, marks, calibration, meaning, history })
}
