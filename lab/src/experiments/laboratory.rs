//! An experiment with real processes: the order of its runs, and the recording of their results.
//!
//! Policies take turns: each repeat of a scenario and a load runs all policies one after the other, on the same arrivals
//! and faults, and begins with another policy each time. A machine that becomes slower during the experiment therefore
//! affects all of them alike.
//!
//! The load's loop is [`parm_loadgen::run::Driver`]. A load generator's `Target` grades classes against labels; an experiment has
//! no labels and grades against a [`Reference`], so only the exchange is its own.

use std::num::NonZeroU16;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use parm_loadgen::inputs::Inputs;
use parm_loadgen::outcome::{self, Outcome};
use parm_loadgen::pacer::Due;
use parm_loadgen::recorder::Sample;
use parm_loadgen::run::Driver;
use parm_loadgen::validity;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{DataType, InferRequest, InferResponse, ModelRef, Tensor};
use parm_workload::Faults;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::experiments::processes::{Fleet, Frontend, Order, Script, Work};
use crate::experiments::results::{RawLine, RunName};
use crate::experiments::{Cell, Experiment, Folder, Mode, Results, RunRecord};
use crate::simulator::{Run, Tally};

/// The progress of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// Runs before this one.
    pub number: usize,
    /// Runs in all.
    pub of: usize,
    /// The cell that runs.
    pub cell: &'a Cell,
    /// The repeat, counted from 0.
    pub repeat: usize,
}

/// The resources of an experiment.
pub struct Laboratory<'a> {
    /// The `parm` binary.
    pub binary: PathBuf,
    /// The folder of results.
    pub folder: &'a Folder,
    /// The command that repeats it.
    pub command: String,
    /// Ends it early.
    pub stop: CancellationToken,
    /// Drives the clients.
    pub runtime: &'a Handle,
    /// Connects to workers and frontends.
    pub connect: Connect,
}

/// Is told of a run that begins, and of its validity when it has ended.
pub type Observer = fn(&Position<'_>, Option<&Validity>);

/// Connects to the server at a URL, within a runtime.
pub type Connect = fn(&str) -> Result<Arc<dyn Client>, parm_protocol::Error>;

impl Laboratory<'_> {
    /// Runs an experiment. If it ends early, the finished runs are in the folder and in the results.
    ///
    /// Call it from a thread that lives as long as the experiment: processes are tied to it.
    pub fn run(&self, experiment: &Experiment, observer: Observer) -> Result<Results, Error> {
        let began = Instant::now();
        let experiment = &experiment.with_processes();
        // Before anything is written.
        if let Some(cell) = experiment.cells().iter().find(|cell| cell.runs[0].has_clients()) {
            return Err(Error::OnlySimulated { policy: cell.case.policy.clone() });
        }
        self.folder.keep_config(experiment.config())?;
        let mut tallies = vec![Vec::new(); experiment.cells().len()];
        let mut runs = Vec::new();
        let outcome = self.all(experiment, observer, began, &mut |index, tally, record| {
            tallies[index].push(tally);
            runs.push(record);
        });
        let results = Results {
            mode: Mode::Processes,
            command: self.command.clone(),
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
                - began.elapsed().as_secs(),
            machine: machine(),
            ended_early: outcome.err().map(|error| error.to_string()),
            report: experiment.report(&tallies),
            runs,
        };
        self.folder.keep(&results)?;
        Ok(results)
    }

    fn all(
        &self,
        experiment: &Experiment,
        observer: Observer,
        began: Instant,
        done: &mut dyn FnMut(usize, Tally, RunRecord),
    ) -> Result<(), Error> {
        let config = experiment.config();
        let processes = &config.processes;
        let most = experiment.cells().iter().map(|cell| cell.runs[0].instances).max().unwrap_or(0);
        let mut fleet = Fleet::start(config, most, &self.binary, self.folder.path())?;
        let distinct = Reference::distinct(experiment.cells().iter().map(|cell| &cell.runs[0].faults));
        let inputs = (config.seed, distinct);
        let url = fleet.urls(1).remove(0);
        let _inside = self.runtime.enter();
        let client = (self.connect)(&url)
            .map_err(|error| Error::Reference { url: url.clone(), reason: error.to_string() })?;
        let reference = Reference::ask(&*client, &url, &processes.model, inputs, self.runtime)?;
        let reference = Arc::new(reference);
        let order = turns(experiment);
        for (number, (index, repeat)) in order.iter().copied().enumerate() {
            if self.stop.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let cell = &experiment.cells()[index];
            let position = Position { number, of: order.len(), cell, repeat };
            observer(&position, None);
            let (what, began_s) = (&cell.runs[repeat], began.elapsed().as_secs_f64());
            let outcome = {
                let workers = &fleet.urls(what.instances);
                let (binary, folder) = (&self.binary, self.folder.path());
                let name = format!("frontend-{index}");
                let order = Order { binary, folder, name: &name, processes, workers };
                run(self, what, order, &mut fleet, &reference)?
            };
            let raw = self.folder.keep_raw(cell, repeat, outcome.queries)?;
            observer(&position, Some(&outcome.validity));
            let record =
                RunRecord { name: RunName::of(cell, repeat), began_s, validity: outcome.validity, raw };
            self.folder.note(&record)?;
            done(index, outcome.tally, record);
        }
        Ok(())
    }
}

