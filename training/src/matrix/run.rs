//! Runs cells, one after the other. Several processes run shares of them at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use parm_grids::Folder;
use parm_parity_models::onnx::{Limits, Model};
use sha2::{Digest, Sha256};

use super::plan::Way;
use super::results::{Outcome, Results};
use super::{Cell, GRID, Matrix, Measure};
use crate::base::{self, Shape};
use crate::data::Samples;
use crate::fit::{CheckpointError, Files, Stop, Surroundings, Unobserved};
use crate::groups::{Groups, encode};
use crate::parity::{self, Materials, ParityRecipe, TrainedParities};
use crate::{Array, Device, Error, Teacher, code, file};

/// The folders of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder that data sets are relative to.
    pub data: PathBuf,
    /// The folder of results, base models and checkpoints.
    pub results: PathBuf,
}

/// Observes a matrix.
pub trait MatrixObserver {
    /// A cell begins; `left` cells have not begun.
    fn began(&self, cell: &Cell, left: usize);

    /// A cell has its result.
    fn finished(&self, outcome: &Outcome);
}

/// Opens a model that is given as a file.
pub type OpenTeacher<'a> = dyn Fn(&Path) -> Result<Box<dyn Teacher>, Error> + 'a;

/// Times models: a run of the parity model on one thread as a share of the deployed model's, by engine. An engine
/// that cannot run them is left out.
pub type Clock<'a> = dyn Fn(Runs<'_>) -> BTreeMap<String, f64> + 'a;

/// Two models, with one row for each.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// The deployed model's file.
    pub deployed: &'a Path,
    /// A query.
    pub query: &'a Array<f32>,
    /// The parity model's.
    pub parity: &'a Path,
    /// A coded query.
    pub coded: &'a Array<f32>,
}

/// Runs a matrix.
pub struct Runner<'a> {
    /// The matrix.
    pub matrix: &'a Matrix,
    /// Its folders.
    pub place: &'a Place,
    /// The device to train on.
    pub device: Device,
    /// Opens supplied models.
    pub ask: &'a OpenTeacher<'a>,
    /// Times parity models against their deployed model.
    pub clock: &'a Clock<'a>,
    /// Receives the events.
    pub observer: &'a dyn MatrixObserver,
    /// Requests the end.
    pub stop: &'a Stop,
}

/// A data set, read once for all cells.
struct Loaded {
    train: Samples,
    test: Samples,
    measure: Measure,
    /// A digest of the rows as training sees them, so that the form of their files does not matter.
    digest: String,
}

/// The source of a cell's parity models.
struct Deployed<'a> {
    /// The graph to derive them from.
    graph: Model,
    /// The deployed model's file.
    file: PathBuf,
    /// A supplied model's answers to the rows to learn from and to the test rows; `None`: the graph itself answers.
    answers: Option<&'a Answers>,
}

/// A supplied model's answers to the rows to learn from and to the test rows.
type Answers = [Array<f32>; 2];

