//! `parm train base`.

use std::io::Write;

use anyhow::Context;
use parm_training::base::{Base, train};
use parm_training::fit::Surroundings;
use parm_training::parity::publish_base;
use parm_training::{Device, Network, base};

use super::run::{Numbers, apply, device, files, recipe, threads};
use super::{progress, samples, stop};
use crate::Failure;
use crate::cli::train;

/// Trains a base model and puts it into the repository.
pub fn main(flags: &train::Base) -> Result<(), Failure> {
    let mut settings: Base = recipe(&flags.run).map_err(Failure::Configuration)?;
    settings.model.clone_from(&flags.model);
    let Base { run, held_out, augment, .. } = &mut settings;
    apply(&flags.run, Numbers { run, held_out, augment: Some(augment) });
    let data = samples(&flags.data).map_err(Failure::Configuration)?;
    let test = flags.test.as_deref().map(samples).transpose().map_err(Failure::Configuration)?;
    let device = device(&flags.run).map_err(Failure::Configuration)?;
    learn(flags, &settings, device, &data, test.as_ref()).map_err(Failure::Run)
}

fn learn(
    flags: &train::Base,
    settings: &Base,
    device: Device,
    data: &parm_training::data::Samples,
    test: Option<&parm_training::data::Samples>,
) -> anyhow::Result<()> {
    threads(&flags.run)?;
    let (bar, stop) = (progress::EpochBar::new(), stop::on_signals()?);
    let files = files(&flags.run.runs, &flags.name);
    let around = Surroundings { observer: &bar, stop: &stop, files: &files };
    let trained = train(data, settings, device, around)?;
    drop(bar);
    let file = publish_base(&flags.run.models, &flags.name, &trained.model)?;
    files.forget_checkpoint();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} version {}: {:.4} on rows held out", file.name, file.version, trained.score)?;
    if let Some(test) = test.filter(|test| test.labels.is_some()) {
        let model = parm_parity_models::onnx::Model::from_bytes(trained.model, &Default::default())?;
        let accuracy = base::accuracy(&Network::new(model, device)?, test).context("the test rows")?;
        writeln!(out, "accuracy {accuracy:.4} on {} test rows", test.len())?;
    }
    Ok(())
}
