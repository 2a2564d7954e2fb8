//! `parm train stand-in`: trains another network as a stand-in.

use std::io::Write;

use anyhow::{Context, anyhow, bail};
use parm_parity_models::bundle::{Signature, misfit, misplaced};
use parm_parity_models::onnx::Model;
use parm_training::fit::Files;
use parm_training::parity::{StandInRecord, publish_stand_in};
use parm_training::stand_in::{StandInRecipe, Standing, TrainedStandIn, examine, train};

use super::run::{observed, recipe, text};
use super::taught::{Ends, Taught};
use crate::Failure;
use crate::cli::train as flags;
use crate::environment::command_line;

/// Trains a stand-in and puts it into the repository.
pub fn main(given: &flags::StandInTraining) -> Result<(), Failure> {
    let work = StandInWork::prepare(given).map_err(Failure::Configuration)?;
    work.learn(given).map_err(Failure::Run)
}

/// The input of a run, read before it begins.
struct StandInWork {
    recipe: StandInRecipe,
    taught: Taught,
}

impl StandInWork {
    fn prepare(given: &flags::StandInTraining) -> anyhow::Result<Self> {
        let taught =
            Taught::read(&given.taught, Some(given.architecture.as_path()), &given.run, Ends::Several)?;
        if let Some(architecture) = &taught.architecture {
            let signature = |model: &Model| Signature::from(&model.inspect());
            let problem =
                misfit(&signature(&taught.deployed.model), &signature(architecture), "--architecture");
            problem
                .map_or(Ok(()), |problem| Err(anyhow!("{problem}")))
                .context("--architecture is not usable as a stand-in")?;
            if let Some(side) = misplaced(&signature(&taught.deployed.model), &signature(architecture)) {
                bail!(
                    "the {side} of --architecture have another order than the deployed model's: export it with the same order"
                );
            }
        }
        Ok(Self { recipe: settings(given)?, taught })
    }

    fn learn(&self, given: &flags::StandInTraining) -> anyhow::Result<()> {
        let name = format!("{}-stand-in", self.taught.deployed.name);
        let (trained, files) = observed(&given.run, &name, |around| {
            train(self.taught.materials(), &self.recipe, self.taught.device, around)
        })?;
        self.publish(given, &trained, &files)
    }

    fn publish(
        &self,
        given: &flags::StandInTraining,
        trained: &TrainedStandIn,
        files: &Files,
    ) -> anyhow::Result<()> {
        let Taught { metric, device, .. } = self.taught;
        let examined = |unseen| examine(unseen, (&trained.model, trained.meaning), metric, device);
        let standing = self.taught.unseen().map(examined).transpose()?;
        let record = StandInRecord {
            provenance: command_line(),
            agreement: standing.and_then(|standing| standing.agreement),
            accuracy: standing.as_ref().and_then(Standing::accuracy),
            calibration: trained.calibration,
        };
        let publication = self.taught.publication(trained.meaning, &given.run.models);
        let path = publish_stand_in(&publication, &record, &trained.model)?;
        files.forget_checkpoint();
        let mut out = crate::printer::stdout();
        writeln!(out, "{}: stand-in", path.display())?;
        let marks = &trained.marks;
        writeln!(
            out,
            "on rows held out: predictions {:.4}, stand-in {:.4}",
            marks.available, marks.degraded
        )?;
        let Some(Standing { metric, deployed, stand_in, agreement }) = standing else { return Ok(()) };
        writeln!(out, "on test rows: {metric} of predictions {deployed:.4}, of the stand-in {stand_in:.4}")?;
        if let Some(agreement) = agreement {
            writeln!(out, "  agreement {agreement:.4}")?;
        }
        Ok(())
    }
}

fn settings(given: &flags::StandInTraining) -> anyhow::Result<StandInRecipe> {
    recipe(&StandInRecipe::default(), &given.run, &[("start", text(given.start.as_ref()))])
}
