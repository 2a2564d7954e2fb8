//! `parm train code`: trains an encoder and a decoder network.

use std::io::Write;

use parm_parity_models::bundle::{Accuracy, Start, Training};
use parm_training::Device;
use parm_training::code::{CodeRecipe, train};
use parm_training::parity::{CodeRecord, Publication, publish_learned};

use super::run::{count, device, observed, recipe, text};
use super::{Deployed, samples, tool};
use crate::Failure;
use crate::cli::train as flags;
use crate::environment::command_line;

/// Trains encoder and decoder and puts them into the repository.
pub fn main(given: &flags::Code) -> Result<(), Failure> {
    let settings = settings(given).map_err(Failure::Configuration)?;
    let device = device(&given.run).map_err(Failure::Configuration)?;
    learn(given, &settings, device).map_err(Failure::Run)
}

fn settings(given: &flags::Code) -> anyhow::Result<CodeRecipe> {
    let own = [("encoder", text(given.encoder.as_ref())), ("k", count(given.k))];
    recipe(&CodeRecipe::default(), &given.run, &own)
}

fn learn(given: &flags::Code, settings: &CodeRecipe, device: Device) -> anyhow::Result<()> {
    let deployed = Deployed::find(&given.deployed, given.name.as_deref(), &given.run.models)?;
    let data = samples(&given.data, 1)?;
    let test = given.test.as_deref().map(|test| samples(test, 1)).transpose()?;
    let name = format!("{}-learned-k{}", deployed.name, settings.k);
    let (trained, files) = observed(&given.run, &name, |around| {
        train(&data, test.as_ref(), &deployed.model, settings, device, around)
    })?;
    let marks = trained.tested.as_ref().unwrap_or(&trained.marks);
    let training = Training {
        command: command_line(),
        tool: tool(),
        dataset: given.data.clone(),
        samples: trained.samples as u64,
        groups_per_epoch: trained.groups as u64,
        epochs: trained.history.len() as u64,
        seed: settings.run.seed,
        loss: format!("{:?}", settings.loss).to_lowercase(),
        start: Start::Scratch,
        note: String::new(),
    };
    let accuracy = Accuracy {
        metric: "top-1".into(),
        available: marks.available,
        degraded: marks.degraded,
        overall: Vec::new(),
        constant_answer: None,
        backup: None,
        reconstructions: marks.reconstructions,
    };
    let path = publish_learned(
        &Publication {
            root: &given.run.models,
            name: &deployed.name,
            deployed: deployed.model.bytes(),
            meaning: trained.meaning,
            samples: &data,
        },
        &CodeRecord { code: &trained.code, training, accuracy: Some(accuracy), calibration: None },
        &trained.encoder,
        &trained.decoder,
    )?;
    files.forget_checkpoint();
    let mut out = crate::printer::stdout();
    writeln!(out, "{}: learned k={} r={}", path.display(), trained.code.k, trained.code.r)?;
    writeln!(
        out,
        "A_a {:.4}, A_d {:.4} over {} reconstructions",
        marks.available, marks.degraded, marks.reconstructions
    )?;
    Ok(())
}