/// Returns the runs in order, as cell and repeat.
fn turns(experiment: &Experiment) -> Vec<(usize, usize)> {
    let cells = experiment.cells();
    let all: Vec<usize> = (0..cells.len()).collect();
    let groups: Vec<&[usize]> =
        all.chunk_by(|one, next| cells[*one].case.faces_the_same(&cells[*next].case)).collect();
    let repeats = cells.first().map_or(0, |cell| cell.runs.len());
    let of = |repeat: usize| {
        groups.iter().flat_map(move |group| {
            let turn = move |i: usize| (group[(i + repeat) % group.len()], repeat);
            (0..group.len()).map(turn)
        })
    };
    (0..repeats).flat_map(of).collect()
}

/// What a run gave.
#[derive(Debug)]
struct Measured {
    tally: Tally,
    /// In the order of the queries.
    queries: Vec<RawLine>,
    validity: Validity,
}

/// The verdict on a run: if its own sender was late, the result does not describe the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Validity {
    /// Queries that should have been sent and counted.
    pub offered: u64,
    /// Queries that were sent.
    pub sent: u64,
    /// Queries without an answer.
    pub failed: u64,
    /// 99th percentile of how late queries were sent, in milliseconds.
    pub lag_p99_ms: f64,
    /// Why the run is invalid; empty if it is valid.
    pub problems: Vec<String>,
    /// The first failure's message.
    pub failure: Option<String>,
}

#[derive(Default)]
struct Driven {
    queries: Vec<RawLine>,
    /// The first failure's message.
    failure: Option<String>,
}

/// From readiness to the first moment of the run: time to send the script to the workers.
const PREPARE: Duration = Duration::from_millis(200);
/// Most unanswered queries: a frontend that has crashed must not cost all memory.
const IN_FLIGHT: usize = 20_000;
/// How long the client may take, beyond the deadline, to report a timeout.
const SLACK: Duration = Duration::from_secs(2);

/// Runs a policy against the workers and restores them afterwards.
fn run(
    laboratory: &Laboratory<'_>,
    run: &Run,
    order: Order<'_>,
    fleet: &mut Fleet,
    reference: &Arc<Reference>,
) -> Result<Measured, Error> {
    let Laboratory { stop, runtime, connect, .. } = laboratory;
    let mut frontend = Frontend::start(run, order)?;
    let client = connect(&frontend.url()).map_err(|error| Error::Process {
        what: "reach",
        name: order.name.into(),
        reason: error.to_string(),
    })?;
    let start = Instant::now() + PREPARE;
    let script = Script { faults: &run.faults, seed: run.seed, instances: run.instances, start };
    fleet.tell(script)?;
    // The load has its own thread; this one starts and stops processes, which are tied to it.
    let (driven, played) = thread::scope(|scope| {
        let load = scope.spawn(|| drive(run, &client, reference, start, stop, runtime));
        let played = fleet.play(script, stop, || load.is_finished());
        if played.is_err() {
            stop.cancel();
        }
        let driven = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (driven, played)
    });
    played?;
    let (Driven { queries, failure }, took) = (driven?, start.elapsed());
    if stop.is_cancelled() {
        return Err(Error::Interrupted);
    }
    frontend.check()?;
    let tally = tally(run, &queries, frontend.work()?, took);
    drop(frontend);
    fleet.recover()?;
    let validity = Validity { failure, ..Validity::of(run, &queries) };
    Ok(Measured { tally, queries, validity })
}

