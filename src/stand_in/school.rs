//! Teaches candidates with the trainer.

use std::path::PathBuf;

use anyhow::{Context, bail};
use bytes::Bytes;
use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::Tensor;
use parm_stand_ins::{Lessons, Progress, Rows, School};
use parm_training::data::Parts;
use parm_training::fit::{CheckpointError, Epoch, Files, Observer, Settings, Stop, Surroundings};
use parm_training::parity::Materials;
use parm_training::stand_in::{StandInRecipe, train};
use parm_training::{Device, Error};

use crate::Failure;
use crate::stand_in::StandInSearch;
use crate::train::captured::{self, array};
use crate::train::engine::is_float;

/// With fewer rows a candidate would overfit.
const FEWEST: usize = 200;

/// Step size. It is small because candidates are nearly right already: at ten times this size, six epochs lost more than
/// four.
const RATE: f32 = 1e-4;
const WARM_UP: f32 = 0.5;
/// Suffix of the names of checkpoints.
const CHECKPOINT: &str = ".checkpoint";

/// Returns the trainer, if teaching is requested.
pub fn find(flags: &StandInSearch, name: &str, rows: Option<Rows>) -> Result<Option<Class>, Failure> {
    let Some(epochs) = flags.teach else { return Ok(None) };
    let settings = Settings {
        epochs: Some(epochs.get()),
        rate: RATE,
        warm_up: WARM_UP,
        seed: flags.seed,
        save_every: 1,
        ..Settings::default()
    };
    Ok(Some(Class { settings, folder: flags.runs.clone(), name: format!("{name}-taught-"), rows }))
}

/// Teaches on this machine's processor.
pub struct Class {
    settings: Settings,
    /// Folder of the checkpoints, whose names begin with `name`.
    folder: PathBuf,
    name: String,
    /// Rows of `--lessons`, if given.
    rows: Option<Rows>,
}