impl Runner<'_> {
    /// Runs every cell without a result, and adds the results to `outcomes.jsonl`. An error ends the run; all other
    /// results are kept.
    pub fn run(&self) -> Result<Results, Error> {
        let known = Results::open(&self.place.results)?;
        let keys: BTreeSet<String> = self.matrix.grid().into_iter().map(|cell| cell.key).collect();
        self.run_share(&keys.iter().filter(|key| !known.has_line(key)).cloned().collect())?;
        let mut records = parm_grids::records(&self.place.results, GRID)?;
        records.retain(|record| keys.contains(&record.key));
        let mut results = Results::open(&self.place.results)?;
        results.join(&records)?;
        Ok(results)
    }

    /// Runs the cells with these keys that have no result in the folder, which other processes may use at the same time.
    pub fn run_share(&self, keys: &BTreeSet<String>) -> Result<(), Error> {
        let folder = Folder::create(&self.place.results, GRID)?;
        let mut data: BTreeMap<String, Loaded> = BTreeMap::new();
        let mut left = Vec::new();
        for (mut grid, cell) in self.matrix.grid().into_iter().zip(self.matrix.cells()) {
            if !keys.contains(&grid.key) {
                continue;
            }
            // A result of other rows is an error, which only digests show. So the rows are read before the question.
            if !data.contains_key(&cell.data) {
                data.insert(cell.data.clone(), self.load(&cell)?);
            }
            let input = self.matrix.data[&cell.data].input(&cell.data);
            grid.inputs.insert(input, data[&cell.data].digest.clone());
            if !folder.has_result(&grid)? {
                left.push((grid, cell));
            }
        }
        let mut answers = BTreeMap::new();
        for (at, (grid, cell)) in left.iter().enumerate() {
            if self.stop.is_requested() {
                break;
            }
            self.observer.began(cell, left.len() - at - 1);
            let outcome = self.cell(cell, &grid.key, &data[&cell.data], &mut answers)?;
            folder.keep(grid, outcome.product())?;
            self.observer.finished(&outcome);
        }
        Ok(())
    }

    fn load(&self, cell: &Cell) -> Result<Loaded, Error> {
        let data = &self.matrix.data[&cell.data];
        let (train, test) = data.read(&self.place.data)?;
        let mut digest = Sha256::new();
        for samples in [&train, &test] {
            for array in [Some(&samples.inputs), samples.values.as_ref()].into_iter().flatten() {
                array.shape().iter().for_each(|&size| digest.update((size as u64).to_le_bytes()));
                digest.update(bytemuck::cast_slice::<f32, u8>(array.data()));
            }
            samples.labels.iter().flatten().for_each(|&label| digest.update((label as u64).to_le_bytes()));
        }
        let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Loaded { train, test, measure: data.measure, digest })
    }

    fn cell(
        &self,
        cell: &Cell,
        key: &str,
        data: &Loaded,
        answers: &mut BTreeMap<String, Answers>,
    ) -> Result<Outcome, Error> {
        let deployed = self.deployed(cell, key, data, answers)?;
        let outcome = self.resumed("cells", key, |around| match self.matrix.way(cell) {
            Way::Parity(recipe) => self.parities(cell, key, (data, &deployed), &recipe, around),
            Way::Code(recipe) => self.learned(cell, (data, &deployed), &recipe, around),
        })?;
        Ok(Outcome { key: key.into(), ..outcome })
    }

    /// The deployed model of a cell: trained from labels once for all cells that share it, or given as a file and run
    /// once on every row.
    fn deployed<'a>(
        &self,
        cell: &Cell,
        key: &str,
        data: &Loaded,
        answers: &'a mut BTreeMap<String, Answers>,
    ) -> Result<Deployed<'a>, Error> {
        let base_key = parm_grids::key(format!("{} {}", cell.base_key(self.matrix), data.digest).as_bytes());
        let Some(given) = self.matrix.deployed.get(&cell.base) else {
            let (graph, file) = self.trained(cell, &format!("{base_key}.{key}"), data, &base_key)?;
            return Ok(Deployed { graph, file, answers: None });
        };
        let file = PathBuf::from(given.file.replace("{}", &self.place.data.to_string_lossy()));
        if !answers.contains_key(&base_key) {
            let teacher = (self.ask)(&file)?;
            let both = [teacher.predict(&data.train.inputs)?, teacher.predict(&data.test.inputs)?];
            answers.insert(base_key.clone(), both);
        }
        let answers = &answers[&base_key];
        let (dims, outputs) = (data.train.inputs.shape()[1..].to_vec(), answers[0].shape()[1]);
        let graph = base::build(&given.network, &Shape { dims, outputs, seed: cell.seed })?;
        Ok(Deployed { graph, file, answers: Some(answers) })
    }

    /// The base model and its file: trained, or read from an earlier run or another process. Processes that train it at
    /// the same time have separate checkpoints, and the last to finish replaces the file.
    fn trained(&self, cell: &Cell, own: &str, data: &Loaded, key: &str) -> Result<(Model, PathBuf), Error> {
        let path = self.file("bases", key, "onnx");
        if !path.exists() {
            let recipe = self.matrix.base(cell);
            self.resumed("bases", own, |around| {
                let trained = base::train(&data.train, &recipe, self.device, around)?;
                file::write(&path, &trained.model)
            })?;
        }
        Ok((Model::open(&path, &Limits::default())?, path))
    }

    /// Trains parity models, and measures them on rows that no training saw.
    fn parities(
        &self,
        cell: &Cell,
        key: &str,
        (data, deployed): (&Loaded, &Deployed<'_>),
        recipe: &ParityRecipe,
        around: Surroundings<'_>,
    ) -> Result<Outcome, Error> {
        let outputs = |at: usize| deployed.answers.map(|answers| &answers[at]);
        let (samples, graph) = (&data.train, &deployed.graph);
        let materials = Materials { samples, graph, teacher: None, outputs: outputs(0) };
        let trained = parity::train(materials, recipe, self.device, around)?;
        let test = Materials { samples: &data.test, outputs: outputs(1), ..materials };
        let report = parity::examine(test, &trained, Some(data.measure.metric()), self.device)?;
        let single = report.degraded.first();
        Ok(Outcome {
            cell: cell.clone(),
            key: String::new(),
            available: report.available,
            degraded: report.degraded(),
            two_lost: report.degraded.get(1).map(|degraded| degraded.score),
            gap_error: single.and_then(|degraded| degraded.gap_error),
            agreement: single.map(|degraded| degraded.agreement),
            calibration_error: report.calibration_error,
            costs: self.costs(key, (data, deployed), &trained)?,
            constant: report.constant_answer,
            reconstructions: single.map_or(0, |degraded| degraded.reconstructions),
            epochs: trained.history.len() as u64,
            groups: trained.groups,
            samples: trained.samples,
            seconds: trained.history.iter().map(|epoch| epoch.seconds).sum(),
        })
    }

    /// Trains encoder and decoder.
    fn learned(
        &self,
        cell: &Cell,
        (data, deployed): (&Loaded, &Deployed<'_>),
        recipe: &code::CodeRecipe,
        around: Surroundings<'_>,
    ) -> Result<Outcome, Error> {
        let trained =
            code::train(&data.train, Some(&data.test), &deployed.graph, recipe, self.device, around)?;
        let marks = trained.tested.as_ref().unwrap_or(&trained.marks);
        let most = data.test.classes().into_iter().max().unwrap_or(0);
        Ok(Outcome {
            cell: cell.clone(),
            key: String::new(),
            available: marks.available,
            degraded: marks.degraded,
            two_lost: None,
            gap_error: marks.gap_error,
            agreement: None,
            calibration_error: None,
            costs: BTreeMap::new(),
            constant: most as f64 / data.test.len() as f64,
            reconstructions: marks.reconstructions,
            epochs: trained.history.len() as u64,
            groups: trained.groups,
            samples: trained.samples,
            seconds: trained.history.iter().map(|epoch| epoch.seconds).sum(),
        })
    }

    /// The cost of the first parity model; all models of a code have the same layers.
    fn costs(
        &self,
        key: &str,
        (data, deployed): (&Loaded, &Deployed<'_>),
        trained: &TrainedParities,
    ) -> Result<BTreeMap<String, f64>, Error> {
        let rows = &data.test.inputs;
        let group = Groups::draw(rows.shape()[0], trained.code.k, 1)?.range(0, 1);
        let coded = encode(&*trained.code.build()?, &group, rows)?;
        let parity = self.file("cells", key, "onnx");
        file::write(&parity, &trained.models[0])?;
        let query = &rows.range(0, 1);
        let costs = (self.clock)(Runs { deployed: &deployed.file, query, parity: &parity, coded: &coded[0] });
        // A file that remains does no harm.
        let _ = fs::remove_file(&parity);
        Ok(costs)
    }

    /// Runs a training from its checkpoint if there is a usable one, and removes the checkpoint afterwards. A checkpoint of
    /// another program version, or an incomplete one, is dropped. Its name contains the settings, so it belongs to no
    /// other run.
    fn resumed<T>(
        &self,
        kind: &str,
        key: &str,
        run: impl Fn(Surroundings<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let path = |end: &str| Some(self.file(kind, key, end));
        let files = Files { checkpoint: path("checkpoint"), metrics: path("jsonl") };
        let around = Surroundings { observer: &Unobserved, stop: self.stop, files: &files };
        use CheckpointError::{Damaged, OtherRun};
        let done = match run(around) {
            Err(Error::Checkpoint(Damaged { .. } | OtherRun { .. }) | Error::CheckpointContent { .. }) => {
                files.forget_checkpoint();
                run(around)
            }
            ended => ended,
        }?;
        files.forget_checkpoint();
        Ok(done)
    }

    fn file(&self, kind: &str, key: &str, end: &str) -> PathBuf {
        self.place.results.join(kind).join(format!("{key}.{end}"))
    }
}
