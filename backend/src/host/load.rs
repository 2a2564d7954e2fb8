//! Loads a model: reads it, replicates it, warms it up, and measures whether batching pays.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_parity_models::repository::{Format, TritonConfig, Version};
use parm_protocol::{MEASURED_ROWS, Shape};

use super::loaded::Site;
use super::{Host, Loaded, batch_axis, trial};
use crate::Error;
use crate::engine::{self, Description, Emulated, Engine, Model, Spec, guarded};
use crate::payer::Payer;
use crate::statistics::Statistics;

/// The source of a version's model.
pub(super) enum Source {
    File(Version),
    Emulated(Spec),
    Upstream(Description),
}

type Reader<'a> = Box<dyn Fn() -> Result<Box<dyn Model>, Error> + 'a>;

impl Host {
    /// Loads one version, off the instances' threads.
    pub(super) fn load(&self, name: &str, version: u64, source: &Source) -> Result<Loaded, Error> {
        let started = Instant::now();
        let (platform, read) = self.reader(source)?;
        let mut model = guarded(&read)?;
        let (max_batch, whole) = self.most_rows(name, triton(name, source), &mut *model);
        let warm = self.warm_up(name, max_batch, &mut *model)?;
        let (signature, version) = (model.signature().clone(), version.to_string());
        let statistics = Statistics::new(self.metrics.model(name, &version));
        statistics.metrics().batching(warm.limit, warm.speedup);
        let mut replicas = Vec::with_capacity(self.config.instances.get());
        while replicas.len() + 1 < self.config.instances.get() {
            let replica = model.replica().map_or_else(|| guarded(&read), Ok)?;
            replicas.push(Mutex::new(replica));
        }
        replicas.push(Mutex::new(model));
        tracing::info!(name, version, platform, took = ?started.elapsed(), "model loaded");
        let site = site(&**replicas[0].lock(), &warm);
        let mut config = signature.config(name, platform, max_batch);
        config.set_run_times(&warm.times);
        config.set_unbatched(whole.as_deref());
        Ok(Loaded {
            metadata: signature.metadata(name, &version, platform),
            // Frontends compare it with their bundles.
            config: match source {
                Source::File(version) => config.with_digest(&version.digest()?),
                Source::Emulated(_) | Source::Upstream(_) => config,
            },
            version,
            payer: Payer::of_model(name, &self.shares),
            site,
            batch_limit: warm.limit,
            statistics,
            replicas,
        })
    }

    /// The platform of a source, and its model.
    fn reader<'a>(&'a self, source: &'a Source) -> Result<(&'a str, Reader<'a>), Error> {
        Ok(match source {
            Source::File(version) => {
                let engine: Box<dyn Engine> = match version.format {
                    Format::Onnx => engine::by_name(&self.config.engine.name, &self.config.engine.options())?,
                    Format::Emulated => Box::new(Emulated),
                };
                let options = self.config.engine.options();
                (engine.platform(), Box::new(move || engine.load(&version.path, &options)))
            }
            Source::Emulated(spec) => (Emulated.platform(), Box::new(|| spec.clone().model())),
            Source::Upstream(description) => {
                let client = self.origin.as_ref().and_then(|origin| origin.client.as_ref());
                let read = move || description.model(&self.config.upstream, self.config.max_wait, client);
                (description.platform(), Box::new(read))
            }
        })
    }

    /// Maximum rows of a request for a model; 0 if its first dimension is not a batch, is configured not to be one, or
    /// could not be shown to be one. Then the reason is returned as well.
    fn most_rows(
        &self,
        name: &str,
        declared: Option<usize>,
        model: &mut dyn Model,
    ) -> (usize, Option<String>) {
        let listed = |names: &[String]| names.iter().any(|listed| listed == name);
        if !model.signature().is_batched() || listed(&self.config.unbatched) {
            return (0, None);
        }
        let most = self.config.max_rows.get().min(model.most_rows()).min(declared.unwrap_or(usize::MAX));
        if most == 0 || model.declares_rows() || listed(&self.config.batched) {
            return (most, None);
        }
        match batch_axis::shown(model, self.config.measure) {
            Ok(()) => (most, None),
            Err(reason) => {
                tracing::warn!(
                    name,
                    %reason,
                    "requests stay whole: the first dimension is not shown to be a batch (backend.batched overrides this)"
                );
                (0, Some(reason))
            }
        }
    }

    /// Runs the model on blank inputs, and measures it.
    ///
    /// Some models do not run on zeros. An error means that it ran on no input at all.
    fn warm_up(&self, name: &str, max_batch: usize, model: &mut dyn Model) -> Result<Warm, Error> {
        let runs = self.config.warm_up_runs;
        let unknown = Warm { limit: 1, speedup: None, times: Vec::new() };
        if runs == 0 {
            return Ok(unknown);
        }
        let batched = max_batch > 0;
        let started = Instant::now();
        let alone = match time(model, 1, batched, (runs, None)) {
            Ok(time) => time,
            Err(error) if trial::runs(model) => {
                tracing::warn!(name, %error, "warm-up failed on zeros: the first requests may be slow");
                return Ok(unknown);
            }
            Err(error) => return Err(Error::WarmUp { message: error.to_string() }),
        };
        let took = started.elapsed();
        let batching = self.measure_batching(name, max_batch, model, alone);
        let times = if max_batch > 1 { self.measure_rows(model, alone, took) } else { vec![alone] };
        Ok(Warm { times, ..batching })
    }

    /// Measures whether batches pay.
    fn measure_batching(&self, name: &str, max_batch: usize, model: &mut dyn Model, alone: Duration) -> Warm {
        let none = Warm { limit: 1, speedup: None, times: Vec::new() };
        let limit = self.config.batching.max_batch.get().min(max_batch);
        if limit <= 1 {
            return none;
        }
        match time(model, limit, true, (self.config.warm_up_runs, None)) {
            Ok(batch) => {
                let speedup = alone.as_secs_f64() * limit as f64 / batch.as_secs_f64().max(1e-9);
                let pays = speedup > 1.0;
                tracing::info!(name, limit, ?alone, ?batch, speedup, pays, "batching measured");
                Warm { limit: if pays { limit } else { 1 }, speedup: Some(speedup), ..none }
            }
            Err(error) => {
                tracing::warn!(name, limit, %error, "batching disabled: the model fails on a batch");
                none
            }
        }
    }

    /// Run times of 1, 2, 4 and 8 rows, as far as there is time to measure them: frontends use them as the cost of a
    /// stand-in. `took` is the known time of one row. A size that was begun in time is measured at least once, so this
    /// may exceed its time by two runs and a compilation.
    fn measure_rows(&self, model: &mut dyn Model, alone: Duration, mut took: Duration) -> Vec<Duration> {
        let mut times = vec![alone];
        let until = Instant::now() + self.config.measure;
        // A replica has its own compiled plans if the engine compiles for shapes.
        let mut replica = model.replica();
        let model: &mut dyn Model = match &mut replica {
            Some(own) => &mut **own,
            None => model,
        };
        let most = model.most_rows();
        for rows in MEASURED_ROWS.into_iter().skip(1) {
            let started = Instant::now();
            // Larger sizes take at least as long.
            if rows > most || started + took > until {
                break;
            }
            let Ok(time) = time(model, rows, true, (self.config.warm_up_runs, Some(until))) else { break };
            times.push(time);
            took = started.elapsed();
        }
        times
    }
}

