//! A loaded model.

use parking_lot::Mutex;
use parm_protocol::{ModelConfig, ModelMetadata, Rows, Tensor};

use super::Site;
use super::memory::Claim;
use crate::Error;
use crate::engine::{Model, guarded};
use crate::payer::Payer;
use crate::statistics::Statistics;

/// One version of a model, with a replica for each instance.
///
/// Jobs hold a reference, so a version that is replaced or unloaded still answers its queued jobs.
pub(crate) struct Loaded {
    pub(crate) metadata: ModelMetadata,
    pub(crate) config: ModelConfig,
    pub(crate) version: String,
    /// Whether a run returns the number of tokens of each row after the outputs.
    pub(super) counts_tokens: bool,
    /// The share of requests that name none.
    pub(crate) payer: Payer,
    /// Maximum rows of a batch; 1 if batching does not pay.
    pub(crate) batch_limit: usize,
    pub(crate) statistics: Statistics,
    /// The memory that it counts with.
    pub(super) _memory: Claim,
    /// The place for runs of one row.
    pub(super) site: Site,
    /// One replica per concurrent run, so that a run always finds a free one, usually its own instance's.
    pub(super) replicas: Vec<Mutex<Box<dyn Model>>>,
}

impl Loaded {
    /// Runs on an instance's replica.
    pub(crate) fn run(&self, instance: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let own = instance % self.replicas.len();
        let (before, after) = self.replicas.split_at(own);
        let free = after.iter().chain(before).find_map(Mutex::try_lock);
        let mut model = free.unwrap_or_else(|| self.replicas[own].lock());
        guarded(|| model.run(inputs))
    }

    /// The place for a run of this many rows.
    pub(super) fn site(&self, rows: usize) -> Site {
        if rows == 1 { self.site } else { Site::Apart }
    }

    /// The rows of a request: none if the model's first dimension is not a batch.
    pub(super) fn rows(&self) -> Rows {
        match usize::try_from(self.config.max_batch_size) {
            Ok(most) if most > 0 => Rows::UpTo(most),
            _ => Rows::Whole,
        }
    }

    /// Name and version, for metrics.
    pub(crate) fn labels(&self) -> (&str, &str) {
        (&self.metadata.name, &self.version)
    }
}
