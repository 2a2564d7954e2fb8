//! Teaching candidates with Burn.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::Tensor;
use parm_stand_ins::{Lessons, Progress, School};
use parm_training::data::Samples;
use parm_training::fit::{Epoch, Files, Observer, Settings, Stop, Surroundings};
use parm_training::parity::Materials;
use parm_training::stand_in::{StandInRecipe, train};
use parm_training::{Array, Device};

use crate::Failure;
use crate::cli::stand_in::StandInSearch;

/// With fewer rows a candidate would learn those, and not the model.
const FEWEST: usize = 200;

/// The school, if one is wanted.
pub fn find(flags: &StandInSearch, name: &str) -> Result<Option<Box<dyn School>>, Failure> {
    let Some(epochs) = flags.teach else { return Ok(None) };
    let class = Class {
        settings: Settings { epochs: epochs.get(), seed: flags.seed, save_every: 1, ..Settings::default() },
        runs: flags.runs.join(format!("{name}-taught")),
    };
    Ok(Some(Box::new(class)))
}

/// Lessons on this machine's processor.
struct Class {
    settings: Settings,
    /// Where checkpoints are, but for the candidate's name.
    runs: PathBuf,
}

impl School for Class {
    fn teach(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> Result<Bytes, String> {
        self.lesson(name, graph, lessons).map_err(|error| format!("it could not be taught: {error:#}"))
    }
}

impl Class {
    fn lesson(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> anyhow::Result<Bytes> {
        let ([rows], [said]) = (lessons.rows.inputs(), lessons.said) else {
            let (inputs, outputs) = (lessons.rows.inputs().len(), lessons.said.len());
            bail!("the trainer takes models of one input and one output, this has {inputs} and {outputs}");
        };
        if rows.rows() < FEWEST {
            let rows = rows.rows();
            bail!("{rows} rows are too few to learn from: give {FEWEST} at least beside those to judge on");
        }
        let (samples, outputs) = (Samples::new(array(rows)?, None)?, array(said)?);
        let graph = Model::from_bytes(graph.clone(), &Limits::default())?;
        let recipe = StandInRecipe {
            width: 1.0,
            meaning: Some(lessons.meaning),
            run: self.settings.clone(),
            ..StandInRecipe::default()
        };
        let stop = Stop::default();
        let files = Files { checkpoint: Some(self.checkpoint(name)), ..Files::default() };
        let report = Report { name, epochs: self.settings.epochs, progress: lessons.progress, stop: &stop };
        report.say("");
        let around = Surroundings { observer: &report, stop: &stop, files: &files };
        let materials =
            Materials { samples: &samples, graph: &graph, teacher: None, outputs: Some(&outputs) };
        let taught = train(materials, &recipe, Device::Cpu, around)?;
        files.forget_checkpoint();
        Ok(taught.model)
    }

    fn checkpoint(&self, name: &str) -> PathBuf {
        let mut path = self.runs.clone().into_os_string();
        path.push(format!("-{name}.checkpoint"));
        Path::new(&path).to_owned()
    }
}

/// Numbers of any kind as the trainer takes them.
fn array(tensor: &Tensor) -> anyhow::Result<Array<f32>> {
    let numbers = parm_arrays::numbers(tensor).context("the rows are no numbers")?;
    let numbers = numbers.map(|number| number as f32).collect();
    Array::new(tensor.shape().to_vec(), numbers).context("the rows are of no shape")
}

/// Says how lessons go, and ends them when somebody wants that.
struct Report<'a> {
    name: &'a str,
    epochs: u64,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl Report<'_> {
    fn say(&self, how: &str) {
        self.progress.doing(&format!("teaching {} for {} epochs{how}", self.name, self.epochs));
    }
}

impl Observer for Report<'_> {
    fn stepped(&self, _: u64) {
        if self.progress.is_stopped() {
            self.stop.request();
        }
    }

    fn finished(&self, epoch: &Epoch) {
        let score = epoch.score.map_or(String::new(), |score| format!(", {score:.4} on rows held out"));
        self.say(&format!(": {} done in {:.0} s{score}", epoch.epoch, epoch.seconds));
    }
}
