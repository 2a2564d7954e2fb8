//! The deployed model of a cell: trained from labels once for all cells that share it, or given as a file and run
//! once on every row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use parm_grids::Share;
use parm_parity_models::onnx::{Limits, Model};
use serde::{Deserialize, Serialize};

use super::Cell;
use super::run::{Loaded, Runner, lock, resumed};
use crate::base::{self, Shape};
use crate::fit::{Surroundings, Unobserved};
use crate::{Array, Error, Teacher, file};

/// A supplied model. Only its answers are known; parity models have another architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Its ONNX file, where `{}` stands for the folder of data.
    pub file: String,
    /// The architecture of parity models: a base model's, see `parm train base --help`.
    pub network: String,
}

/// Opens a model that is given as a file.
pub type OpenTeacher<'a> = dyn Fn(&Path) -> Result<Box<dyn Teacher>, Error> + Sync + 'a;

/// The source of a cell's parity models.
pub(super) struct Deployed {
    /// The graph to derive them from.
    pub(super) graph: Model,
    /// The deployed model's file.
    pub(super) file: PathBuf,
    /// A supplied model's answers; `None`: the graph itself answers.
    pub(super) answers: Option<Arc<Answers>>,
}

/// A supplied model's answers to all rows.
pub(super) struct Answers {
    pub(super) train: Array<f32>,
    pub(super) test: Array<f32>,
}

/// The answers of a model that was run already.
type KnownAnswers = Option<Arc<Answers>>;

/// A lock for each deployed model, with its answers. In a share of a grid also digests of the data: a base model of other
/// data has another name.
#[derive(Default)]
pub(super) struct Bases {
    locks: Mutex<BTreeMap<String, Arc<Mutex<KnownAnswers>>>>,
    share: Option<Share>,
    digests: BTreeMap<String, String>,
}

impl Bases {
    /// The deployed models of a share, in a folder of results that other shares may use at the same time.
    pub(super) fn of_share(share: Share, digests: BTreeMap<String, String>) -> Self {
        Self { share: Some(share), digests, ..Self::default() }
    }

    /// The deployed model of a cell. Cells that share one wait here until the first cell has trained or run it.
    pub(super) fn deployed(
        &self,
        runner: &Runner<'_>,
        cell: &Cell,
        data: &Loaded,
    ) -> Result<Deployed, Error> {
        let mut key = cell.base_key(runner.matrix);
        if let Some(digest) = self.digests.get(&cell.data) {
            key = parm_grids::key(format!("{key} {digest}").as_bytes());
        }
        let own = lock(&self.locks).entry(key.clone()).or_default().clone();
        let mut asked = lock(&own);
        let Some(given) = runner.matrix.deployed.get(&cell.base) else {
            let (graph, file) = self.trained(runner, cell, data, &key)?;
            return Ok(Deployed { graph, file, answers: None });
        };
        let file = PathBuf::from(given.file.replace("{}", &runner.place.data.to_string_lossy()));
        let answers = match &*asked {
            Some(answers) => answers.clone(),
            None => asked.insert(Arc::new(answers(runner, &file, data)?)).clone(),
        };
        let (dims, outputs) = (data.train.inputs.shape()[1..].to_vec(), answers.train.shape()[1]);
        let graph = base::build(&given.network, &Shape { dims, outputs, seed: cell.seed })?;
        Ok(Deployed { graph, file, answers: Some(answers) })
    }

    /// The base model and its file: trained, or read from an earlier run or another share.
    fn trained(
        &self,
        runner: &Runner<'_>,
        cell: &Cell,
        data: &Loaded,
        key: &str,
    ) -> Result<(Model, PathBuf), Error> {
        let path = runner.place.results.join("bases").join(format!("{key}.onnx"));
        if path.exists() {
            return Ok((Model::open(&path, &Limits::default())?, path));
        }
        let recipe = runner.matrix.base(cell);
        // Another share may train the same model now, so each has its own checkpoint. The last to finish replaces the file.
        let own = match self.share {
            Some(share) => format!("{key}.share-{}", share.to_string().replace('/', "-of-")),
            None => key.to_owned(),
        };
        let files = runner.files("bases", &own);
        let around = Surroundings { observer: &Unobserved, stop: runner.stop, files: &files };
        let trained = resumed(&files, || base::train(&data.train, &recipe, runner.device, around))?;
        file::write(&path, &trained.model)?;
        files.forget_checkpoint();
        Ok((Model::from_bytes(trained.model, &Limits::default())?, path))
    }
}

fn answers(runner: &Runner<'_>, file: &Path, data: &Loaded) -> Result<Answers, Error> {
    let teacher = (runner.ask)(file)?;
    Ok(Answers { train: teacher.predict(&data.train.inputs)?, test: teacher.predict(&data.test.inputs)? })
}
