//! A model in memory.

use parking_lot::Mutex;
use parm_protocol::client::BoxFuture;
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
    /// Where a run of one row is done.
    pub(super) site: Site,
    /// As many as there are runs at a time, so that a run always finds one that is free: mostly its instance's own.
    pub(super) replicas: Vec<Mutex<Box<dyn Model>>>,
}

/// Where a model is run. Two threads that wake each other take longer than many a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// On the thread that read the request: the run is so quick and so even that nothing else there waits for long.
    Here,
    /// There too, while another thread looks after sockets.
    LookedAfter,
    /// On a thread of the instance.
    Apart,
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

    /// Has another server run it, where it is another's and need only be waited for.
    pub(crate) fn ask(
        &self,
        instance: usize,
        inputs: &[Tensor],
    ) -> Option<BoxFuture<'static, Result<Vec<Tensor>, Error>>> {
        self.replicas[instance % self.replicas.len()].lock().ask(inputs)
    }

    /// Where a run of so many rows is done.
    pub(super) fn site(&self, rows: usize) -> Site {
        if rows == 1 { self.site } else { Site::Apart }
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
