//! All workers of an experiment, and the faults that are applied to them during a run.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use parm_workload::Schedule;
use parm_workload::clock::Moment;

use crate::Config;

use crate::process::Launch;
use crate::worker::{self, Script, Worker};
use crate::{Error, Stop};

/// The workers.
#[derive(Debug)]
pub(crate) struct Fleet {
    workers: Vec<Worker>,
}

/// The longest time between two checks of the workers.
const WATCH: Duration = Duration::from_millis(20);

impl Fleet {
    /// Starts as many workers as an experiment needs, unless it names its own.
    pub(crate) fn start(config: &Config, count: u32, binary: &Path, folder: &Path) -> Result<Self, Error> {
        let processes = &config.processes;
        if !processes.workers.is_empty() {
            return Ok(Self { workers: processes.workers.iter().map(Worker::remote).collect() });
        }
        let folder = folder.join("processes");
        fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        let models = match &processes.models {
            Some(models) => vec!["--models".to_owned(), models.display().to_string()],
            None => {
                let path = worker::emulated(&folder, config)?;
                vec!["--config".to_owned(), path.display().to_string()]
            }
        };
        let launch = |number: u32| {
            let mut arguments =
                vec!["worker".to_owned(), "--faults".into(), "--instances".into(), "1".into()];
            arguments.extend(["--engine".to_owned(), processes.engine.clone()]);
            arguments.extend(models.iter().cloned());
            if processes.models.is_none() {
                // Otherwise all would draw the same service times.
                let seed = config.seed.wrapping_mul(1000).wrapping_add(u64::from(number)) >> 1;
                for model in [processes.model.clone(), processes.stand_in()] {
                    arguments.extend(["--set".into(), format!("backend.emulated.{model}.seed={seed}")]);
                }
            }
            Launch {
                name: format!("worker-{number}"),
                binary: binary.into(),
                arguments,
                folder: folder.clone(),
            }
        };
        let until = Instant::now() + processes.patience;
        Ok(Self { workers: Worker::start((0..count).map(launch).collect(), until)? })
    }

    /// Returns the number of workers.
    pub(crate) fn len(&self) -> u32 {
        self.workers.len() as u32
    }

    /// Returns the addresses of the first `count` workers.
    pub(crate) fn urls(&self, count: u32) -> Vec<&str> {
        self.workers.iter().take(count as usize).map(|worker| worker.url.as_str()).collect()
    }

    /// Sends the fault schedule of a run to its workers.
    pub(crate) fn tell(&self, script: Script<'_>) -> Result<(), Error> {
        let mut concerned = (0..script.instances).zip(&self.workers);
        concerned.try_for_each(|(number, worker)| worker.tell(number, Some(script)))
    }

    /// Stops, continues, kills and restarts workers by the schedule, and checks that no other dies, until `over` is true.
    pub(crate) fn play(
        &mut self,
        script: Script<'_>,
        stop: &Stop,
        over: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let mut schedule = Schedule::new(script.faults, script.seed, script.instances)?;
        while !over() {
            if stop.is_set() {
                return Err(Error::Interrupted);
            }
            let now = Moment::after(Instant::now().saturating_duration_since(script.start));
            let mut next = Moment::NEVER;
            for (number, worker) in (0..script.instances).zip(&mut self.workers) {
                let condition = schedule.condition(number, now);
                worker.follow(condition.state, number, script)?;
                schedule.forget(number, now);
                next = next.min(condition.until);
            }
            let left = Duration::from_nanos(next.nanos_since(now));
            thread::sleep(left.clamp(Duration::from_micros(200), WATCH));
        }
        Ok(())
    }

    /// Ends the faults of all workers.
    pub(crate) fn recover(&mut self) -> Result<(), Error> {
        self.workers.iter_mut().try_for_each(Worker::recover)
    }
}
