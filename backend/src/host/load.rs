//! Loads a model: reads it, compares its answers, tests whether rows are independent, measures it warm, and replicates it.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_parity_models::repository::{TritonConfig, Version};
use parm_protocol::{MEASURED_ROWS, Shape};

use super::catalogue::{Loaded, Site};
use super::{Host, rows};
use crate::engine::{self, Engine, Model, Spec, Texts, guarded};
use crate::instance::Payer;
use crate::{Config, Error};

/// The source of a version's model.
pub(super) enum Source {
    File(Version),
    Emulated(Spec),
}

impl Source {
    /// The engine that runs it, and the file to load.
    fn engine(&self, config: &Config) -> Result<(Box<dyn Engine>, &Path), Error> {
        let (engine, path): (Box<dyn Engine>, &Path) = match self {
            Source::File(version) => (engine::by_name(&config.engine.name, &config.engine)?, &version.path),
            Source::Emulated(spec) => (Box::new(spec.clone()), Path::new("")),
        };
        Ok((engine, path))
    }
}

impl Host {
    /// Loads one version, off the instances' threads.
    pub(super) fn load(&self, name: &str, version: u64, source: &Source) -> Result<Loaded, Error> {
        let started = Instant::now();
        let (engine, path) = source.engine(&self.config)?;
        let platform = engine.platform();
        let is_onnx = matches!(source, Source::File(_));
        let read = || guarded(|| engine.load(path, &self.config.engine));
        let mut model = read()?;
        if is_onnx && self.config.warm_up_runs > 0 {
            // Refuses a file whose answers depend on the engine's graph optimisation or on the engine.
            engine::compare(&*engine, &mut *model, path, &self.config.engine)?;
        }
        let texts = if is_onnx { Texts::beside(path)? } else { None };
        let served = |model| match &texts {
            Some(texts) => texts.over(model),
            None => (model, None),
        };
        let (mut model, tokens_only) = served(model);
        if let Some(reason) = tokens_only {
            tracing::info!(name, reason, "the model takes token ids, and tokenizer.json is not used");
        }
        let stated = triton(name, source);
        let declared = stated.max_batch_size.or(if is_onnx { None } else { Some(usize::MAX) });
        let (max_batch, whole) = most_rows(&self.config, name, declared, &mut *model);
        let sizes = fix_rows(&mut *model, max_batch)?;
        let may_split = max_batch > 1 && sizes.is_empty();
        if may_split {
            model.split_rows();
        }
        let warm = self.warm_up(name, max_batch, &mut *model)?;
        self.warm_up_sizes(&sizes, &warm, &mut *model)?;
        let (signature, version) = (model.signature().clone(), version.to_string());
        let statistics = self.metrics.model(name, &version, (warm.limit, warm.speedup));
        let mut replicas = Vec::with_capacity(self.config.instances.get());
        while replicas.len() + 1 < self.config.instances.get() {
            let another = || -> Result<Box<dyn Model>, Error> {
                let mut replica = served(read()?).0;
                replica.fix_rows(&sizes)?;
                if may_split {
                    replica.split_rows();
                }
                Ok(replica)
            };
            let mut replica = model.replica().map_or_else(another, Ok)?;
            self.warm_up_sizes(&sizes, &warm, &mut *replica)?;
            replicas.push(Mutex::new(replica));
        }
        let counts_tokens = model.counts_tokens();
        replicas.push(Mutex::new(model));
        tracing::info!(name, version, platform, took = ?parm_protocol::rounded(started.elapsed()), "model loaded");
        let is_steady = warm.limit == 1 && replicas[0].lock().is_steady();
        let alone = warm.times.first().copied().filter(|_| is_steady);
        let site = Site::of(&signature, max_batch > 0, alone);
        let mut config = signature.config(name, platform, max_batch);
        config.set_run_times(&warm.times);
        config.set_processor(&processor(self.config.engine.threads));
        config.set_unbatched(whole.as_deref());
        Ok(Loaded {
            metadata: signature.metadata(name, &version, platform),
            // Frontends compare it with their bundles.
            config: match source {
                Source::File(version) => config.with_digest(&version.digest()?),
                Source::Emulated(_) => config,
            },
            version,
            counts_tokens,
            payer: Payer::of_model(name, &self.shares),
            site,
            batch_limit: warm.limit,
            statistics,
            replicas,
        })
    }

