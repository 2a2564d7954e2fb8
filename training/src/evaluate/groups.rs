//! Groups of rows that are coded together, and their coded queries.

use parm_encoder::{Code, Input, Members, Workspace, path};
use parm_random::Random;

use super::Mismatch;
use crate::Array;

/// Rows in groups of k, every row at most once. Up to k - 1 rows are left over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    k: usize,
    rows: Vec<usize>,
}

impl Groups {
    /// Random groups of `count` rows, the same for the same seed.
    pub fn draw(count: usize, k: usize, seed: u64) -> Result<Self, Mismatch> {
        if k == 0 || count < k {
            return Err(Mismatch::NoGroup { rows: count, k });
        }
        let keys = Random::named(seed, "groups").uniforms(1.0, count);
        let mut rows: Vec<usize> = (0..count).collect();
        rows.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
        rows.truncate(count - count % k);
        Ok(Self { k, rows })
    }

    /// The same groups, each ordered along a short path through its queries: codes that interpolate along a curve
    /// gain.
    pub fn along_paths(mut self, inputs: &Array<f32>) -> Self {
        let row = row_len(inputs);
        for group in self.rows.chunks_exact_mut(self.k) {
            let queries: Vec<&[f32]> = group.iter().map(|&at| &inputs.data()[at * row..][..row]).collect();
            let order = path::nearest(&queries);
            let before = group.to_vec();
            group.iter_mut().zip(order).for_each(|(slot, from)| *slot = before[from]);
        }
        self
    }

    /// Queries in a group.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of groups; never 0.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.rows.len() / self.k
    }

    /// The groups: a row for each slot.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.rows.chunks_exact(self.k)
    }

    /// Parts of at most `groups` groups, to bound the memory of coded queries.
    pub fn parts(&self, groups: usize) -> impl Iterator<Item = Groups> {
        self.rows.chunks(groups.max(1) * self.k).map(|rows| Groups { k: self.k, rows: rows.to_vec() })
    }
}

/// The coded queries of all groups: one array `[groups, ..]` for each coded query of a group.
pub fn encode(code: &dyn Code, groups: &Groups, inputs: &Array<f32>) -> Result<Vec<Array<f32>>, Mismatch> {
    let (k, rows) = (code.spec().k, inputs.shape().first().copied().unwrap_or(0));
    if groups.k != k {
        return Err(Mismatch::GroupSize { groups: groups.k, code: k });
    }
    if let Some(&row) = groups.rows.iter().find(|&&row| row >= rows) {
        return Err(Mismatch::Rows { what: "inputs", expected: row + 1, actual: rows });
    }
    let input = Input::floats(&inputs.shape()[1..]);
    let mut shape = code.parity_dims(input)?;
    let size: usize = shape.iter().product();
    shape.insert(0, groups.len());
    let mut coded = vec![vec![0.0; groups.len() * size]; code.recovery().parities];
    let mut workspace = Workspace::new();
    for (at, group) in groups.iter().enumerate() {
        let query = |&row: &usize| Some(&inputs.data()[row * input.len()..][..input.len()]);
        let queries: Vec<Option<&[f32]>> = group.iter().map(query).collect();
        let mut out: Vec<&mut [f32]> = coded.iter_mut().map(|all| &mut all[at * size..][..size]).collect();
        code.encode(Members { input, queries: &queries }, &mut out, &mut workspace)?;
    }
    let arrays = coded.into_iter().map(|data| Array::new(shape.clone(), data).expect("one query a group"));
    Ok(arrays.collect())
}

/// Values in a row.
pub(super) fn row_len(array: &Array<f32>) -> usize {
    array.shape().iter().skip(1).product()
}