impl School for Class {
    fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    fn teach(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> Result<Bytes, String> {
        self.lesson(name, graph, lessons).map_err(|error| format!("cannot teach it: {error:#}"))
    }
}

impl Class {
    /// Removes all checkpoints. The results are stored elsewhere by then.
    pub fn forget(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(&self.name) && name.ends_with(CHECKPOINT) {
                // A checkpoint that remains is overwritten or resumed later.
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// The settings with as many rows in a step as fit the memory. Noisier gradients need smaller steps.
    fn fitting(&self, together: usize) -> Settings {
        let batch = self.settings.batch.min(together.max(1));
        let share = batch as f32 / self.settings.batch as f32;
        Settings { batch, rate: self.settings.rate * share.sqrt(), ..self.settings.clone() }
    }

    fn lesson(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> anyhow::Result<Bytes> {
        let rows = lessons.rows.len();
        if rows < FEWEST {
            bail!(
                "{rows} rows are too few to teach with: give at least {FEWEST} that other steps do not use"
            );
        }
        let said: Vec<&Tensor> = lessons.said.iter().filter(|said| is_float(said.datatype())).collect();
        if let [said] = said[..]
            && lessons.meaning.has_classes()
            && said.shape().len() != 2
        {
            bail!("a row has classes in {} dimensions, but the trainer supports one", said.shape().len() - 1);
        }
        let said = said.into_iter().map(array).collect::<anyhow::Result<Vec<_>>>()?;
        let (outputs, _) =
            Parts::join(said).context("the outputs have different numbers of rows, or are not numbers")?;
        let samples = captured::samples(&lessons.rows.inputs()?)?;
        let graph = Model::from_bytes(graph.clone(), &Limits::default())?;
        let materials =
            Materials { samples: &samples, graph: &graph, teacher: None, outputs: Some(&outputs) };
        let recipe = StandInRecipe {
            meaning: Some(lessons.meaning),
            run: self.fitting(lessons.together),
            ..StandInRecipe::default()
        };
        let checkpoint = self.folder.join(format!("{}{name}{CHECKPOINT}", self.name));
        let files = Files { checkpoint: Some(checkpoint.clone()), ..Files::default() };
        let stop = Stop::default();
        let epochs = self.settings.epochs.unwrap_or_default();
        let report = Report { name, epochs, progress: lessons.progress, stop: &stop };
        report.say("");
        let around = Surroundings { observer: &report, stop: &stop, files: &files };
        let taught = match train(materials, &recipe, Device::Cpu, around) {
            // The checkpoint belongs to other rows, another number of epochs or another candidate, so training starts again.
            Err(Error::Checkpoint(CheckpointError::OtherRun { .. } | CheckpointError::Damaged { .. })) => {
                std::fs::remove_file(&checkpoint)?;
                train(materials, &recipe, Device::Cpu, around)
            }
            done => done,
        };
        Ok(taught?.model)
    }
}

/// Reports progress, and stops the training on request.
struct Report<'a> {
    name: &'a str,
    epochs: u64,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl Report<'_> {
    fn say(&self, how: &str) {
        self.progress.within(&format!("teaching {} for {} epochs{how}", self.name, self.epochs));
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

#[cfg(test)]
mod tests {
    use parm_parity_models::bundle::Meaning;
    use parm_parity_models::onnx::{Builder, Dense, Value};
    use parm_random::Random;

    use super::*;

    const ROWS: usize = 240;

    /// Requests a stop after this many reports.
    struct Patience(std::cell::Cell<u32>);

    impl Progress for Patience {
        fn doing(&self, _: &str) {
            self.0.set(self.0.get().saturating_sub(1));
        }

        fn is_stopped(&self) -> bool {
            self.0.get() == 0
        }
    }

    /// A classifier of one layer.
    fn network(seed: u64) -> Model {
        let mut builder = Builder::new("network", seed);
        let x = builder.input(Value::batch_of_f32("x", &[6]));
        let scores = builder.dense("scores", &x, Dense { inputs: 6, outputs: 4 }).unwrap();
        builder.node("Softmax", "y", &[&scores]);
        builder.output(Value::batch_of_f32("y", &[4]));
        builder.build().unwrap()
    }

    fn answers(model: &[u8], rows: &Tensor) -> Tensor {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model).unwrap();
        let options = parm_backend::EngineConfig::default();
        let engine = parm_backend::engine::choose("tract", &options).unwrap().engine;
        engine.load(&path, &options).unwrap().run(std::slice::from_ref(rows)).unwrap().remove(0)
    }

    fn pictures() -> (Rows, Tensor) {
        let values = Random::new(3).normals(ROWS * 6);
        let rows = Tensor::from_f32([ROWS, 6].as_slice(), &values).unwrap();
        let declared = |name: &str| parm_backend::engine::Declared {
            name: name.into(),
            datatype: parm_protocol::DataType::Fp32,
            shape: vec![-1, 6],
        };
        let signature =
            parm_backend::engine::Signature { inputs: vec![declared("x")], outputs: vec![declared("y")] };
        (Rows::new(&signature, std::slice::from_ref(&rows)).unwrap(), rows)
    }

    fn class(folder: &std::path::Path, epochs: u64) -> Class {
        let settings = Settings { epochs: Some(epochs), save_every: 1, rate: 0.02, ..Settings::default() };
        Class { settings, folder: folder.to_owned(), name: "m-taught-".into(), rows: None }
    }

    #[test]
    fn interrupted_lessons_resume_and_other_runs_start_again() {
        let (rows, tensor) = pictures();
        let said = answers(network(1).bytes(), &tensor);
        let (candidate, folder) = (network(2), tempfile::tempdir().unwrap());
        let teach = |patience: u32, epochs: u64| {
            let progress = Patience(std::cell::Cell::new(patience));
            let (said, meaning) = (std::slice::from_ref(&said), Meaning::Probabilities);
            let lessons = Lessons { rows: &rows, said, meaning, together: 64, progress: &progress };
            class(folder.path(), epochs).teach("candidate", candidate.bytes(), &lessons)
        };
        let path = folder.path().join("m-taught-candidate.checkpoint");
        let whole = teach(u32::MAX, 4).unwrap();
        class(folder.path(), 4).forget();
        assert!(!path.exists());
        assert!(teach(3, 4).unwrap_err().contains("epoch"), "the run was stopped");
        assert!(path.exists());
        assert_eq!(teach(u32::MAX, 4).unwrap(), whole, "the same as without a stop");
        assert!(teach(u32::MAX, 2).is_ok(), "the checkpoint of four epochs is replaced");
    }

    #[test]
    fn too_few_rows_or_too_many_dimensions_are_refused() {
        let (rows, tensor) = pictures();
        let (few, model) = (rows.select(&[0, 1, 2]).unwrap(), network(1));
        let said = answers(model.bytes(), &tensor);
        let patience = Patience(std::cell::Cell::new(u32::MAX));
        let folder = tempfile::tempdir().unwrap();
        let refused = |rows: &Rows, said: &[Tensor]| {
            let lessons =
                Lessons { rows, said, meaning: Meaning::Probabilities, together: 64, progress: &patience };
            class(folder.path(), 2).teach("candidate", model.bytes(), &lessons).unwrap_err()
        };
        assert!(refused(&few, std::slice::from_ref(&said)).contains("3 rows are too few"));
        let cube = Tensor::new(said.datatype(), [ROWS, 2, 2].as_slice(), said.data().clone()).unwrap();
        assert!(refused(&rows, &[cube]).contains("2 dimensions"));
    }
}