    /// Runs the model on blank inputs, and measures it.
    ///
    /// Some models do not run on zeros. An error means that it ran on no input at all.
    fn warm_up(&self, name: &str, max_batch: usize, model: &mut dyn Model) -> Result<Warm, Error> {
        let runs = self.config.warm_up_runs;
        let mut warm = Warm { limit: 1, speedup: None, times: Vec::new() };
        if runs == 0 {
            return Ok(warm);
        }
        let started = Instant::now();
        let alone = match alone(model, max_batch > 0, runs)? {
            Ok(time) => time,
            Err(error) => {
                tracing::warn!(name, %error, "warm-up failed on zeros: the first requests may be slow");
                return Ok(warm);
            }
        };
        let took = started.elapsed();
        let limit = self.config.batching.max_batch.get().min(max_batch);
        let batch = if limit > 1 { time(model, limit, true, runs).map(Some) } else { Ok(None) };
        match batch {
            Ok(None) => {}
            Ok(Some(batch)) => {
                let speedup = alone.as_secs_f64() * limit as f64 / batch.as_secs_f64().max(1e-9);
                let pays = speedup > 1.0;
                tracing::info!(name, limit, ?alone, ?batch, speedup, pays, "batching measured");
                (warm.limit, warm.speedup) = (if pays { limit } else { 1 }, Some(speedup));
            }
            Err(error) => {
                tracing::warn!(name, limit, %error, "batching disabled: the model fails on a batch");
            }
        }
        warm.times = if max_batch > 1 { self.measure_rows(model, alone, took) } else { vec![alone] };
        Ok(warm)
    }

    /// Runs each listed size, so that none is compiled while a client waits. A model that does not run on zeros is left out.
    fn warm_up_sizes(&self, sizes: &[usize], warm: &Warm, model: &mut dyn Model) -> Result<(), Error> {
        if warm.times.is_empty() {
            return Ok(());
        }
        sizes.iter().try_for_each(|rows| {
            let failed =
                |error| Error::WarmUp { message: format!("{rows} rows, a size for the card: {error}") };
            time(model, *rows, true, 1).map(drop).map_err(failed)
        })
    }

    /// Run times of 1, 2, 4 and 8 rows, as far as there is time to measure them: frontends use them as the cost of a
    /// stand-in. `took` is the time that all warm-up runs of one row took.
    ///
    /// The sizes take turns, and the lower quartile counts: other work on the machine only adds time. A size that takes
    /// less than a smaller one was disturbed, so all sizes are measured again, once, for as long. A size that was begun in
    /// time has at least two turns, so this may exceed its time by these and a compilation.
    fn measure_rows(&self, model: &mut dyn Model, alone: Duration, mut took: Duration) -> Vec<Duration> {
        let until = Instant::now() + self.config.measure;
        // A replica has its own compiled plans if the engine compiles for shapes.
        let mut replica = model.replica();
        let model: &mut dyn Model = match &mut replica {
            Some(own) => &mut **own,
            None => model,
        };
        let mut sizes = vec![MEASURED_ROWS[0]];
        for rows in MEASURED_ROWS.into_iter().skip(1) {
            let started = Instant::now();
            // Larger sizes take at least as long. The first run, which also compiles, is not counted.
            if started + took > until || time(model, rows, true, 1).is_err() {
                break;
            }
            sizes.push(rows);
            took = started.elapsed();
        }
        let mut times = quartiles(model, &sizes, until).unwrap_or_default();
        if !times.is_sorted() {
            let again = Instant::now() + self.config.measure;
            times = quartiles(model, &sizes, again).unwrap_or(times);
        }
        if times.is_empty() { vec![alone] } else { rising(times) }
    }
}

