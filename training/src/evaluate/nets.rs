//! The encoder and decoder networks of a learned code, run by a function of the caller.

use std::fmt;
use std::sync::Mutex;

use parm_encoder::{CodeSpec, Nets};

use crate::{Array, Error};

/// A model that returns its first output for rows, wherever it runs.
pub type Model<'a> = dyn Fn(&Array<f32>) -> Result<Array<f32>, Error> + 'a;

/// A model that can be moved to another thread.
type Movable = Box<dyn Fn(&Array<f32>) -> Result<Array<f32>, Error> + Send>;

/// The two networks of a learned code. They read and write one tensor after another: the encoder reads the k queries
/// as one tensor, whose first dimension is k times a query's; the decoder reads k + r outputs.
pub struct Pair {
    networks: Mutex<[Movable; 2]>,
    queries: Vec<usize>,
    outputs: usize,
}

impl Pair {
    /// Encoder and decoder of the code `spec` for queries of dimensions `query`.
    pub fn new(spec: &CodeSpec, query: &[usize], encoder: Movable, decoder: Movable) -> Self {
        let mut queries = query.to_vec();
        queries.iter_mut().take(1).for_each(|first| *first *= spec.k);
        Self { networks: Mutex::new([encoder, decoder]), queries, outputs: spec.k + spec.r }
    }

    fn run(&self, network: usize, row: &[usize], values: &[f32], out: &mut [f32]) -> Result<(), String> {
        let shape = std::iter::once(1).chain(row.iter().copied()).collect();
        let given = Array::new(shape, values.to_vec());
        let given = given.ok_or_else(|| format!("{} values instead of {row:?}", values.len()))?;
        let networks =
            self.networks.lock().map_err(|_| "the network failed in an earlier call".to_owned())?;
        let made = networks[network](&given).map_err(|error| error.to_string())?;
        if made.data().len() != out.len() {
            return Err(format!("the network makes {} values instead of {}", made.data().len(), out.len()));
        }
        out.copy_from_slice(made.data());
        Ok(())
    }
}

impl Nets for Pair {
    fn encode(&self, queries: &[f32], parities: &mut [f32]) -> Result<(), String> {
        self.run(0, &self.queries, queries, parities)
    }

    fn decode(&self, outputs: &[f32], predictions: &mut [f32]) -> Result<(), String> {
        let row = [self.outputs, outputs.len() / self.outputs];
        self.run(1, &row, outputs, predictions)
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("queries", &self.queries).field("outputs", &self.outputs).finish()
    }
}
