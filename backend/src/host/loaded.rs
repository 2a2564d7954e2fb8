//! A loaded model, and the thread that runs it.

use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::{ModelConfig, ModelMetadata, Rows, Tensor};

use crate::Error;
use crate::engine::{Model, guarded};
use crate::metrics::Statistics;
use crate::payer::Payer;

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

/// The longest run that may keep a thread from reading sockets.
const QUICK: Duration = Duration::from_micros(100);
/// The longest run for which a saved wake-up matters.
const BRISK: Duration = Duration::from_millis(20);

/// The thread of a run. Waking another thread takes longer than many a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// The thread that read the request: the run is so short and regular that it delays nothing there.
    Here,
    /// The same thread, while another one reads sockets.
    LookedAfter,
    /// An instance's thread.
    Apart,
}

impl Site {
    /// The place for runs of one row. Only models with constant run times run on the reading thread: other sizes may be
    /// slow or need compiling, and requests that share a run must meet in the queue. Without a batch the first
    /// dimension is a size like the others: a whole request counts as one row.
    pub(super) fn of(model: &dyn Model, batched: bool, limit: usize, alone: Option<Duration>) -> Self {
        let inputs = &model.signature().inputs;
        let sizes = |shape: &[i64]| shape.iter().skip(usize::from(batched)).all(|dim| *dim >= 0);
        let fixed = inputs.iter().all(|input| sizes(&input.shape));
        match alone {
            _ if !fixed || !model.is_steady() || limit > 1 => Site::Apart,
            Some(alone) if alone <= QUICK => Site::Here,
            Some(alone) if alone <= BRISK => Site::LookedAfter,
            _ => Site::Apart,
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::DataType;

    use super::*;
    use crate::engine::{Declared, Signature};

    /// A model with one input of this shape.
    struct Shaped(Signature);

    impl Model for Shaped {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
            Ok(inputs.to_vec())
        }
    }

    #[test]
    fn request_of_any_length_keeps_no_reading_thread() {
        let place = |shape: &[i64], batched| {
            let x = Declared { name: "x".into(), datatype: DataType::Fp32, shape: shape.into() };
            let model = Shaped(Signature { inputs: vec![x.clone()], outputs: vec![x] });
            Site::of(&model, batched, 1, Some(Duration::from_micros(5)))
        };
        assert_eq!(place(&[-1, 8], true), Site::Here);
        assert_eq!(place(&[1, 8], false), Site::Here);
        // All of a sequence is one row of it.
        assert_eq!(place(&[-1, 8], false), Site::Apart);
        assert_eq!(place(&[-1, -1], true), Site::Apart);
    }
}
