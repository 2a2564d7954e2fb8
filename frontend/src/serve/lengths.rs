//! Lengths of the rows of a batch that is padded, and the rows of its outputs without the padding.

use std::sync::Arc;

use parm_protocol::{Error, NamedTensor, Padding, Tensor};
use smallvec::SmallVec;

use super::inputs::Row;
use super::pool::Pool;

/// The lengths of the rows of a padded batch.
#[derive(Debug)]
pub(crate) struct Lengths {
    rows: SmallVec<[usize; 8]>,
    padding: Arc<Padding>,
}

impl Lengths {
    /// Those of rows that must be padded to run together. `None` if they are equal, or if the instances do not take padded
    /// rows now: such a batch cannot be sent, and its rows are tried alone.
    pub(super) fn of(pool: &Pool, rows: &[Row]) -> Option<Arc<Self>> {
        if rows.len() < 2 {
            return None;
        }
        let length = |row: &Row| Padding::length(&pool.metadata, &row.inputs.tensors);
        let first = length(&rows[0])?;
        if rows.iter().all(|row| length(row) == Some(first)) {
            return None;
        }
        let padding = pool.padding()?;
        let rows = rows.iter().map(length).collect::<Option<_>>()?;
        Some(Arc::new(Self { rows, padding }))
    }

    /// The length that all rows get.
    pub(super) fn longest(&self) -> Option<usize> {
        self.rows.iter().max().copied()
    }

    /// A row of an output of the batch, without padding.
    pub(super) fn row(&self, output: &NamedTensor, row: usize) -> Result<Tensor, Error> {
        let own = output.tensor.slice_rows(row, 1)?;
        let length = self.rows.get(row).copied();
        let rows = self.rows.len();
        let length = length.ok_or(Error::RowsOutOfRange { start: row, count: 1, rows })?;
        self.padding.cut(&output.name, own, length)
    }
}
