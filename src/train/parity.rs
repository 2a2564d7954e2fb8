//! `parm train parity`: trains the parity models of a code.

use std::io::Write;

use parm_encoder::Head;
use parm_parity_models::bundle::Training;
use parm_training::evaluate::Report;
use parm_training::fit::Files;
use parm_training::parity::{CodeRecord, ParityRecipe, TrainedParities, examine, publish, train};

use super::run::{count, observed, recipe, text};
use super::taught::{Ends, Taught};
use super::tool;
use crate::Failure;
use crate::cli::train as flags;
use crate::environment::command_line;

/// Trains the parity models of one code and puts them into the repository.
pub fn main(given: &flags::Parity) -> Result<(), Failure> {
    let work = Work::prepare(given).map_err(Failure::Configuration)?;
    work.learn(given).map_err(Failure::Run)
}

/// The input of a run, read before it begins.
struct Work {
    recipe: ParityRecipe,
    taught: Taught,
}

impl Work {
    fn prepare(given: &flags::Parity) -> anyhow::Result<Self> {
        let taught = Taught::read(&given.taught, given.architecture.as_deref(), &given.run, Ends::One)?;
        Ok(Self { recipe: settings(given)?, taught })
    }

    fn learn(&self, given: &flags::Parity) -> anyhow::Result<()> {
        let (code, deployed) = (self.recipe.code(), &self.taught.deployed.name);
        let name = format!("{deployed}-{}-{}-k{}", code.kind, head(self.recipe.head()), code.k);
        let (trained, files) = observed(&given.run, &name, |around| {
            train(self.taught.materials(), &self.recipe, self.taught.device, around)
        })?;
        self.publish(given, &trained, &files)
    }

    fn publish(&self, given: &flags::Parity, trained: &TrainedParities, files: &Files) -> anyhow::Result<()> {
        let Taught { metric, device, .. } = self.taught;
        let examined = |unseen| examine(unseen, trained, metric, device);
        let report = self.taught.unseen().map(examined).transpose()?;
        let publication = self.taught.publication(trained.meaning, &given.run.models);
        let training = self.training(given, trained);
        let accuracy = report.as_ref().and_then(Report::accuracy);
        let entry = CodeRecord { code: &trained.code, training, accuracy, calibration: trained.calibration };
        let path = publish(&publication, &entry, &trained.models)?;
        files.forget_checkpoint();
        let mut out = crate::printer::stdout();
        writeln!(out, "{}: {} k={} r={}", path.display(), trained.code.kind, trained.code.k, trained.code.r)?;
        let marks = &trained.marks;
        writeln!(out, "on rows held out: A_a {:.4}, A_d {:.4}", marks.available, marks.degraded)?;
        let Some(report) = report else { return Ok(()) };
        writeln!(out, "on test rows: {} of predictions (A_a) {:.4}", report.metric, report.available)?;
        for degraded in &report.degraded {
            let (lost, count) = (degraded.lost, degraded.reconstructions);
            writeln!(out, "  of {count} reconstructions with {lost} lost (A_d): {:.4}", degraded.score)?;
        }
        Ok(())
    }

    fn training(&self, given: &flags::Parity, trained: &TrainedParities) -> Training {
        Training {
            command: command_line(),
            tool: tool(),
            dataset: given.taught.data.clone(),
            samples: trained.samples as u64,
            groups_per_epoch: trained.groups as u64,
            epochs: trained.history.len() as u64,
            seed: self.recipe.run.seed,
            loss: format!("{:?}", self.recipe.loss(trained.meaning)).to_lowercase(),
            start: self.recipe.start,
            note: String::new(),
        }
    }
}

fn settings(given: &flags::Parity) -> anyhow::Result<ParityRecipe> {
    let own = [
        ("encoder", text(given.encoder.as_ref())),
        ("k", count(given.k)),
        ("start", text(given.start.as_ref())),
    ];
    recipe(&ParityRecipe::default(), &given.run, &own)
}

fn head(head: Head) -> &'static str {
    match head {
        Head::Sum => "sum",
        Head::Slots => "slots",
    }
}
