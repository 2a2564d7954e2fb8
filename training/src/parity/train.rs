//! Trains the parity models of one code.

use bytes::Bytes;
use parm_encoder::CodeSpec;
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::rewrite::End;
use parm_parity_models::onnx::{Limits, Model};

use super::ParityRecipe;
use crate::evaluate::{self, Bench, Contender, Metric, Order, Report, Rules, Truth};
use crate::fit::{Epoch, Surroundings};
use crate::learn::{
    Augment, Learned, Lesson, Marks, Materials, Teacher, copy, fingerprint, hold, meaning as graph_meaning,
    predictions, taught,
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
    let lesson = Lesson {
        networks,
        set,
        code: code.clone(),
        held_out: recipe.held_out,
        passes: recipe.passes,
        blanks: recipe.blanks,
        loss: recipe.loss(meaning),
        temperature: recipe.temperature,
        meaning,
        // Only a sum of probabilities is trained as it is; slots are raw.
        reconstructed: if code.output_scale() > 1 { Meaning::Logits } else { meaning },
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
    let metric = metric.unwrap_or(if classes { Metric::TOP_1 } else { Metric::AbsoluteError });
    let open = |model: &Bytes| Network::new(Model::from_bytes(model.clone(), &Limits::default())?, device);
    let networks: Vec<Network> = trained.models.iter().map(open).collect::<Result<_, Error>>()?;
    let answers = networks.iter().map(|network| move |rows: &Array<f32>| predictions(network, rows));
    let answers: Vec<_> = answers.collect();
    let models: Vec<&evaluate::Model<'_>> = answers.iter().map(|answer| answer as _).collect();
    let rules = Rules { metric, meaning: trained.meaning, seed: 1 };
    let truth = Truth::of(materials.samples, classes, &set.outputs, metric);
    let deployed = |rows: &Array<f32>| predictions(&deployed, rows);
    let contender = Contender {
        code: &*trained.code.build()?,
        models: &models,
        calibration: trained.calibration.unwrap_or_default(),
        order: Order::Drawn,
    };
    Bench::with(&deployed, &set.inputs, set.outputs, truth, rules)?.judge(&contender)
}