/// Sends the queries of a run, each at its time, and compares the answers with the deployed model's. Blocks until each is
/// answered or past its deadline.
fn drive(
    run: &Run,
    client: &Arc<dyn Client>,
    reference: &Arc<Reference>,
    start: Instant,
    stop: &CancellationToken,
    runtime: &Handle,
) -> Result<Driven, Error> {
    let schedule = run.arrivals.schedule(run.seed)?.take(run.queries as usize);
    let queries = Vec::with_capacity(run.queries as usize);
    let driven = Arc::new(Mutex::new(Driven { queries, failure: None }));
    let driver = Driver::new(IN_FLIGHT, runtime.clone());
    driver.run(start, schedule, |Due { index, intended, lag }, permit| {
        if stop.is_cancelled() {
            return ControlFlow::Break(());
        }
        let Some(permit) = permit else { return ControlFlow::Continue(()) };
        let (client, reference, driven) = (client.clone(), reference.clone(), driven.clone());
        let context =
            CallContext { deadline: Some((intended + run.deadline).into()), ..CallContext::default() };
        let (number, warm_up) = (index as u64, (index as u64) < run.warm_up);
        permit.spawn(async move {
            let answer = client.infer(reference.request(index), context).await;
            let latency = intended.elapsed();
            let outcome = answer.as_ref().map_or(Outcome::Failed, outcome::of);
            let graded = answer.as_ref().ok().filter(|_| outcome.is_answer());
            let right = graded.map(|answer| reference.is_right(index, answer));
            let sample = Sample { intended: intended - start, latency, lag, outcome };
            let mut driven = driven.lock();
            driven.queries.push(RawLine { number, warm_up, sample, right });
            if let Err(error) = answer {
                driven.failure.get_or_insert_with(|| error.to_string());
            }
        });
        ControlFlow::Continue(())
    });
    driver.wait(run.deadline + SLACK, || stop.is_cancelled());
    let mut driven = std::mem::take(&mut *driven.lock());
    driven.queries.sort_unstable_by_key(|query| query.number);
    Ok(driven)
}

fn tally(run: &Run, queries: &[RawLine], work: Work, took: Duration) -> Tally {
    let mut tally = Tally::new(run.queries - run.warm_up, run.deadline).graded();
    for RawLine { number, sample, right, .. } in queries {
        let Some(number) = number.checked_sub(run.warm_up) else { continue };
        tally.ended(number, sample.latency.as_nanos() as u64, sample.outcome, *right != Some(true));
    }
    // The number of jobs in full batches; further jobs are redundancy.
    let needed = (queries.len() as u64)
        .div_ceil(u64::from(run.settings.batch.max_size.fixed().map_or(1, NonZeroU16::get)));
    (0..needed).for_each(|_| tally.started(true, 1.0));
    (needed..work.jobs).for_each(|_| tally.started(false, 1.0));
    let capacity = took.as_nanos() as u64 * u64::from(run.instances);
    tally.finish((work.busy * 1e9) as u64, capacity);
    tally
}

impl Validity {
    fn of(run: &Run, queries: &[RawLine]) -> Self {
        let samples: Vec<Sample> =
            queries.iter().filter(|query| !query.warm_up).map(|query| query.sample).collect();
        let (offered, sent) = (run.queries - run.warm_up, samples.len() as u64);
        let failed = samples.iter().filter(|sample| sample.outcome == Outcome::Failed).count() as u64;
        // Scenarios with faults are meant to fail queries: no share of failures makes a run invalid.
        let judged = validity::Validity::of(1.0, &samples, offered as usize);
        let (lag_p99_ms, problems) = (judged.lag_p99_ms, judged.faults);
        Self { offered, sent, failed, lag_p99_ms, problems, failure: None }
    }

    /// Whether the run is valid.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Requests in turn, with their right answers.
#[derive(Debug)]
struct Reference {
    inputs: Inputs,
    answers: Vec<Vec<f64>>,
}

/// Requests whose answers are known.
const DISTINCT: usize = 16;
/// The same, if run times follow the query: each request has one factor.
const DISTINCT_BY_QUERY: usize = 256;
/// Largest relative error of a single value, if it is a float. Labels must be equal.
const TOLERANCE: f64 = 0.01;

impl Reference {
    /// Returns the number of distinct requests that these faults need.
    fn distinct<'a>(faults: impl IntoIterator<Item = &'a Faults>) -> usize {
        let by_query = faults.into_iter().any(Faults::follow_queries);
        if by_query { DISTINCT_BY_QUERY } else { DISTINCT }
    }

    /// Requests this many answers from a worker.
    fn ask(
        client: &dyn Client,
        url: &str,
        model: &str,
        (seed, distinct): (u64, usize),
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let refused = |reason: String| Error::Reference { url: url.into(), reason };
        let failed = |error: parm_protocol::Error| refused(error.to_string());
        let metadata = runtime.block_on(client.model_metadata(&ModelRef::latest(model))).map_err(failed)?;
        let inputs = Inputs::generate_many(&metadata, 1, seed, distinct)?;
        let ask = |index| {
            let request = inputs.request(index);
            let response = runtime.block_on(client.infer(request, CallContext::default())).map_err(failed)?;
            let ungraded = "its first output is not numbers, so that it cannot be graded";
            values(&response).ok_or_else(|| refused(ungraded.into()))
        };
        let answers = (0..distinct).map(ask).collect::<Result<_, _>>()?;
        Ok(Self { inputs, answers })
    }

