//! The thread that runs a model.

use std::time::Duration;

use crate::engine::Model;

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
    use parm_protocol::{DataType, Tensor};

    use super::*;
    use crate::Error;
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
