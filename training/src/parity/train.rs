//! Trains the parity models of one code.

use bytes::Bytes;
use parm_encoder::CodeSpec;
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::rewrite::{self, End};
use parm_parity_models::onnx::{Limits, Model};

use super::{ParityRecipe, calibrate, fingerprint, hold, rows};
use crate::data::Samples;
use crate::distil::{
    Aim, Augment, Coder, Exam, Lesson, LessonPlan, Marks, Set, Split, Targets, Teacher, predictions,
};
use crate::evaluate::{self, Confidence, Evaluation, Metric, Report, Truth};
use crate::fit::{self, Epoch, Surroundings};
use crate::groups::Sampling;
use crate::loss::Scores;
use crate::{Array, Device, Error, Network};

/// The inputs of the training.
#[derive(Clone, Copy)]
pub struct Materials<'a> {
    /// Rows, with labels or without.
    pub samples: &'a Samples,
    /// The graph to derive parity models from: the deployed one, or another architecture for its task.
    pub graph: &'a Model,
    /// Gives the true answer to a row; `None`: the graph itself.
    pub teacher: Option<&'a dyn Teacher>,
    /// The teacher's answer to each row, if known already.
    pub outputs: Option<&'a Array<f32>>,
}

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
    check(recipe)?;
    let deployed = Network::new(copy(materials.graph)?, device)?;
    rows(&materials.samples.inputs, deployed.input()?)?;
    let teacher: &dyn Teacher = materials.teacher.unwrap_or(&deployed);
    let set = taught(materials, teacher)?;
    let meaning = recipe.meaning.unwrap_or_else(|| meaning(materials.graph));
    let classes = meaning.has_classes();
    hold(&set, classes)?;

    let code = recipe.code();
    let seed = recipe.run.seed;
    let derived = |end| (0..recipe.r).map(move |at| Ok(recipe.derive(materials.graph, at, end)?));
    let networks: Vec<Network> =
        derived(End::Raw).map(|model| Network::new(model?, device)).collect::<Result<_, Error>>()?;
    let fingerprint = fingerprint(&["parity", &format!("{recipe:?}")], &set, &[materials.graph]);
    let (train, held_out) = Split::random(set.len(), recipe.held_out, seed).of(&set);
    let mut coder = Coder::new(&code, set.dims())?;
    let exam = Exam::new(held_out, &mut coder, seed)?;
    let groups = ((train.len() / recipe.k) as f64 * f64::from(recipe.passes)).round().max(1.0) as usize;
    let plan = LessonPlan {
        sampling: Sampling { k: recipe.k, groups, blanks: recipe.blanks, seed },
        batch: recipe.run.batch,
        loss: recipe.loss(meaning),
        temperature: recipe.temperature,
        scores: if meaning == Meaning::Probabilities { Scores::Probabilities } else { Scores::Logits },
        classes,
        taught: false,
    };
    let samples = train.len();
    let targets = Targets { aim: Aim::of(&code)?, values: set.values() };
    drop(set);
    let augment =
        (!recipe.augment.is_none()).then_some(Augment { how: recipe.augment, teacher: Some(teacher) });
    let mut lesson = Lesson::new(networks, train, exam, coder, targets, augment, plan)?;
    let history = fit::run(&mut lesson, &recipe.run, &fingerprint, around)?;

    let (exam, coder) = (&lesson.exam, &lesson.coder);
    let marks = match classes {
        true => exam.classify(coder, &lesson.networks)?,
        false => exam.regress(coder, &lesson.networks)?,
    };
    // Only a sum of probabilities is trained as it is; slots are raw.
    let raw = meaning != Meaning::Probabilities || coder.code().output_scale() > 1;
    let scores = if raw { Scores::Logits } else { Scores::Probabilities };
    let calibration = if classes { Some(calibrate(exam, coder, &lesson.networks, scores)?) } else { None };
    let models = finished(&lesson.networks, derived(End::AsDeployed), device)?;
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
    rows(&materials.samples.inputs, deployed.input()?)?;
    let set = taught(materials, materials.teacher.unwrap_or(&deployed))?;
    let classes = trained.meaning.has_classes();
    hold(&set, classes)?;
    let code = trained.code.build()?;
    let groups = evaluate::Groups::draw(set.len(), trained.code.k, 1)?;
    let coded = evaluate::encode(&*code, &groups, &set.inputs)?;
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

