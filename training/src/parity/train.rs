//! Trains the parity models of one code.

use bytes::Bytes;
use parm_encoder::CodeSpec;
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::rewrite::End;
use parm_parity_models::onnx::{Limits, Model};

use super::ParityRecipe;
use crate::evaluate::{self, Confidence, Evaluation, Metric, Report, Truth};
use crate::fit::{Epoch, Surroundings};
use crate::groups::{Groups, encode};
use crate::learn::{
    Augment, Learned, Lesson, Marks, Materials, Scores, Teacher, copy, fingerprint, hold,
    meaning as graph_meaning, predictions, taught,
};
use crate::{Array, Device, Error, Network};

/// Trained parity models.
#[derive(Clone, Debug)]
pub struct TrainedParities {
    /// Their code.
    pub code: CodeSpec,
    /// The ONNX files, one per parity.
    pub models: Vec<Bytes>,
    /// The marks on held-out groups.
    pub marks: Marks,
    /// The calibration of reconstructions; `None` unless answers are classes.
    pub calibration: Option<Calibration>,
    /// The meaning of the deployed model's output.
    pub meaning: Meaning,
    /// The run's epochs.
    pub history: Vec<Epoch>,
    /// Rows that groups were drawn from.
    pub samples: usize,
    /// Groups in an epoch.
    pub groups: usize,
}

/// Trains the parity models of a recipe.
pub fn train(
    materials: Materials<'_>,
    recipe: &ParityRecipe,
    device: Device,
    around: Surroundings<'_>,
) -> Result<TrainedParities, Error> {
    recipe.check()?;
    let deployed = Network::new(copy(materials.graph)?, device)?;
    deployed.accepts(&materials.samples.inputs)?;
    let teacher: &dyn Teacher = materials.teacher.unwrap_or(&deployed);
    let set = taught(materials, teacher)?;
    let meaning = recipe.meaning.unwrap_or_else(|| graph_meaning(materials.graph));
    let classes = meaning.has_classes();
    hold(&set, classes)?;

    let code = recipe.code();
    let derived = |end| (0..recipe.r).map(move |at| Ok(recipe.derive(materials.graph, at, end)?));
    let networks: Vec<Network> =
        derived(End::Raw).map(|model| Network::new(model?, device)).collect::<Result<_, Error>>()?;
    let fingerprint = fingerprint(&["parity", &format!("{recipe:?}")], &set, &[materials.graph]);
    let scores = if meaning == Meaning::Probabilities { Scores::Probabilities } else { Scores::Logits };
    let lesson = Lesson {
        networks,
        set,
        code: code.clone(),
        held_out: recipe.held_out,
        passes: recipe.passes,
        blanks: recipe.blanks,
        loss: recipe.loss(meaning),
        temperature: recipe.temperature,
        scores,
        // Only a sum of probabilities is trained as it is; slots are raw.
        reconstructed: if code.output_scale() > 1 { Scores::Logits } else { scores },
        classes,
        taught: false,
        augment: (!recipe.augment.is_none())
            .then_some(Augment { how: recipe.augment, teacher: Some(teacher) }),
        run: &recipe.run,
        fingerprint,
    };
    let learned = lesson.learn(around)?;
    let models = learned.served(derived(End::AsDeployed), device)?;
    let Learned { marks, calibration, history, samples, groups, .. } = learned;
    Ok(TrainedParities { code, models, marks, calibration, meaning, history, samples, groups })
}

/// Evaluates trained parity models on other rows: on every loss of up to r predictions. `metric` is the score of an
/// answer; by default the highest score of a classifier.
pub fn examine(
    materials: Materials<'_>,
    trained: &TrainedParities,
    metric: Option<Metric>,
    device: Device,
) -> Result<Report, Error> {
    let deployed = Network::new(copy(materials.graph)?, device)?;
    deployed.accepts(&materials.samples.inputs)?;
    let set = taught(materials, materials.teacher.unwrap_or(&deployed))?;
    let classes = trained.meaning.has_classes();
    hold(&set, classes)?;
    let code = trained.code.build()?;
    let groups = Groups::draw(set.len(), trained.code.k, 1)?;
    let coded = encode(&*code, &groups, &set.inputs)?;
    let answer = |(model, coded): (&Bytes, &Array<f32>)| {
        let model = Model::from_bytes(model.clone(), &Limits::default())?;
        predictions(&Network::new(model, device)?, coded)
    };
    let parities: Vec<Array<f32>> =
        trained.models.iter().zip(&coded).map(answer).collect::<Result<_, Error>>()?;
    let metric = metric.unwrap_or(if classes { Metric::TOP_1 } else { Metric::AbsoluteError });
    let confidence = trained.calibration.and_then(|calibration| Confidence::of(trained.meaning, calibration));
    let truth = match (set.labels, &materials.samples.values) {
        (Some(labels), _) if classes => Truth::Classes(labels),
        (_, Some(values)) if !classes => Truth::Values(values.clone()),
        _ => Truth::deployed(&set.outputs, metric),
    };
    Ok(evaluate::parity(&Evaluation {
        code: &*code,
        groups: &groups,
        deployed: &set.outputs,
        parities: &parities,
        truth: &truth,
        metric,
        confidence,
        backup: None,
    })?)
}
