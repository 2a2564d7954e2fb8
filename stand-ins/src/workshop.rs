//! Runs graphs: an engine with a scratch folder for model files.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parm_backend::engine::{self, Engine, Options};
use parm_protocol::{Shape, Tensor};
use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Rows};

/// Receives the progress of a search and can stop it.
pub trait Progress {
    /// Reports the step that begins now.
    fn doing(&self, what: &str);

    /// Reports how far the present step is, which may be often.
    fn within(&self, what: &str) {
        self.doing(what);
    }

    /// Reports a result.
    fn tell(&self, _what: &str) {}

    /// Whether the search must stop.
    fn is_stopped(&self) -> bool;
}

/// An engine and its scratch folder.
pub struct Workshop {
    engine: Box<dyn Engine>,
    name: String,
    options: Options,
    folder: PathBuf,
}

impl Workshop {
    /// Opens the engine called `name`; creates the folder if needed and overwrites files in it.
    pub fn new(name: &str, options: Options, folder: &Path) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Write { path: folder.into(), message: error.to_string() };
        let chosen = engine::choose(name, &options)?;
        fs::create_dir_all(folder).map_err(failed)?;
        Ok(Self { engine: chosen.engine, name: chosen.name.into(), options, folder: folder.into() })
    }

    /// The engine's name.
    pub fn engine(&self) -> &str {
        &self.name
    }

    /// The clock for run times.
    pub(crate) fn clock(&self) -> Clock {
        let is_own_thread = self.options.threads.get() == 1 && self.options.device == "cpu";
        if is_own_thread { Clock::Processor } else { Clock::Wall(Instant::now()) }
    }

    /// Writes a model to a file and loads it.
    pub fn load(&self, name: &str, model: &[u8]) -> Result<Runner, Error> {
        self.open(&self.write(name, model)?)
    }

    /// Writes a model to a file of the folder.
    pub fn write(&self, name: &str, model: &[u8]) -> Result<PathBuf, Error> {
        let path = self.folder.join(format!("{name}.onnx"));
        let failed = |error: std::io::Error| Error::Write { path: path.clone(), message: error.to_string() };
        fs::write(&path, model).map_err(failed)?;
        Ok(path)
    }

    /// Loads a file.
    pub fn open(&self, path: &Path) -> Result<Runner, Error> {
        let model = engine::guarded(|| self.engine.load(path, &self.options))?;
        Ok(Runner { model })
    }

    /// Loads a deployed model. One whose answers depend on the engine's graph optimisation, or on the engine, is an error.
    pub fn open_deployed(&self, path: &Path) -> Result<Runner, Error> {
        let mut runner = self.open(path)?;
        engine::compare(&*self.engine, &mut *runner.model, path, &self.options)?;
        Ok(runner)
    }

    /// Removes the folder and its files.
    pub fn clear(&self) {
        // A scratch folder that remains does no harm, and a failure here has no caller to report to.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A clock for run times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The processor time of the calling thread, in which engines with one thread run.
    Processor,
    /// The time since then.
    Wall(Instant),
}

impl Clock {
    pub(crate) fn now(self) -> Duration {
        match self {
            Self::Wall(since) => since.elapsed(),
            Self::Processor => {
                let time = clock_gettime(ClockId::ThreadCPUTime);
                Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
            }
        }
    }
}

/// A loaded model.
pub struct Runner {
    model: Box<dyn engine::Model>,
}

impl Runner {
    /// Its inputs and outputs.
    pub fn signature(&self) -> &engine::Signature {
        self.model.signature()
    }

    /// Prepares fast runs of `count` rows.
    pub(crate) fn prepare(&mut self, rows: &Rows, count: usize) -> Result<(), Error> {
        let count = if rows.is_batched() { count } else { 1 };
        let shapes: Vec<Shape> = rows.slice(0, count)?.iter().map(|input| input.shape().into()).collect();
        Ok(engine::guarded(|| self.model.prepare(&shapes))?)
    }

    /// Runs these rows: one by one if the model takes one row at a time, otherwise together.
    pub(crate) fn run(&mut self, rows: &Rows, places: Range<usize>) -> Result<Vec<Tensor>, Error> {
        if rows.is_batched() {
            let inputs = rows.slice(places.start, places.len())?;
            return Ok(engine::guarded(|| self.model.run(&inputs))?);
        }
        let mut answers: Vec<Vec<Tensor>> = Vec::new();
        for place in places {
            let inputs = rows.slice(place, 1)?;
            let outputs = engine::guarded(|| self.model.run(&inputs))?;
            answers.resize_with(outputs.len(), Vec::new);
            answers.iter_mut().zip(outputs).for_each(|(answers, output)| answers.push(output));
        }
        answers.iter().map(|answers| Ok(Tensor::concat_rows(answers)?)).collect()
    }
}
