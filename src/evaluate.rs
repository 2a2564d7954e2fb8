//! `parm evaluate`: measures the codes of a bundle, and codes that need no training, on data.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parm_backend::EngineConfig;
use parm_encoder::{Code, CodeSpec, Kind, Learned};
use parm_frontend::LoadNets;
use parm_parity_models::bundle::{Calibration, Manifest, Meaning, ModelFile, Parity};
use parm_parity_models::onnx::{Limits, Model};
use parm_parity_models::repository::Repository;
use parm_training::data::{Limit, Samples, Source, normalise};
use parm_training::evaluate::{self, Bench, Contender, Metric, Order, Report, Rules, Table};
use parm_training::{Array, Error, Teacher};

use crate::Failure;
use crate::cli::evaluate::{Evaluate, Form};
use crate::nets::Engine;
use crate::train::engine::BlackBox;

/// Runs the command. Flags and files that cannot be used end with status 64.
pub fn main(flags: &Evaluate) -> Result<(), Failure> {
    let subject = Subject::open(flags).map_err(Failure::Configuration)?;
    let table = subject.measure(flags).map_err(Failure::Run)?;
    show(&table, flags).map_err(Failure::Run)
}

/// The model that is evaluated, with its data and its codes.
struct Subject {
    path: PathBuf,
    /// The repository and the bundle, unless the model is a file of its own.
    bundle: Option<Bundle>,
    samples: Samples,
    rules: Rules,
    /// Codes that need no training.
    untrained: Vec<CodeSpec>,
}

struct Bundle {
    repository: Repository,
    manifest: Manifest,
    path: PathBuf,
}

impl Subject {
    fn open(flags: &Evaluate) -> anyhow::Result<Self> {
        let (path, bundle) = find(&flags.model, &flags.models)?;
        let inputs = Model::open(&path, &Limits::default()).map_or(1, |model| model.inspect().inputs.len());
        if inputs > 1 {
            bail!(
                "the model has {inputs} inputs, but codes need one: measure stand-ins with `parm stand-in --test`"
            );
        }
        let source: Source = flags.data.parse()?;
        let mut samples = source.read(Limit::default())?;
        let mut meaning = Meaning::Logits;
        if let Some(Bundle { manifest, .. }) = &bundle {
            meaning = manifest.deployed.outputs.first().map_or(meaning, |output| output.meaning);
            if let Some(preprocessing) = &manifest.deployed.preprocessing {
                normalise(&mut samples.inputs, preprocessing)?;
            }
        }
        let by_default = if samples.values.is_some() { Metric::AbsoluteError } else { Metric::TOP_1 };
        let metric = flags.metric.as_deref().map_or(Ok(by_default), str::parse)?;
        let untrained = match &flags.code[..] {
            [] => bundle.as_ref().map(Bundle::untrained).unwrap_or_default(),
            given => given.iter().map(|text| code(text)).collect::<anyhow::Result<_>>()?,
        };
        if bundle.is_none() && untrained.is_empty() {
            bail!("a model without a bundle has no code: name one, such as --code berrut:k=2");
        }
        Ok(Self { path, bundle, samples, rules: Rules { metric, meaning, seed: flags.seed }, untrained })
    }

    fn measure(&self, flags: &Evaluate) -> anyhow::Result<Table> {
        let engine = BlackBox::load(&flags.engine, &self.path)?;
        let deployed = |rows: &Array<f32>| engine.predict(rows);
        let mut bench = Bench::new(&deployed, &self.samples, self.rules)?;
        if let Some(path) = &flags.backup {
            let engine = BlackBox::load(&flags.engine, path)?;
            bench = bench.with_backup(&|rows: &Array<f32>| engine.predict(rows))?;
        }
        let mut table = Table::default();
        if let Some(bundle) = &self.bundle {
            let mut manifest = bundle.manifest.clone();
            for parity in &mut manifest.parities {
                let opened = bundle.open(parity, &flags.engine)?;
                let report = opened.judge(&bench)?;
                parity.accuracy = report.accuracy().or(parity.accuracy.take());
                table.push(opened.name, report);
            }
            if flags.write {
                manifest.write(&bundle.path)?;
            }
        }
        for spec in &self.untrained {
            let code = spec.build()?;
            let calibration = Calibration::default();
            let contender = Contender { code: &*code, models: &[], calibration, order: Order::Drawn };
            table.push(spec.kind.to_string(), bench.judge(&contender)?);
            // Interpolation is more accurate between similar queries.
            if !spec.recovery().is_systematic() && spec.k > 2 {
                let report = bench.judge(&Contender { order: Order::Path, ..contender })?;
                table.push(format!("{} along a path", spec.kind), report);
            }
        }
        Ok(table)
    }
}