/// Maximum rows of a request for a model: as `config.pbtxt` declares, otherwise if trial runs show that rows are independent. 0 if
/// its first dimension is not a batch, is declared not to be one, or could not be shown to be one, which is returned as well.
fn most_rows(
    config: &Config,
    name: &str,
    declared: Option<usize>,
    model: &mut dyn Model,
) -> (usize, Option<String>) {
    if !model.signature().is_batched() {
        return (0, None);
    }
    let most = config.max_rows.get().min(declared.unwrap_or(usize::MAX));
    if declared.is_some() {
        return (most, None);
    }
    match rows::independent(model, config.measure) {
        Ok(()) => (most, None),
        Err(reason) => {
            tracing::warn!(
                name,
                %reason,
                "requests stay whole: the first dimension is not shown to be a batch (max_batch_size in its config.pbtxt overrides this)"
            );
            (0, Some(reason))
        }
    }
}

/// Numbers of rows for an engine that needs fixed ones.
const FIXED_ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The only numbers of rows that a model runs, which the engine needs because it is slow whenever the number changes. Any
/// number if there are none.
///
/// Each is run once, and those for which a card has too little memory are left out.
fn fix_rows(model: &mut dyn Model, most: usize) -> Result<Vec<usize>, Error> {
    // Without independent rows the rows that fill up a batch would change the answer.
    if most <= 1 {
        return Ok(Vec::new());
    }
    let wanted: Vec<usize> = FIXED_ROWS.into_iter().filter(|&rows| rows <= most).collect();
    let sizes = model.fix_rows(&wanted)?;
    let mut fails = |rows: usize| time(model, rows, true, 1).is_err();
    let Some(smallest) = sizes.first() else { return Ok(sizes) };
    if fails(*smallest) {
        // Blank inputs show nothing about this model. The warm-up tells.
        return Ok(sizes);
    }
    let Some(failed) = sizes.iter().position(|rows| fails(*rows)) else { return Ok(sizes) };
    let largest = sizes[failed - 1];
    tracing::warn!(failed = sizes[failed], largest, "larger batches are split: the model fails on them");
    model.fix_rows(&sizes[..failed])
}

/// Turns of a measurement: that many if the time allows, and up to the most if they are short.
const TURNS: usize = 5;
const MOST_TURNS: usize = 25;
const SHORT: Duration = Duration::from_millis(200);

/// The lower quartiles of the run times of these numbers of rows, which take turns.
fn quartiles(model: &mut dyn Model, sizes: &[usize], until: Instant) -> Result<Vec<Duration>, Error> {
    let inputs = sizes.iter().map(|&rows| model.signature().blank(rows)).collect::<Result<Vec<_>, _>>()?;
    let mut times = vec![Vec::new(); sizes.len()];
    let short = Instant::now() + SHORT;
    for turn in 0..MOST_TURNS {
        for (times, inputs) in times.iter_mut().zip(&inputs) {
            let started = Instant::now();
            guarded(|| model.run(inputs))?;
            times.push(started.elapsed());
        }
        let now = Instant::now();
        if (turn > 0 && now >= until) || (turn + 1 >= TURNS && now >= short) {
            break;
        }
    }
    let quartile = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 4]
    };
    Ok(times.into_iter().map(quartile).collect())
}

/// More rows take no less time: a fall that remains is noise.
fn rising(mut times: Vec<Duration>) -> Vec<Duration> {
    for at in 1..times.len() {
        times[at] = times[at].max(times[at - 1]);
    }
    times
}

/// The `config.pbtxt` of a model. Names its mistakes, and the fields that are ignored.
fn triton(name: &str, source: &Source) -> TritonConfig {
    let Source::File(version) = source else { return TritonConfig::default() };
    let Some(config) = TritonConfig::beside(&version.path) else { return TritonConfig::default() };
    let TritonConfig { max_batch_size, ignored, problems } = &config;
    let file = version.path.ancestors().nth(2).map(|folder| folder.join("config.pbtxt")).unwrap_or_default();
    for problem in problems {
        tracing::warn!(name, file = %file.display(), %problem, "config.pbtxt: a mistake is ignored");
    }
    let ignored = ignored.join(", ");
    tracing::info!(name, max_batch_size, ignored, "config.pbtxt: other fields are ignored");
    config
}