fn check(recipe: &ParityRecipe) -> Result<(), Error> {
    let wrong = |message: &str| Err(Error::Setting { message: message.into() });
    if recipe.k < 2 {
        return wrong("k must be at least 2");
    }
    if !(recipe.passes > 0.0 && recipe.passes <= 1000.0) {
        return wrong("passes must be above 0 and at most 1000");
    }
    if !(0.0..=1.0).contains(&recipe.blanks) {
        return wrong("blanks must be a share from 0 to 1");
    }
    if recipe.temperature <= 0.0 || !recipe.temperature.is_finite() {
        return wrong("temperature must be a number above 0");
    }
    if !recipe.encoder.has_parity_models() {
        return Err(Error::Untrained { kind: recipe.encoder });
    }
    recipe.augment.check()?;
    // Before the graphs are derived, since their sizes grow with k and r.
    recipe.code().build()?;
    recipe.run.check()
}

/// The rows with the teacher's answers.
pub(crate) fn taught(materials: Materials<'_>, teacher: &dyn Teacher) -> Result<Set, Error> {
    let Samples { inputs, labels, .. } = materials.samples;
    let rows = inputs.shape()[0];
    if rows == 0 {
        return Err(Error::TooFew { rows, wanted: 1 });
    }
    let outputs = match materials.outputs {
        Some(outputs) if outputs.shape().first() == Some(&rows) => {
            let values = outputs.data().len() / rows;
            outputs.clone().reshape(vec![rows, values]).expect("as many rows")
        }
        Some(outputs) => {
            return Err(Error::OutputRows { rows, outputs: outputs.shape().first().copied().unwrap_or(0) });
        }
        None => teacher.predict(inputs)?,
    };
    Ok(Set { inputs: inputs.clone(), outputs, labels: labels.clone() })
}

/// The meaning of a graph's output, as far as its last node shows.
pub(crate) fn meaning(graph: &Model) -> Meaning {
    match last(graph).as_deref() {
        Some("Softmax") => Meaning::Probabilities,
        _ => Meaning::Logits,
    }
}

/// The operator that makes a graph's first output of floats.
pub(crate) fn last(graph: &Model) -> Option<String> {
    let graph = graph.graph().ok()?;
    let output = graph.outputs.iter().find(|output| output.datatype.is_float())?.name.clone();
    graph.producer(&output).map(|node| node.op.clone())
}

/// Whether a softmax makes the first output: only there it can be removed and added again.
pub(crate) fn ends_in_softmax(graph: &Model) -> bool {
    let is_first = |graph: parm_parity_models::onnx::Graph| {
        let first = graph.outputs.first()?;
        graph.producer(&first.name).map(|node| node.op == "Softmax")
    };
    graph.graph().ok().and_then(is_first).unwrap_or(false)
}

/// The files to serve: graphs with the deployed one's end and the trained weights.
pub(crate) fn finished(
    networks: &[Network],
    graphs: impl Iterator<Item = Result<Model, Error>>,
    device: Device,
) -> Result<Vec<Bytes>, Error> {
    networks
        .iter()
        .zip(graphs)
        .map(|(trained, graph)| {
            let mut served = Network::new(graph?, device)?;
            for name in trained.parameters().chain(trained.buffers()) {
                served.set_weight(name, &trained.weight(name)?)?;
            }
            served.export()
        })
        .collect()
}

pub(crate) fn copy(model: &Model) -> Result<Model, Error> {
    // External weights are included.
    Ok(rewrite::Draft::new(model)?.finish()?)
}