/// Finds the model's file and, if it is in a repository, its bundle.
fn find(model: &str, models: &Path) -> anyhow::Result<(PathBuf, Option<Bundle>)> {
    if Path::new(model).is_file() {
        return Ok((PathBuf::from(model), None));
    }
    let repository = Repository::open(models)?;
    let found = repository.model(model)?;
    let Some(path) = &found.bundle else {
        let (_, version) = found.latest().with_context(|| format!("model '{model}' has no version"))?;
        return Ok((version.path.clone(), None));
    };
    let manifest = Manifest::read(path)?;
    let version = manifest.deployed.version;
    let file = found.versions.get(&version);
    let file = file.with_context(|| {
        format!("model '{model}' has no version {version}, for which its bundle was made")
    })?;
    let (file, path) = (file.path.clone(), path.clone());
    Ok((file, Some(Bundle { repository, manifest, path })))
}

/// A model that an engine runs.
type LoadedModel = Box<dyn Fn(&Array<f32>) -> Result<Array<f32>, Error>>;

/// A code of a bundle with its loaded models.
struct Opened {
    name: String,
    code: Box<dyn Code>,
    models: Vec<LoadedModel>,
    calibration: Calibration,
}

impl Opened {
    fn judge(&self, bench: &Bench<'_>) -> anyhow::Result<Report> {
        let models: Vec<&evaluate::Model<'_>> = self.models.iter().map(|model| &**model as _).collect();
        let (code, calibration, order) = (&*self.code, self.calibration, Order::Drawn);
        let contender = Contender { code, models: &models, calibration, order };
        bench.judge(&contender).with_context(|| self.name.clone())
    }
}

impl Bundle {
    fn open(&self, parity: &Parity, engine: &str) -> anyhow::Result<Opened> {
        let load = |file: &ModelFile| -> anyhow::Result<LoadedModel> {
            let engine = BlackBox::load(engine, &self.file(file)?)?;
            Ok(Box::new(move |rows| engine.predict(rows)))
        };
        let code: Box<dyn Code> = match &parity.learned {
            Some(learned) => {
                let (encoder, decoder) = (self.file(&learned.encoder)?, self.file(&learned.decoder)?);
                let engine = Engine(EngineConfig { name: engine.into(), ..EngineConfig::default() });
                let nets = engine.load(&encoder, &decoder).map_err(anyhow::Error::msg)?;
                Box::new(Learned::new(&parity.code, nets)?)
            }
            None => parity.code.build()?,
        };
        let name = match (parity.models.first(), &parity.learned) {
            (Some(model), _) => model.name.clone(),
            (None, Some(learned)) => learned.encoder.name.clone(),
            (None, None) => parity.code.kind.to_string(),
        };
        let models = parity.models.iter().map(load).collect::<anyhow::Result<_>>()?;
        Ok(Opened { name, code, models, calibration: parity.calibration.unwrap_or_default() })
    }

    fn file(&self, file: &ModelFile) -> anyhow::Result<PathBuf> {
        let model = self.repository.model(&file.name)?;
        let version = model.versions.get(&file.version);
        let missing = || format!("model '{}' has no version {}", file.name, file.version);
        Ok(version.with_context(missing)?.path.clone())
    }

    /// Codes that need no training, for each k of the bundle.
    fn untrained(&self) -> Vec<CodeSpec> {
        let mut sizes: Vec<usize> = self.manifest.parities.iter().map(|parity| parity.code.k).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let kinds = Kind::ALL.into_iter().filter(|kind| !kind.needs_bundle() && !kind.needs_affine_model());
        let specs = kinds.flat_map(|kind| sizes.iter().map(move |&k| CodeSpec::new(kind, k, 1)));
        specs.filter(|spec| spec.build().is_ok()).collect()
    }
}

/// A code from `KIND:k=2,r=1`.
fn code(text: &str) -> anyhow::Result<CodeSpec> {
    let wrong =
        || format!("invalid code '{text}': name a code that needs no training, such as berrut:k=4,r=1");
    let (kind, numbers) = text.split_once(':').with_context(wrong)?;
    let kind = kind.parse::<Kind>().ok().filter(|kind| !kind.needs_bundle()).with_context(wrong)?;
    let mut spec = CodeSpec::new(kind, 2, 1);
    for number in numbers.split(',') {
        match number.split_once('=').with_context(wrong)? {
            ("k", value) => spec.k = value.parse().with_context(wrong)?,
            ("r", value) => spec.r = value.parse().with_context(wrong)?,
            _ => bail!(wrong()),
        }
    }
    spec.build().with_context(wrong)?;
    Ok(spec)
}

fn show(table: &Table, flags: &Evaluate) -> anyhow::Result<()> {
    let text = match flags.output {
        Form::Text => table.to_string(),
        Form::Json => serde_json::to_string_pretty(table)? + "\n",
        Form::Csv => table.to_csv(),
    };
    Ok(write!(crate::printer::stdout(), "{text}")?)
}