/// Loads a file, compares its answers and runs it once. Fails where a worker with these settings would not
/// load it.
pub fn try_file(engine: &dyn Engine, path: &Path, config: &Config) -> Result<(), Error> {
    guarded(|| {
        let mut model = engine.load(path, &config.engine)?;
        engine::compare(engine, &mut *model, path, &config.engine)?;
        let mut model = match Texts::beside(path)? {
            Some(texts) => texts.over(model).0,
            None => model,
        };
        alone(&mut *model, false, 1).map(drop)
    })
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

/// Times one row of blank inputs. The inner error is that of a model which runs on other inputs only.
fn alone(model: &mut dyn Model, batched: bool, runs: u32) -> Result<Result<Duration, Error>, Error> {
    match time(model, 1, batched, runs) {
        Err(error) if !rows::runs(model) => Err(Error::WarmUp { message: error.to_string() }),
        outcome => Ok(outcome),
    }
}

/// Median time of some runs on blank inputs, after one that is not counted.
fn time(model: &mut dyn Model, rows: usize, batched: bool, runs: u32) -> Result<Duration, Error> {
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
    }
    let counted = &mut times[1..];
    counted.sort();
    Ok(counted[counted.len() / 2])
}

/// The processor, by which measured costs of one machine are recognised as those of another: its model and architecture, and the instructions on which the cost of 8 bits depends, for runs with this
/// many threads.
pub fn processor(threads: NonZeroUsize) -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_of(&text));
        let parts = [model, Some(std::env::consts::ARCH.into()), vnni().then(|| "VNNI".into())];
        parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
    });
    if threads.get() == 1 { name.clone() } else { format!("{name}, {threads} threads") }
}

/// The first model in the kernel's list of processors.
fn model_of(list: &str) -> Option<String> {
    let line = list.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
fn vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn vnni() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use parm_protocol::{DataType, Tensor};

    use super::*;

    #[test]
    fn run_times_never_fall_with_more_rows() {
        let ms = |all: [u64; 4]| all.map(Duration::from_millis).to_vec();
        assert_eq!(rising(ms([3, 2, 7, 5])), ms([3, 3, 7, 7]));
    }

    #[test]
    fn quartiles_have_a_time_for_each_size() {
        let mut model = Spec::default().load(Path::new(""), &Default::default()).unwrap();
        let times = quartiles(&mut *model, &[1, 2, 4], Instant::now()).unwrap();
        assert!(times.len() == 3 && times.iter().all(|time| *time >= Duration::from_millis(5)), "{times:?}");
    }

    /// A model on a card with memory for a few rows.
    struct Small {
        signature: crate::engine::Signature,
        sizes: Vec<usize>,
        most: usize,
    }

    impl Model for Small {
        fn signature(&self) -> &crate::engine::Signature {
            &self.signature
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
            let rows = inputs[0].rows();
            if rows > self.most {
                Err(Error::Run { message: "no memory".into() })
            } else {
                Ok(inputs.to_vec())
            }
        }

        fn fix_rows(&mut self, wanted: &[usize]) -> Result<Vec<usize>, Error> {
            self.sizes = wanted.to_vec();
            Ok(self.sizes.clone())
        }
    }

    #[test]
    fn sizes_for_which_a_card_has_no_memory_are_left_out() {
        let x = crate::engine::Declared { name: "x".into(), datatype: DataType::Fp32, shape: vec![-1, 2] };
        let signature = crate::engine::Signature { inputs: vec![x.clone()], outputs: vec![x] };
        // A model that runs on no blank input keeps its sizes.
        for (most, memory, sizes) in [
            (64, 64, &[1, 2, 4, 8, 16, 32, 64][..]),
            (9, 64, &[1, 2, 4, 8]),
            (64, 5, &[1, 2, 4]),
            (2, 0, &[1, 2]),
            (0, 64, &[]),
        ] {
            let mut model = Small { signature: signature.clone(), sizes: Vec::new(), most: memory };
            assert_eq!(fix_rows(&mut model, most).unwrap(), sizes);
            assert_eq!(model.sizes, sizes);
        }
    }

    #[test]
    fn processor_has_its_model_and_threads() {
        let list = "processor\t: 0\nmodel name\t: Maker X7\nflags\t\t: fpu\n";
        assert_eq!(model_of(list).as_deref(), Some("Maker X7"));
        assert_eq!(model_of("processor: 0"), None);
        let (one, two) = (processor(NonZeroUsize::MIN), processor(NonZeroUsize::new(2).unwrap()));
        assert!(one.contains(std::env::consts::ARCH) && two == format!("{one}, 2 threads"), "{one}, {two}");
    }
}
