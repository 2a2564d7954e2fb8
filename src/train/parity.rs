//! `parm train parity`.

use std::io::Write;

use parm_encoder::{Head, Kind};
use parm_parity_models::bundle::Training;
use parm_parity_models::onnx::{Limits, Model};
use parm_training::data::{Limit, Samples};
use parm_training::evaluate::{Metric, Report};
use parm_training::fit::{Files, Surroundings};
use parm_training::parity::{
    CodeRecord, Materials, ParityRecipe, Publication, TrainedParities, examine, publish, train,
};
use parm_training::{Array, Device, Network, Teacher};

use super::engine::BlackBox;
use super::run::{Numbers, apply, device, files, named, recipe, set, threads};
use super::{Deployed, command_line, progress, samples, stop, tool};
use crate::Failure;
use crate::cli::train as flags;

/// Trains the parity models of one code and puts them into the repository.
pub fn main(given: &flags::Parity) -> Result<(), Failure> {
    let work = Work::prepare(given).map_err(Failure::Configuration)?;
    work.learn(given).map_err(Failure::Run)
}

/// Everything that is read before the run begins.
struct Work {
    recipe: ParityRecipe,
    device: Device,
    deployed: Deployed,
    architecture: Option<Model>,
    data: Samples,
    test: Option<Samples>,
    /// Who says what is true of a row where it is not the graph that parity models are derived from.
    teacher: Option<Box<dyn Teacher>>,
    metric: Option<Metric>,
    outputs: Option<Array<f32>>,
}

impl Work {
    fn prepare(given: &flags::Parity) -> anyhow::Result<Self> {
        let deployed = Deployed::find(&given.deployed, given.name.as_deref(), &given.run.models)?;
        let open = |path: &std::path::PathBuf| Model::open(path, &Limits::default());
        let outputs =
            |path: &std::path::PathBuf| Samples::npy(path, None, Limit::default()).map(|rows| rows.inputs);
        Ok(Self {
            recipe: settings(given)?,
            device: device(&given.run)?,
            architecture: given.architecture.as_ref().map(open).transpose()?,
            teacher: teacher(given, &deployed)?,
            outputs: given.outputs.as_ref().map(outputs).transpose()?,
            metric: given.metric.as_deref().map(str::parse).transpose()?,
            deployed,
            data: samples(&given.data)?,
            test: given.test.as_deref().map(samples).transpose()?,
        })
    }

    fn learn(&self, given: &flags::Parity) -> anyhow::Result<()> {
        threads(&given.run)?;
        let (bar, stop) = (progress::EpochBar::new(), stop::on_signals()?);
        let code = self.recipe.code();
        let name = format!("{}-{}-{}-k{}", self.deployed.name, code.kind, head(self.recipe.head()), code.k);
        let files = files(&given.run.runs, &name);
        let around = Surroundings { observer: &bar, stop: &stop, files: &files };
        let trained = train(self.materials(), &self.recipe, self.device, around)?;
        drop(bar);
        self.publish(given, &trained, &files)
    }

    fn materials(&self) -> Materials<'_> {
        Materials {
            samples: &self.data,
            graph: self.architecture.as_ref().unwrap_or(&self.deployed.model),
            teacher: self.teacher.as_deref(),
            outputs: self.outputs.as_ref(),
        }
    }

    fn publish(&self, given: &flags::Parity, trained: &TrainedParities, files: &Files) -> anyhow::Result<()> {
        let on = |samples| Materials { samples, outputs: None, ..self.materials() };
        let examined = |samples| examine(on(samples), trained, self.metric, self.device);
        let report = self.test.as_ref().map(examined).transpose()?;
        let publication = Publication {
            root: &given.run.models,
            name: &self.deployed.name,
            deployed: self.deployed.model.bytes(),
            meaning: trained.meaning,
            rows: &self.data.inputs,
            preprocessing: None,
        };
        let training = self.training(given, trained);
        let accuracy = report.as_ref().and_then(Report::accuracy);
        let entry = CodeRecord { code: &trained.code, training, accuracy, calibration: trained.calibration };
        let path = publish(&publication, &entry, &trained.models)?;
        files.forget_checkpoint();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}: {} k={} r={}", path.display(), trained.code.kind, trained.code.k, trained.code.r)?;
        if let Some(body) = &trained.body {
            writeln!(out, "{body}")?;
        }
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
            dataset: given.data.clone(),
            samples: trained.samples as u64,
            groups_per_epoch: trained.groups as u64,
            epochs: self.recipe.run.epochs,
            seed: self.recipe.run.seed,
            loss: format!("{:?}", self.recipe.loss(trained.meaning)).to_lowercase(),
            start: self.recipe.start,
            note: trained.body.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }
}

fn teacher(given: &flags::Parity, deployed: &Deployed) -> anyhow::Result<Option<Box<dyn Teacher>>> {
    Ok(match &given.engine {
        Some(engine) => Some(Box::new(BlackBox::load(engine, &deployed.path)?)),
        None if given.architecture.is_some() && given.outputs.is_none() => {
            let model = Model::open(&deployed.path, &Limits::default())?;
            Some(Box::new(Network::new(model, device(&given.run)?)?))
        }
        None => None,
    })
}

fn settings(given: &flags::Parity) -> anyhow::Result<ParityRecipe> {
    let mut settings: ParityRecipe = recipe(&given.run)?;
    let ParityRecipe { run, held_out, augment, .. } = &mut settings;
    apply(&given.run, Numbers { run, held_out, augment: Some(augment) });
    set(&mut settings.encoder, given.encoder);
    let head: Option<Head> = given.head.map(named);
    // ParM's name for its own code is its head.
    if given.encoder.is_none() && head == Some(Head::Sum) {
        settings.encoder = Kind::Sum;
    }
    set(&mut settings.head, head.map(Some));
    set(&mut settings.k, given.k);
    set(&mut settings.r, given.r);
    set(&mut settings.body, given.body.map(|body| Some(named(body))));
    set(&mut settings.width, given.width.map(Some));
    set(&mut settings.start, given.start.map(named));
    set(&mut settings.loss, given.loss.map(|loss| Some(named(loss))));
    set(&mut settings.temperature, given.temperature);
    set(&mut settings.passes, given.passes);
    set(&mut settings.blanks, given.blanks);
    set(&mut settings.meaning, given.meaning.map(|meaning| Some(named(meaning))));
    Ok(settings)
}

fn head(head: Head) -> &'static str {
    match head {
        Head::Sum => "sum",
        Head::Slots => "slots",
    }
}
