//! Parity models for a deployed model: recipe, training, and the bundle that serves them.

mod publish;

use std::num::NonZeroUsize;

use bytes::Bytes;
use parm_encoder::{CodeSpec, Head, Kind};
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::rewrite::{self, Design, End};
use parm_parity_models::onnx::{Defect, Limits, Model};
use serde::{Deserialize, Serialize};

use crate::evaluate::{self, Bench, Contender, Metric, Order, Report, Rules, Truth};
use crate::fit::{Epoch, Settings, Surroundings};
use crate::learn::{
    Augment, Learned, Lesson, Marks, Teacher, copy, fingerprint, hold, meaning as graph_meaning, predictions,
    taught,
};
use crate::{Array, Augmentation, Device, Error, Loss, Network};

pub use parm_parity_models::bundle::Start;
pub use publish::{
    CodeRecord, Publication, StandInRecord, publish, publish_base, publish_learned, publish_stand_in,
};

pub use crate::learn::Materials;

/// Settings for the parity models of one code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityRecipe {
    /// The encoder: `sum`, `weighted`, `tiles` or `slots`. Default `slots`.
    pub encoder: Kind,
    /// The output of a parity model: `sum` (ParM: one output, from which others are subtracted) or `slots` (one
    /// prediction per query). Default `slots` if the encoder keeps queries apart.
    pub head: Option<Head>,
    /// Queries in a group. Default 2.
    pub k: usize,
    /// Parities of a group. Default 1.
    pub r: usize,
    /// The initial weights: `deployed` or `scratch`. Default `deployed`.
    pub start: Start,
    /// The loss: `kl`, `mse` or `huber`. Default: `kl` for slots of a classifier, otherwise `mse`.
    pub loss: Option<Loss>,
    /// Divisor of the teacher's and the parity model's scores before the softmax of `kl`. Default 1.
    pub temperature: f32,
    /// Groups in an epoch, as a multiple of the number that uses each row once. Default 1.
    pub passes: f32,
    /// Share of groups with blank slots. Default 0.
    pub blanks: f32,
    /// Changes of images between epochs, which the teacher answers again. Default none.
    pub augment: Augmentation,
    /// Rows held out to choose the best epoch and to calibrate confidence. Default 5000, and at most a sixth.
    pub held_out: usize,
    /// The meaning of the deployed model's output: `logits`, `probabilities` or `values`. Default: `probabilities` if
    /// the graph ends in a softmax, otherwise `logits`.
    pub meaning: Option<Meaning>,
    /// The run.
    pub run: Settings,
}

impl Default for ParityRecipe {
    fn default() -> Self {
        Self {
            encoder: Kind::Slots,
            head: None,
            k: 2,
            r: 1,
            start: Start::Deployed,
            loss: None,
            temperature: 1.0,
            passes: 1.0,
            blanks: 0.0,
            augment: Augmentation::default(),
            held_out: 5000,
            meaning: None,
            run: Settings::default(),
        }
    }
}

impl ParityRecipe {
    /// The code of the parity models.
    pub fn code(&self) -> CodeSpec {
        let mut code = CodeSpec::new(self.encoder, self.k, self.r);
        code.head = self.encoder.chooses_head().then(|| self.head());
        code
    }

    /// The output of the parity models.
    pub fn head(&self) -> Head {
        if self.encoder.chooses_head() { self.head.unwrap_or(Head::Slots) } else { Head::Sum }
    }

    /// The loss for outputs of this meaning.
    pub fn loss(&self, meaning: Meaning) -> Loss {
        let usual = match (self.head(), meaning) {
            (Head::Slots, Meaning::Logits | Meaning::Probabilities) => Loss::Kl,
            _ => Loss::Mse,
        };
        self.loss.unwrap_or(usual)
    }

    /// The graph of parity `at` before the first step.
    fn derive(&self, deployed: &Model, at: usize, end: End) -> Result<Model, Defect> {
        let one = NonZeroUsize::MIN;
        let k = NonZeroUsize::new(self.k).unwrap_or(one);
        let seed = self.run.seed.wrapping_add(at as u64 * 1000);
        let design = Design {
            stem: if self.encoder.is_side_by_side() { k } else { one },
            head: if self.head() == Head::Slots { k } else { one },
            // A sum of probabilities is not a distribution.
            end: if self.head() == Head::Slots { end } else { End::Raw },
            start: match self.start {
                Start::Deployed => rewrite::Weights::Divided,
                Start::Scratch => rewrite::Weights::Scratch { seed },
            },
        };
        rewrite::derive(deployed, &design)
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Setting { message: message.into() });
        if self.k < 2 {
            return wrong("k must be at least 2");
        }
        if !(self.passes > 0.0 && self.passes <= 1000.0) {
            return wrong("passes must be above 0 and at most 1000");
        }
        if !(0.0..=1.0).contains(&self.blanks) {
            return wrong("blanks must be a share from 0 to 1");
        }
        if self.temperature <= 0.0 || !self.temperature.is_finite() {
            return wrong("temperature must be a number above 0");
        }
        if !self.encoder.has_parity_models() {
            return Err(Error::Untrained { kind: self.encoder });
        }
        self.augment.check()?;
        // Before the graphs are derived, since their sizes grow with k and r.
        self.code().build()?;
        self.run.check()
    }
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
