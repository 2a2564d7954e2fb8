//! `parm train base`: trains a base model from labelled rows.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use parm_parity_models::onnx::{Limits, Model};
use parm_training::base::{Base, accuracy, train, tune};
use parm_training::data::Samples;
use parm_training::parity::publish_base;
use parm_training::{Device, Network};

use super::run::{device, observed, recipe};
use super::samples;
use crate::Failure;
use crate::cli::train as given;

/// Trains a base model and puts it into the repository.
pub fn main(flags: &given::Base) -> Result<(), Failure> {
    let own = [("model", Some(flags.model.clone().into()))];
    let settings: Base = recipe(&Base::default(), &flags.run, &own).map_err(Failure::Configuration)?;
    let lesson = LabelledRows::read(flags).map_err(Failure::Configuration)?;
    learn(flags, &settings, &lesson).map_err(Failure::Run)
}

/// The input of a run, read before it begins.
struct LabelledRows {
    device: Device,
    /// The graph to continue training from.
    from: Option<Model>,
    data: Samples,
    test: Option<Samples>,
}

impl LabelledRows {
    fn read(flags: &given::Base) -> anyhow::Result<Self> {
        let open = |path: &PathBuf| {
            Model::open(path, &Limits::default()).with_context(|| path.display().to_string())
        };
        let from = flags.from.as_ref().map(open).transpose()?;
        let inputs = from.as_ref().map_or(1, |graph| graph.inspect().inputs.len());
        Ok(Self {
            device: device(&flags.run)?,
            from,
            data: samples(&flags.data, inputs)?,
            test: flags.test.as_deref().map(|test| samples(test, inputs)).transpose()?,
        })
    }
}

fn learn(flags: &given::Base, settings: &Base, rows: &LabelledRows) -> anyhow::Result<()> {
    let LabelledRows { device, from, data, test } = rows;
    let (trained, files) = observed(&flags.run, &flags.name, |around| match from {
        Some(graph) => tune(data, settings, graph, *device, around),
        None => train(data, settings, *device, around),
    })?;
    let file = publish_base(&flags.run.models, &flags.name, &trained.model)?;
    files.forget_checkpoint();
    let mut out = crate::printer::stdout();
    writeln!(out, "{} version {}: {:.4} on rows held out", file.name, file.version, trained.score)?;
    if let Some(test) = test.as_ref().filter(|test| test.labels.is_some()) {
        let model = Model::from_bytes(trained.model, &Limits::default())?;
        let network = Network::new(model, *device)?.taking(test)?;
        let accuracy = accuracy(&network, test).context("the test rows")?;
        writeln!(out, "accuracy {accuracy:.4} on {} test rows", test.len())?;
    }
    Ok(())
}