    /// Returns request number `index`.
    fn request(&self, index: usize) -> InferRequest {
        self.inputs.request(index % self.answers.len())
    }

    /// Whether a response agrees with the deployed model: the same class, or nearly the same single value.
    fn is_right(&self, index: usize, response: &InferResponse) -> bool {
        let right = &self.answers[index % self.answers.len()];
        let is_float = |tensor: &Tensor| {
            use DataType::{Bf16, Fp16, Fp32, Fp64};
            matches!(tensor.datatype(), Fp16 | Bf16 | Fp32 | Fp64)
        };
        let rounds = response.outputs.first().is_some_and(|output| is_float(&output.tensor));
        let near = |(value, right): (&f64, &f64)| {
            value == right || (rounds && (value - right).abs() <= TOLERANCE * right.abs().max(TOLERANCE))
        };
        values(response).filter(|values| values.len() == right.len()).is_some_and(|values| {
            match values.len() {
                0 | 1 => values.iter().zip(right).all(near),
                _ => largest(&values) == largest(right),
            }
        })
    }
}

fn values(response: &InferResponse) -> Option<Vec<f64>> {
    Some(parm_arrays::numbers(&response.outputs.first()?.tensor)?.collect())
}

fn largest(values: &[f64]) -> Option<usize> {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b]))
}

/// Describes the machine and the program for results.
pub fn machine() -> String {
    let name = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let (system, release) = (name.sysname().to_string_lossy(), name.release().to_string_lossy());
    format!(
        "{cores} cores, {system} {release} {}, parm {}",
        name.machine().to_string_lossy(),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use parm_protocol::NamedTensor;

    use super::*;
    use crate::experiments::Config;

    fn experiment(text: &str) -> Experiment {
        Experiment::new(Config::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn policies_take_turns_and_rotate_in_every_repeat() {
        let text = "policies = [\"equal\", \"hedge\"]\nscenarios = [\"A\"]\nloads = [0.3, 0.5]\nrepeats = 2";
        let turns = turns(&experiment(text));
        let expected = [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (0, 1), (3, 1), (2, 1)];
        assert_eq!(turns, expected, "cells 0 and 1 are at one load, 2 and 3 at the other");
    }

    #[test]
    fn load_of_a_real_model_is_unknown_without_its_service() {
        let loads = |text: &str| {
            let text = format!("policies = [\"equal\"]\nscenarios = [\"A\"]\nrates = [40.0, 60.0]\n{text}");
            let cells = experiment(&text).with_processes();
            cells.cells().iter().map(|cell| cell.case.intensity()).collect::<Vec<_>>()
        };
        let models = "[processes]\nmodels = \"zoo\"";
        assert_eq!(loads(models), ["40/s", "60/s"]);
        let service = "service = { time_ms = { kind = \"constant\", value = 6.0 } }";
        assert_eq!(loads(&format!("{service}\n{models}")), ["0.02", "0.03"]);
        assert_eq!(loads(""), ["0.067", "0.1"], "an emulated model takes the default time");
    }

    fn response(tensor: Tensor) -> InferResponse {
        InferResponse { outputs: vec![NamedTensor::new("y", tensor)], ..InferResponse::default() }
    }

    #[test]
    fn answer_is_right_with_same_class_or_label_or_nearly_same_value() {
        let metadata = parm_protocol::ModelMetadata { name: "m".into(), ..Default::default() };
        let inputs = Inputs::generate(&metadata, 1, 1).unwrap();
        let is_right = |answer: &[f64], tensor| {
            let reference = Reference { inputs: inputs.clone(), answers: vec![answer.to_vec()] };
            reference.is_right(0, &response(tensor))
        };
        let floats = |values: &[f32]| Tensor::from_f32([1, values.len()].as_slice(), values).unwrap();
        let one =
            |datatype, data: &[u8]| Tensor::new(datatype, [1usize].as_slice(), data.to_vec().into()).unwrap();
        let scores = [1.0, 3.0, 2.0];
        assert!(is_right(&scores, floats(&[0.9, 2.8, 2.7])) && !is_right(&scores, floats(&[3.0, 2.0, 1.0])));
        assert!(!is_right(&scores, floats(&[1.0, 3.0])), "it has another shape");
        assert!(is_right(&[10.0], floats(&[10.05])) && !is_right(&[10.0], floats(&[11.0])));
        assert!(is_right(&[10.0], one(DataType::Fp64, &10.05f64.to_le_bytes())));
        assert!(is_right(&[10.0], one(DataType::Fp16, &DataType::Fp16.half_precision(10.05).unwrap())));
        let label = |value: i64| one(DataType::Int64, &value.to_le_bytes());
        assert!(is_right(&[200.0], label(200)) && !is_right(&[200.0], label(201)), "labels are exact");
    }
}
