//! The file that defines the cells of a matrix.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Cell, Data, Given};
use crate::Error;
use crate::base::Base;
use crate::code;
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

impl Matrix {
    /// Parses a file's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let wrong = |message: String| Error::Matrix { path: path.into(), message };
        let matrix: Self =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().into()))?;
        for data in matrix.data.values() {
            data.check().map_err(|error| wrong(error.to_string()))?;
        }
        for product in &matrix.cells {
            let unknown = |kind: &str, names: &[String], known: &dyn Fn(&str) -> bool| {
                let name = names.iter().find(|name| !known(name));
                name.map(|name| wrong(format!("unknown {kind} '{name}': define it in the file")))
            };
            let faults = [
                unknown("data", &product.data, &|name| matrix.data.contains_key(name)),
                unknown("base", &product.base, &|name| {
                    matrix.base.contains_key(name) || matrix.deployed.contains_key(name)
                }),
                unknown("recipe", &product.recipe, &|name| {
                    matrix.recipe.contains_key(name) || matrix.code.contains_key(name)
                }),
            ];
            if let Some(fault) = faults.into_iter().flatten().next() {
                return Err(fault);
            }
            if let Some(message) = matrix.unfit(product) {
                return Err(wrong(message));
            }
        }
        Ok(matrix)
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

    /// The settings that the key of a cell's deployed model depends on.
    pub(super) fn foundation(&self, cell: &Cell) -> Foundation {
        match self.deployed.get(&cell.base) {
            Some(given) => Foundation::Given(given.clone()),
            None => Foundation::Trained(self.base(cell)),
        }
    }

    /// The settings of a cell's base model, which the matrix trains.
    pub(super) fn base(&self, cell: &Cell) -> Base {
        let mut base = self.base[&cell.base].clone();
        base.run.seed = cell.seed;
        base
    }

    /// The training of a cell's code.
    pub fn way(&self, cell: &Cell) -> Way {
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

/// The source of predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Foundation {
    /// A model that the matrix trains.
    Trained(Base),
    /// A supplied model.
    Given(Given),
}

/// The training of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Way {
    /// Parity models.
    Parity(ParityRecipe),
    /// Encoder and decoder.
    Code(code::CodeRecipe),
}

fn pairs<'a, A, B>(left: &'a [A], right: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    left.iter().flat_map(move |a| right.iter().map(move |b| (a, b)))
}
