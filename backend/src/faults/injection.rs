//! The faults of one run: drawn before it, applied after it.

use std::time::{Duration, Instant};

use parm_protocol::Tensor;
use parm_workload::Random;

use super::Wrong;
use crate::{Error, pause};

/// The faults of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Injection {
    pub(super) delay: Duration,
    pub(super) slowdown: f64,
    pub(super) fails: bool,
    pub(super) wrong: Option<(Wrong, u64)>,
}

impl Injection {
    /// No fault.
    pub(crate) const NONE: Injection =
        Injection { delay: Duration::ZERO, slowdown: 1.0, fails: false, wrong: None };

    /// Applies the faults after a run that began at `started`: waits, then fails or falsifies.
    pub(crate) fn apply(&self, started: Instant, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
        let more = started.elapsed().mul_f64(self.slowdown - 1.0) + self.delay;
        if !more.is_zero() {
            pause::until(Instant::now() + more);
        }
        if self.fails {
            return Err(Error::Run { message: "an injected fault".into() });
        }
        match self.wrong {
            Some((wrong, noise)) => outputs.into_iter().map(|output| falsify(output, wrong, noise)).collect(),
            None => Ok(outputs),
        }
    }
}

/// A wrong answer of the same shape.
pub(super) fn falsify(output: Tensor, wrong: Wrong, noise: u64) -> Result<Tensor, Error> {
    let Ok(values) = output.as_f32() else {
        return Ok(output);
    };
    let mut values = values.into_owned();
    match wrong {
        Wrong::Permute => {
            let row = (values.len() / output.rows().max(1)).max(1);
            values.chunks_mut(row).for_each(|row| row.rotate_right(1));
        }
        Wrong::Negate => values.iter_mut().for_each(|value| *value = -*value),
        Wrong::Random => {
            let (least, greatest) = values
                .iter()
                .filter(|value| value.is_finite())
                .fold((f32::MAX, f32::MIN), |(least, greatest), &value| {
                    (least.min(value), greatest.max(value))
                });
            let mut random = Random::of(noise, []);
            let mut draw = || least + (greatest - least).max(0.0) * random.unit() as f32;
            values.iter_mut().for_each(|value| *value = draw());
        }
    }
    Tensor::from_f32(output.shape(), &values).map_err(|error| Error::Run { message: error.to_string() })
}
