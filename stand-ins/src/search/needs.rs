//! Memory of a search: an estimate beforehand, and the sentences about rows that do not fit.

use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::MEASURED_ROWS;

use super::Wish;
use crate::Error;
use crate::graph::Survey;
use crate::memory::{Need, in_words};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// If an engine cannot tell the sizes of values, they are taken for so many times the input.
const INPUTS: u64 = 64;

/// The memory that a search needs, by its rows and its model.
pub(super) struct Needs {
    /// For one row.
    pub(super) row: Need,
    /// The deployed model's file.
    pub(super) file: u64,
    /// The rows that may judge.
    pub(super) judged: usize,
    wanted: usize,
    /// The estimate.
    bytes: u64,
}

impl Needs {
    /// Finds the sizes with a run of one row, and bounds the workshop's runs by them. `lessons` are the bytes of the rows to
    /// teach with.
    pub(super) fn of(
        workshop: &Workshop,
        (model, draft): (&Model, &Draft),
        (rows, lessons): (&Rows, Option<u64>),
        wish: &Wish,
    ) -> Result<Self, Error> {
        let inner = INPUTS * rows.bytes();
        let unknown = Need { live: inner, values: inner, answers: 0, is_batched: rows.is_batched() };
        let row = Survey::need(workshop, draft, &rows.first(1)?).unwrap_or(unknown);
        workshop.bound(row.live);
        let (file, wanted) = (model.bytes().len() as u64, wish.judged.min(rows.len()));
        let judged = row.judged(wish.judged);
        let own = rows.len() as u64 * rows.bytes();
        let bytes = row.estimate((own, lessons), file, judged.min(wanted));
        Ok(Self { row, file, judged, wanted, bytes })
    }

    /// Reports the estimate, and the measurements that are left out to stay near it.
    pub(super) fn tell(&self, progress: &dyn Progress) {
        progress.tell(&format!("this needs about {} of memory", in_words(self.bytes)));
        if self.judged < self.wanted {
            progress.tell(&format!(
                "at most {} rows judge instead of {}, as the answers of more do not fit the memory",
                self.judged, self.wanted
            ));
        }
        let counts = self.row.measured(self.file);
        if let Some(&last) = counts.last().filter(|_| counts.len() < MEASURED_ROWS.len()) {
            progress.tell(&format!(
                "runs of more than {last} rows do not fit the memory: their costs are estimated from those of {last}"
            ));
        }
    }
}
