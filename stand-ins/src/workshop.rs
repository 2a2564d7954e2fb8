//! Runs graphs: an engine with a scratch folder for model files.

use std::cell::Cell;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_backend::EngineConfig;
use parm_backend::engine::{self, Engine};
use parm_protocol::{Shape, Tensor};
use rustix::time::{ClockId, clock_gettime};

use crate::memory::{ARENA, RUN, VALUES, fitting, in_words};
use crate::{Error, Rows, file, unusable};

/// Rows of a run while answers are gathered, if their values fit the memory.
const TOGETHER: usize = 8;

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

    /// An error if the search must stop.
    fn check(&self) -> Result<(), Error> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// An engine and its scratch folder.
pub struct Workshop {
    engine: Box<dyn Engine>,
    name: String,
    config: EngineConfig,
    folder: PathBuf,
    /// Bytes that a row of the deployed model needs in a run.
    live: Cell<u64>,
    stored: Cell<usize>,
}

/// A model's file in the folder of a workshop, removed with its last copy. Candidates' files together may be larger than
/// the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored(Arc<File>);

#[derive(Debug, Default, PartialEq, Eq)]
struct File {
    path: PathBuf,
    bytes: u64,
}

impl Drop for File {
    fn drop(&mut self) {
        // The folder is removed at the end, with what is left in it.
        let _ = fs::remove_file(&self.path);
    }
}

impl Stored {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The model.
    pub fn read(&self) -> Result<Bytes, Error> {
        file("read", &self.0.path, fs::read(&self.0.path)).map(Bytes::from)
    }
}

impl Workshop {
    /// Opens the engine called `name`; creates the folder if needed and overwrites files in it.
    pub fn new(name: &str, config: EngineConfig, folder: &Path) -> Result<Self, Error> {
        let chosen = engine::choose(name, &config)?;
        file("write", folder, fs::create_dir_all(folder))?;
        let (engine, name, folder) = (chosen.engine, chosen.name.into(), folder.into());
        Ok(Self { engine, name, config, folder, live: Cell::default(), stored: Cell::default() })
    }

    /// Bounds the rows of later runs by the bytes that a row of the deployed model needs.
    pub(crate) fn bound(&self, live: u64) {
        self.live.set(live);
    }

    /// The rows of a run that returns inner values of so many bytes per row. An error if one row needs too much.
    pub(crate) fn returning(&self, most: usize, bytes: u64) -> Result<usize, Error> {
        let limit = 2 * VALUES;
        if bytes > limit {
            let (bytes, limit) = (in_words(bytes), in_words(limit));
            return unusable(format!(
                "its values of one row take {bytes}, more than {limit}: it is not tried"
            ));
        }
        Ok(fitting(VALUES, bytes).clamp(1, self.together(most, ARENA)))
    }

    /// The rows of a run, at most `most`, if a row needs `times` as much as in the deployed model.
    pub(crate) fn together(&self, most: usize, times: u64) -> usize {
        fitting(RUN, times * self.live.get()).clamp(1, most)
    }

    /// The engine's name.
    pub fn engine(&self) -> &str {
        &self.name
    }

    pub(crate) fn clock(&self) -> Clock {
        let is_own_thread = self.config.threads.get() == 1 && self.config.device == "cpu";
        if is_own_thread { Clock::Processor } else { Clock::Wall(Instant::now()) }
    }

    /// Writes a model to a file and loads it.
    pub fn load(&self, name: &str, model: &[u8]) -> Result<Runner, Error> {
        self.open(&self.write(name, model)?)
    }

    /// Writes a model to a file of the folder.
    pub fn write(&self, name: &str, model: &[u8]) -> Result<PathBuf, Error> {
        let path = self.folder.join(format!("{name}.onnx"));
        file("write", &path, fs::write(&path, model))?;
        Ok(path)
    }

    /// Writes a model to a file of its own.
    pub(crate) fn store(&self, name: &str, model: &[u8]) -> Result<Stored, Error> {
        self.stored.set(self.stored.get() + 1);
        let path = self.write(&format!("{name}.{}", self.stored.get()), model)?;
        Ok(Stored(Arc::new(File { path, bytes: model.len() as u64 })))
    }

    pub(crate) fn load_stored(&self, stored: &Stored) -> Result<Runner, Error> {
        self.open(&stored.0.path)
    }

    /// Loads a file.
    pub fn open(&self, path: &Path) -> Result<Runner, Error> {
        let model = engine::guarded(|| self.engine.load(path, &self.config))?;
        Ok(Runner { model, together: self.together(TOGETHER, ARENA) })
    }

    /// Loads a deployed model. One whose answers depend on the engine's graph optimisation, or on the engine, is an error.
    pub fn open_deployed(&self, path: &Path) -> Result<Runner, Error> {
        let mut runner = self.open(path)?;
        engine::compare(&*self.engine, &mut *runner.model, path, &self.config)?;
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
    /// The processor time of the calling thread, if it is the one that runs.
    pub(crate) fn used(self) -> Option<Duration> {
        matches!(self, Self::Processor).then(|| self.now())
    }

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
    /// Rows of a run while answers are gathered.
    pub(crate) together: usize,
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

    /// Runs all rows, `together` at a time, and gives the outputs of each run with its number to `take`.
    pub(crate) fn run_all(
        &mut self,
        rows: &Rows,
        (together, progress): (usize, &dyn Progress),
        mut take: impl FnMut(usize, Vec<Tensor>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (run, start) in (0..rows.len()).step_by(together).enumerate() {
            progress.check()?;
            take(run, self.run(rows, start..(start + together).min(rows.len()))?)?;
        }
        Ok(())
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
