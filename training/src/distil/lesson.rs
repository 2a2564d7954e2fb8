//! The task for the training loop: networks, groups and targets of one run.

use burn::tensor::Tensor;
use parm_random::Random;

use super::{Augment, Augmented, Coder, Exam, Set, Targets};
use crate::fit::{StepOutcome, Task, fault};
use crate::graph::{Mode, Real};
use crate::groups::{Sampling, TrainingGroups};
use crate::loss::{Scores, Softening, soften};
use crate::network::Network;
use crate::{Error, Loss};

/// The settings of a lesson.
pub(crate) struct LessonPlan {
    pub(crate) sampling: Sampling,
    /// Groups in a step.
    pub(crate) batch: usize,
    pub(crate) loss: Loss,
    pub(crate) temperature: f32,
    /// The form of the teacher's outputs.
    pub(crate) scores: Scores,
    /// Whether the networks are scored as classifiers.
    pub(crate) classes: bool,
    /// Whether the networks start from weights that were trained for this task.
    pub(crate) taught: bool,
}

impl LessonPlan {
    fn softening(&self) -> Softening {
        Softening { scores: self.scores, temperature: self.temperature }
    }
}

/// Networks, one per parity, with their training data.
pub(crate) struct Lesson<'a> {
    pub(crate) networks: Vec<Network>,
    pub(crate) coder: Coder,
    pub(crate) exam: Exam,
    set: Set,
    /// The teacher's outputs in the loss's form: probabilities or raw.
    rows: Vec<f32>,
    targets: Targets,
    augment: Option<Augment<'a>>,
    plan: LessonPlan,
    groups: TrainingGroups,
    epoch: u64,
}

impl<'a> Lesson<'a> {
    pub(crate) fn new(
        networks: Vec<Network>,
        set: Set,
        exam: Exam,
        coder: Coder,
        targets: Targets,
        augment: Option<Augment<'a>>,
        plan: LessonPlan,
    ) -> Result<Self, Error> {
        targets.check(plan.loss)?;
        let mut rows = set.outputs.data().to_vec();
        if plan.loss == Loss::Kl {
            soften(&mut rows, targets.values, plan.softening());
        }
        let groups = plan.sampling.draw(set.len(), 0);
        Ok(Self { networks, coder, exam, set, rows, targets, augment, plan, groups, epoch: 0 })
    }

    fn loss_of(&self, at: usize, output: Real, rows: &[f32], members: &[u32]) -> Result<Tensor<1>, Error> {
        let groups = members.len() / self.plan.sampling.k;
        let shape = [groups, self.targets.aim.slots(), self.targets.values];
        let output = output.reshape(&shape).and_then(Real::rank3).map_err(fault("the output"))?;
        let truth = self.targets.of(at, rows, members, &output.device());
        Ok(self.plan.loss.of(output, truth, self.plan.temperature))
    }
}

impl Task for Lesson<'_> {
    fn networks(&mut self) -> &mut [Network] {
        &mut self.networks
    }

    fn begin(&mut self, epoch: u64) {
        self.groups = self.plan.sampling.draw(self.set.len(), epoch);
        self.epoch = epoch;
    }

    fn steps(&self) -> u64 {
        self.groups.len().div_ceil(self.plan.batch) as u64
    }

    fn step(&mut self, at: u64, leaves: &[Vec<Real>]) -> Result<StepOutcome, Error> {
        let from = at as usize * self.plan.batch;
        let members = self.groups.range(from, from + self.plan.batch);
        let changed: Option<Augmented> = match &self.augment {
            Some(augment) => {
                let name = format!("copies of epoch {} step {at}", self.epoch);
                let mut random = Random::named(self.plan.sampling.seed, &name);
                let softening = (self.plan.loss == Loss::Kl).then(|| self.plan.softening());
                Some(augment.copies(&self.set, &self.rows, members, &mut random, softening)?)
            }
            None => None,
        };
        let (inputs, rows, members) = match &changed {
            Some(changed) => (changed.inputs.as_slice(), changed.targets.as_slice(), &changed.members[..]),
            None => (self.set.inputs.data(), self.rows.as_slice(), members),
        };
        let coded = self.coder.encode(inputs, members)?;
        let mut total: Option<Tensor<1>> = None;
        let mut statistics = Vec::new();
        for (at, ((network, leaves), coded)) in self.networks.iter().zip(leaves).zip(coded).enumerate() {
            let groups = members.len() / self.plan.sampling.k;
            let results = network.forward(leaves, network.rows(coded)?, Mode::Train)?;
            let loss = self.loss_of(at, network.said(&results.outputs, groups)?, rows, members)?;
            drop(results.outputs);
            total = Some(match total {
                Some(total) => total.add(loss),
                None => loss,
            });
            statistics.push(results.statistics);
        }
        let loss = total.ok_or(Error::OutputKind)?;
        Ok(StepOutcome { loss, statistics, groups: (members.len() / self.plan.sampling.k) as u64 })
    }

    fn is_taught(&self) -> bool {
        self.plan.taught
    }

    fn score(&mut self) -> Result<f64, Error> {
        let marks = match self.plan.classes {
            true => self.exam.classify(&self.coder, &self.networks)?,
            false => self.exam.regress(&self.coder, &self.networks)?,
        };
        Ok(marks.degraded)
    }
}
