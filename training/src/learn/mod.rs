//! Distillation: networks learn, from a coded group, another model's answers to the group's members.
//!
//! Parity models are trained this way, and so are stand-ins and base models: as groups of one query, base models with
//! labels instead of a teacher.

mod exam;
mod set;
mod targets;
mod teacher;

use burn::tensor::Tensor;
use bytes::Bytes;
use parm_encoder::{Code, CodeSpec};
use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::Model;
use parm_random::Random;

pub(crate) use exam::Exam;
pub use exam::Marks;
pub use set::Augmentation;
pub(crate) use set::{Augment, Set};
pub use targets::Loss;
pub(crate) use targets::{BatchTruth, Softening, Targets, soften};
pub use teacher::{Materials, Teacher};
pub(crate) use teacher::{copy, ends_in_softmax, fingerprint, hold, last, meaning, predictions, taught};

use crate::fit::{self, Epoch, Grade, Settings, Step, StepOutcome, Surroundings, Task};
use crate::graph::{Mode, Real};
use crate::groups::{Groups, Sampling, encode};
use crate::network::Network;
use crate::{Device, Error};

/// A training of networks, one per parity of a code.
pub(crate) struct Lesson<'a> {
    pub(crate) networks: Vec<Network>,
    /// The rows with the teacher's answers.
    pub(crate) set: Set,
    pub(crate) code: CodeSpec,
    /// Rows of the set that are held out.
    pub(crate) held_out: usize,
    /// Groups in an epoch, as a multiple of the number that uses each row once.
    pub(crate) passes: f32,
    /// Share of groups with blank slots.
    pub(crate) blanks: f32,
    pub(crate) loss: Loss,
    pub(crate) temperature: f32,
    /// The meaning of the teacher's outputs.
    pub(crate) meaning: Meaning,
    /// The meaning of reconstructions.
    pub(crate) reconstructed: Meaning,
    /// Whether the networks are scored as classifiers.
    pub(crate) classes: bool,
    /// Whether the networks start from weights that were trained for this task.
    pub(crate) taught: bool,
    pub(crate) augment: Option<Augment<'a>>,
    pub(crate) run: &'a Settings,
    pub(crate) fingerprint: String,
}

/// The networks of a lesson after their training.
pub(crate) struct Learned {
    pub(crate) networks: Vec<Network>,
    pub(crate) marks: Marks,
    pub(crate) calibration: Option<Calibration>,
    pub(crate) history: Vec<Epoch>,
    /// Rows that groups were drawn from.
    pub(crate) samples: usize,
    /// Groups in an epoch.
    pub(crate) groups: usize,
}

impl Learned {
    /// The files to serve: graphs with the deployed one's end and the trained weights.
    pub(crate) fn served(
        &self,
        graphs: impl IntoIterator<Item = Result<Model, Error>>,
        device: Device,
    ) -> Result<Vec<Bytes>, Error> {
        let finished = |(trained, graph): (&Network, Result<Model, Error>)| {
            let mut served = Network::new(graph?, device)?;
            for name in trained.parameters().chain(trained.buffers()) {
                served.set_weight(name, &trained.weight(name)?)?;
            }
            served.export()
        };
        self.networks.iter().zip(graphs).map(finished).collect()
    }
}

impl Lesson<'_> {
    /// Trains the networks.
    pub(crate) fn learn(self, around: Surroundings<'_>) -> Result<Learned, Error> {
        let Lesson { networks, set, code, run, .. } = self;
        let targets = Targets::new(&code, set.values(), self.loss, self.temperature)?;
        let (train, held_out) = set.split(self.held_out, run.seed);
        drop(set);
        let softening = Softening { meaning: self.meaning, temperature: self.temperature };
        let softening = (self.loss == Loss::Kl).then_some(softening);
        let rows_of = |set: &Set| {
            let mut rows = set.outputs.data().to_vec();
            softening.iter().for_each(|softening| soften(&mut rows, set.values(), *softening));
            rows
        };
        let exam = Exam::new(held_out, code.build()?, self.classes, run.seed)?;
        let groups = ((train.len() / code.k) as f64 * f64::from(self.passes)).round().max(1.0) as usize;
        let sampling = Sampling { k: code.k, groups, blanks: self.blanks, seed: run.seed };
        let samples = train.len();
        let mut course = Coursework {
            code: code.build()?,
            exam_rows: rows_of(exam.set()),
            exam,
            rows: rows_of(&train),
            set: train,
            targets,
            softening,
            augment: self.augment,
            sampling,
            taught: self.taught,
            networks,
        };
        let history = fit::run(&mut course, run, &self.fingerprint, around)?;
        let Coursework { exam, networks, .. } = course;
        let (marks, calibration) = (exam.marks(&networks)?, exam.calibrate(&networks, self.reconstructed)?);
        Ok(Learned { networks, marks, calibration, history, samples, groups })
    }
}

/// The task of a lesson for the training loop.
struct Coursework<'a> {
    networks: Vec<Network>,
    code: Box<dyn Code>,
    exam: Exam,
    /// The teacher's outputs for the exam in the loss's form: probabilities or raw.
    exam_rows: Vec<f32>,
    set: Set,
    /// The same for the rows to learn from.
    rows: Vec<f32>,
    targets: Targets,
    softening: Option<Softening>,
    augment: Option<Augment<'a>>,
    sampling: Sampling,
    taught: bool,
}

impl Task for Coursework<'_> {
    fn networks(&mut self) -> &mut [Network] {
        &mut self.networks
    }

    fn draw(&self, epoch: u64) -> Groups {
        self.sampling.draw(self.set.len(), epoch)
    }

    fn step(&mut self, step: Step<'_>, leaves: &[Vec<Real>]) -> Result<StepOutcome, Error> {
        let Step { epoch, at, groups } = step;
        let changed = match &self.augment {
            Some(augment) => {
                let name = format!("copies of epoch {epoch} step {at}");
                let mut random = Random::named(self.sampling.seed, &name);
                Some(augment.copies(&self.set, &self.rows, groups, &mut random, self.softening)?)
            }
            None => None,
        };
        let (inputs, rows, groups) = match &changed {
            Some(changed) => (&changed.inputs, changed.targets.as_slice(), &changed.groups),
            None => (&self.set.inputs, self.rows.as_slice(), groups),
        };
        let mut total: Option<Tensor<1>> = None;
        let mut statistics = Vec::new();
        let coded = encode(&*self.code, groups, inputs)?;
        for (at, ((network, leaves), coded)) in self.networks.iter().zip(leaves).zip(coded).enumerate() {
            let results = network.forward(leaves, network.rows(coded)?, Mode::Train)?;
            let output = network.said(&results.outputs, groups.len())?;
            let loss = self.targets.loss(at, output, rows, groups)?;
            total = Some(match total {
                Some(total) => total.add(loss),
                None => loss,
            });
            statistics.push(results.statistics);
        }
        let loss = total.ok_or(Error::OutputKind)?;
        Ok(StepOutcome { loss, statistics })
    }

    fn is_taught(&self) -> bool {
        self.taught
    }

    fn examine(&mut self) -> Result<Grade, Error> {
        self.exam.grade(&self.networks, &self.targets, &self.exam_rows)
    }
}

/// The index of the largest value; the first of equal ones.
pub(crate) fn largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = at;
        }
    }
    best
}
