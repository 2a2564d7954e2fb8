//! A model in memory.

use parking_lot::Mutex;
use parm_protocol::{ModelConfig, ModelMetadata, Rows, Tensor};

use crate::Error;
use crate::engine::{Model, guarded};
use crate::payer::Payer;
use crate::statistics::Statistics;

/// One version of a model, with a replica for each instance.
///
/// Jobs hold on to it, so a version that is replaced or unloaded still answers what was queued for it.
pub(crate) struct Loaded {
    pub(crate) metadata: ModelMetadata,
    pub(crate) config: ModelConfig,
    pub(crate) version: String,
    /// Who pays for requests that say nothing of it.
    pub(crate) payer: Payer,
    /// Rows that batching may put together; 1 where it does not pay.
    pub(crate) batch_limit: usize,
    pub(crate) statistics: Statistics,
    /// By instance. A lock is only ever taken by its own instance, so it is never waited for.
    pub(super) replicas: Vec<Mutex<Box<dyn Model>>>,
}

impl Loaded {
    /// Runs on an instance's replica.
    pub(crate) fn run(&self, instance: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let mut model = self.replicas[instance % self.replicas.len()].lock();
        guarded(|| model.run(inputs))
    }

    /// What of a request counts as rows: none where the model's first dimension is no batch.
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
