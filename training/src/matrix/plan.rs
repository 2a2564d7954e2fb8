//! The file that defines the cells of a matrix.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::base::Base;
use crate::code;
use crate::data::{Limit, Samples, Source};
use crate::evaluate::Metric;
use crate::parity::ParityRecipe;

/// A matrix of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Data sets by name.
    pub data: BTreeMap<String, Data>,
    /// Settings of base models, by name.
    #[serde(default)]
    pub base: BTreeMap<String, Base>,
    /// Supplied models, by name; a cell uses one in place of a base model. Default: none.
    #[serde(default)]
    pub deployed: BTreeMap<String, Given>,
    /// Settings of parity models, by name. The cell's k, r and seed replace the recipe's.
    #[serde(default)]
    pub recipe: BTreeMap<String, ParityRecipe>,
    /// Settings of learned codes, by name; a cell uses one in place of a recipe. Default: none.
    #[serde(default)]
    pub code: BTreeMap<String, code::CodeRecipe>,
    /// The cells, as products of lists.
    pub cells: Vec<Product>,
}

/// Lists of values; every combination is a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Names of data sets.
    pub data: Vec<String>,
    /// Names of base models.
    pub base: Vec<String>,
    /// Names of recipes.
    pub recipe: Vec<String>,
    /// Queries in a group.
    pub k: Vec<usize>,
    /// Parities of a group. Default 1.
    #[serde(default = "one")]
    pub r: Vec<usize>,
    /// Seeds of base model and parity models.
    pub seed: Vec<u64>,
}

fn one() -> Vec<usize> {
    vec![1]
}

/// A data set: sources of rows, where `{}` stands for the folder of data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Rows to learn from, as `KIND:PATH,PATH?setting=value`.
    pub train: String,
    /// Rows that no training sees.
    pub test: String,
    /// The measure: `accuracy`, `iou` or `agreement`. Default `accuracy`.
    #[serde(default)]
    pub measure: Measure,
    /// A remark for the figures, for example that the data are lossy. Default: none.
    #[serde(default)]
    pub note: String,
}

/// The measure for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Accuracy by the labels.
    #[default]
    Accuracy,
    /// Intersection over union with the true box.
    Iou,
    /// Agreement with the deployed model's answer; labels are ignored.
    Agreement,
}

/// A supplied model. Only its answers are known; parity models have another architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Its ONNX file, where `{}` stands for the folder of data.
    pub file: String,
    /// The architecture of parity models: a base model's, see `parm train base --help`.
    pub network: String,
}

/// One run of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Data set.
    pub data: String,
    /// Base model.
    pub base: String,
    /// Recipe.
    pub recipe: String,
    /// Queries in a group.
    pub k: usize,
    /// Parities of a group.
    pub r: usize,
    /// Seed.
    pub seed: u64,
}

/// The source of predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Foundation {
    /// A model that the matrix trains.
    Trained(Base),
    /// A supplied model.
    Given(Given),
}

/// The training of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Way {
    /// Parity models.
    Parity(ParityRecipe),
    /// Encoder and decoder.
    Code(code::CodeRecipe),
}