/// The `max_batch_size` of a `config.pbtxt`. Names the fields that are ignored.
fn triton(name: &str, source: &Source) -> Option<usize> {
    let Source::File(version) = source else { return None };
    let TritonConfig { max_batch_size, ignored } = TritonConfig::beside(&version.path)?;
    let ignored = ignored.join(", ");
    tracing::info!(name, max_batch_size, ignored, "config.pbtxt: only max_batch_size is read");
    max_batch_size
}

/// The properties of a model that are measured before it serves.
struct Warm {
    /// Maximum rows of a batch.
    limit: usize,
    /// Speed-up of a full batch.
    speedup: Option<f64>,
    /// Run times of [`MEASURED_ROWS`], as far as they were measured.
    times: Vec<Duration>,
}

/// The longest run that may keep a thread from reading sockets.
const QUICK: Duration = Duration::from_micros(100);
/// The longest run for which a saved wake-up matters.
const BRISK: Duration = Duration::from_millis(20);

/// The place for runs of one row. Only models with constant run times run on the reading thread: other sizes may be
/// slow or need compiling, and requests that share a run must meet in the queue.
fn site(model: &dyn Model, warm: &Warm) -> Site {
    let inputs = &model.signature().inputs;
    let fixed = inputs.iter().all(|input| input.shape.iter().skip(1).all(|dim| *dim >= 0));
    match warm.times.first() {
        _ if !fixed || !model.is_steady() || warm.limit > 1 => Site::Apart,
        Some(alone) if *alone <= QUICK => Site::Here,
        Some(alone) if *alone <= BRISK => Site::LookedAfter,
        _ => Site::Apart,
    }
}

/// Median time of some runs on blank inputs, after one that is not counted; of fewer, but at least one, if they take
/// too long.
fn time(
    model: &mut dyn Model,
    rows: usize,
    batched: bool,
    (runs, until): (u32, Option<Instant>),
) -> Result<Duration, Error> {
    let inputs = model.signature().blank(rows)?;
    let shapes: Vec<Shape> = inputs.iter().map(|input| Shape::from(input.shape())).collect();
    guarded(|| model.prepare(&shapes))?;
    let mut times = Vec::new();
    for _ in 0..=runs {
        let started = Instant::now();
        let outputs = guarded(|| model.run(&inputs))?;
        times.push(started.elapsed());
        if let Some(odd) = outputs.iter().find(|output| batched && output.rows() != rows) {
            let message = format!("{rows} rows given, {} returned", odd.rows());
            return Err(Error::Run { message });
        }
        if times.len() > 1 && until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
    }
    let counted = &mut times[1..];
    counted.sort();
    Ok(counted[counted.len() / 2])
}