impl Matrix {
    /// Parses a file's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let wrong = |message: String| Error::Matrix { path: path.into(), message };
        let matrix: Self =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().into()))?;
        for source in matrix.data.values().flat_map(|data| [&data.train, &data.test]) {
            source.parse::<Source>().map_err(|error| wrong(error.to_string()))?;
        }
        let find = |kind: &str, names: &[String], is_known: &dyn Fn(&str) -> bool| {
            let unknown = names.iter().find(|name| !is_known(name));
            unknown.map(|name| format!("unknown {kind} '{name}': define it in the file"))
        };
        let Self { data, base, deployed, recipe, code, .. } = &matrix;
        for product in &matrix.cells {
            let fault = find("data", &product.data, &|name| data.contains_key(name))
                .or_else(|| {
                    find("base", &product.base, &|name| {
                        base.contains_key(name) || deployed.contains_key(name)
                    })
                })
                .or_else(|| {
                    find("recipe", &product.recipe, &|name| {
                        recipe.contains_key(name) || code.contains_key(name)
                    })
                })
                .or_else(|| matrix.unfit(product));
            if let Some(message) = fault {
                return Err(wrong(message));
            }
        }
        Ok(matrix)
    }

    /// The reason why a product cannot run on a supplied model, which cannot be trained through.
    fn unfit(&self, product: &Product) -> Option<String> {
        let base = product.base.iter().find(|base| self.deployed.contains_key(*base))?;
        let wants_graph = |name: &&String| {
            let changes = |recipe: &ParityRecipe| !recipe.augment.is_none();
            self.code.contains_key(*name) || self.recipe.get(*name).is_some_and(changes)
        };
        let recipe = product.recipe.iter().find(wants_graph)?;
        Some(format!(
            "'{base}' is asked once about every row, but '{recipe}' goes through its graph or changes rows: use a recipe \
             without augmentation"
        ))
    }

    /// The cells, ordered by seed, so that tables fill evenly.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for product in &self.cells {
            for (data, base) in pairs(&product.data, &product.base) {
                for (recipe, &k) in pairs(&product.recipe, &product.k) {
                    for (&r, &seed) in pairs(&product.r, &product.seed) {
                        let (data, base, recipe) = (data.clone(), base.clone(), recipe.clone());
                        cells.push(Cell { data, base, recipe, k, r, seed });
                    }
                }
            }
        }
        cells.sort_by_key(|cell| cell.seed);
        cells
    }

    /// The cells of the grid without digests, which need the data.
    pub fn grid(&self) -> Vec<parm_grids::Cell> {
        let cell = |cell: Cell| {
            let (key, name, inputs) = (cell.key(self), cell.to_string(), BTreeMap::new());
            parm_grids::Cell { key, name, inputs }
        };
        self.cells().into_iter().map(cell).collect()
    }

    /// The settings of a cell's base model, which the matrix trains.
    pub(super) fn base(&self, cell: &Cell) -> Base {
        let mut base = self.base[&cell.base].clone();
        base.run.seed = cell.seed;
        base
    }

    /// The training of a cell's code.
    pub(super) fn way(&self, cell: &Cell) -> Way {
        if let Some(code) = self.code.get(&cell.recipe) {
            let mut code = code.clone();
            (code.k, code.r, code.run.seed) = (cell.k, cell.r, cell.seed);
            return Way::Code(code);
        }
        let mut recipe = self.recipe[&cell.recipe].clone();
        (recipe.k, recipe.r, recipe.run.seed) = (cell.k, cell.r, cell.seed);
        Way::Parity(recipe)
    }
}

fn pairs<'a, A, B>(left: &'a [A], right: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    left.iter().flat_map(move |a| right.iter().map(move |b| (a, b)))
}

impl Cell {
    /// A key that changes with every setting that the result depends on: a result with another key belongs to another
    /// run.
    pub fn key(&self, matrix: &Matrix) -> String {
        self.short(matrix, &(self, self.foundation(matrix), matrix.way(self)))
    }

    /// The same for its deployed model, which other cells share.
    pub(super) fn base_key(&self, matrix: &Matrix) -> String {
        self.short(matrix, &(&self.data, self.foundation(matrix)))
    }

    fn foundation(&self, matrix: &Matrix) -> Foundation {
        match matrix.deployed.get(&self.base) {
            Some(given) => Foundation::Given(given.clone()),
            None => Foundation::Trained(matrix.base(self)),
        }
    }

    /// A digest of settings, including those of the data if there are any.
    fn short(&self, matrix: &Matrix, settings: &impl Serialize) -> String {
        let settings = match matrix.data[&self.data].settings() {
            Some(data) => serde_json::to_string(&(settings, data)),
            None => serde_json::to_string(settings),
        };
        let settings = settings.expect("settings are plain values");
        parm_grids::key(settings.as_bytes())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, base, recipe, k, r, seed } = self;
        write!(f, "{data} {base} {recipe} k={k} r={r} seed={seed}")
    }
}

impl Data {
    /// Rows to learn from and rows for the measurement.
    pub(super) fn read(&self, root: &Path) -> Result<(Samples, Samples), Error> {
        let read = |source: &str| -> Result<Samples, Error> {
            let source: Source = source.replace("{}", &root.to_string_lossy()).parse()?;
            let samples = source.read(Limit::default())?;
            let labels = samples.labels.filter(|_| self.measure != Measure::Agreement);
            Ok(Samples { labels, ..samples })
        };
        Ok((read(&self.train)?, read(&self.test)?))
    }

    /// The name of its rows in result files. Sets of several matrix files may share a name and differ in their settings.
    pub(super) fn input(&self, name: &str) -> String {
        match self.settings() {
            Some((train, test, _)) if !(train.is_empty() && test.is_empty()) => {
                format!("data {name} ({train}; {test})")
            }
            _ => format!("data {name}"),
        }
    }

    /// The settings that results depend on, without the set's name: the selected rows, how they are read, and the
    /// measure. The location of the files does not count. `None` if all are defaults.
    fn settings(&self) -> Option<(String, String, Measure)> {
        let of = |source: &str| source.split_once('?').map_or(String::new(), |(_, settings)| settings.into());
        let settings = (of(&self.train), of(&self.test), self.measure);
        (settings != Default::default()).then_some(settings)
    }
}

impl Measure {
    pub(super) fn metric(self) -> Metric {
        match self {
            Measure::Accuracy | Measure::Agreement => Metric::TOP_1,
            Measure::Iou => Metric::Iou,
        }
    }
}
