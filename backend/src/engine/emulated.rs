//! Emulated models: a drawn service time, and an answer that is cheap, deterministic and linear.
//!
//! Experiments on tails need instances with known service times. Output `j` of a row is the sum of the row's inputs `i`
//! with `i mod outputs = j`. A linear model is its own parity model under every linear code, so a reconstruction that
//! differs from the answer shows a bug in the serving path, not an error of training.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use parm_durations::{Real, Whole};
use parm_protocol::{DataType, Tensor};
use parm_workload::Random;
use parm_workload::distribution::Distribution;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Declared, Engine, Model, Signature};
use crate::{EngineConfig, Error, pause};

/// An emulated model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// Dimensions of a row of the FP32 input `input`, at most 16777216 values. Default `[784]`.
    #[serde(deserialize_with = "dimensions")]
    #[schemars(schema_with = "dimensions_schema")]
    pub input: Vec<usize>,
    /// Values of a row of the FP32 output `output`. Default 10.
    #[serde(with = "Whole::<1, 65_536>")]
    pub outputs: NonZeroUsize,
    /// Time of a run, at most a minute, as a distribution of experiment files. Default: constant, 5.
    #[serde(deserialize_with = "service_time")]
    #[schemars(schema_with = "any_distribution")]
    pub time_ms: Distribution,
    /// Time that each row beyond the first adds to a run. Default 0.
    #[serde(with = "Real::<0, 60_000>")]
    pub per_row_ms: f64,
    /// Seed of the drawn times. Instances draw different times from one seed. Default 0.
    pub seed: u64,
}

/// The most values of a row: a larger one does not fit into a request body of the usual size.
const MOST_VALUES: usize = 1 << 24;

/// Parses the dimensions of a row. Their product, the size of every blank input, is limited.
fn dimensions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
    let dims = Vec::<usize>::deserialize(from)?;
    let values = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    if values.is_none_or(|values| values == 0 || values > MOST_VALUES) {
        let problem = format!(
            "invalid dimensions of a row {dims:?}: give whole numbers from 1 whose product is at most {MOST_VALUES}"
        );
        return Err(D::Error::custom(problem));
    }
    Ok(dims)
}

fn dimensions_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let item = schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": MOST_VALUES });
    schemars::json_schema!({ "type": "array", "items": item })
}

/// Parses a distribution of service times; its parameters must be finite and not negative.
fn service_time<'de, D: Deserializer<'de>>(from: D) -> Result<Distribution, D::Error> {
    let time = Distribution::deserialize(from)?;
    time.check().map(|()| time).map_err(D::Error::custom)
}

/// The distributions are those of experiment files, which document them.
fn any_distribution(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object" })
}

struct Emulation {
    spec: Spec,
    signature: Signature,
    draw: Random,
    replicas: std::cell::Cell<u64>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            input: vec![784],
            outputs: const { NonZeroUsize::new(10).unwrap() },
            time_ms: Distribution::Constant { value: 5.0 },
            per_row_ms: 0.0,
            seed: 0,
        }
    }
}

/// The engine of this model alone, whatever the path.
impl Engine for Spec {
    fn platform(&self) -> &'static str {
        "parm_emulated"
    }

    fn load(&self, _: &Path, _: &EngineConfig) -> Result<Box<dyn Model>, Error> {
        self.time_ms.check()?;
        Distribution::Constant { value: self.per_row_ms }.check()?;
        Ok(Box::new(Emulation::new(self.clone(), 0)))
    }
}

impl Emulation {
    fn new(spec: Spec, replica: u64) -> Self {
        let dims = spec.input.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX));
        let tensor = |name: &str, shape| Declared { name: name.into(), datatype: DataType::Fp32, shape };
        let signature = Signature {
            inputs: vec![tensor("input", [-1].into_iter().chain(dims).collect())],
            outputs: vec![tensor("output", vec![-1, spec.outputs.get() as i64])],
        };
        let draw = Random::of(spec.seed, [replica]);
        Self { spec, signature, draw, replicas: std::cell::Cell::new(replica) }
    }

    fn service_time(&mut self, rows: usize) -> Duration {
        let more = self.spec.per_row_ms * rows.saturating_sub(1) as f64;
        pause::millis(self.spec.time_ms.sample(&mut self.draw) + more)
    }
}

impl Model for Emulation {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_steady(&self) -> bool {
        matches!(self.spec.time_ms, Distribution::Constant { .. })
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let started = Instant::now();
        let [input] = inputs else {
            return Err(Error::Run { message: format!("{} inputs given, expected 1", inputs.len()) });
        };
        let (rows, outputs) = (input.rows(), self.spec.outputs.get());
        let values = input.as_f32()?;
        let mut folded = vec![0f32; rows * outputs];
        let row = values.len() / rows.max(1);
        for (input, output) in values.chunks_exact(row.max(1)).zip(folded.chunks_exact_mut(outputs)) {
            for part in input.chunks(outputs) {
                output.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
            }
        }
        let answer = Tensor::from_f32([rows, outputs].as_slice(), &folded)?;
        pause::until(started + self.service_time(rows));
        Ok(vec![answer])
    }

    fn replica(&self) -> Option<Box<dyn Model>> {
        self.replicas.set(self.replicas.get() + 1);
        Some(Box::new(Emulation::new(self.spec.clone(), self.replicas.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(model: &mut dyn Model, values: &[f32], rows: usize) -> Vec<f32> {
        let input = Tensor::from_f32([rows, values.len() / rows].as_slice(), values).unwrap();
        model.run(&[input]).unwrap()[0].as_f32().unwrap().into_owned()
    }

    fn model(spec: Spec) -> Box<dyn Model> {
        spec.load(Path::new(""), &EngineConfig::default()).unwrap()
    }

    fn spec() -> Spec {
        let outputs = NonZeroUsize::new(2).unwrap();
        let time_ms = Distribution::Constant { value: 0.0 };
        Spec { input: vec![3], outputs, time_ms, ..Spec::default() }
    }

    #[test]
    fn answer_is_linear_in_the_query() {
        let mut model = model(spec());
        assert_eq!(run(&mut *model, &[1., 2., 4., 10., 20., 40.], 2), [5., 2., 50., 20.]);
        let sum = run(&mut *model, &[11., 22., 44.], 1);
        assert_eq!(sum, [55., 22.]);
    }

    #[test]
    fn replicas_draw_their_own_service_times() {
        let time_ms = Distribution::Exponential { mean: 1.0, shift: 0.0 };
        let spec = Spec { time_ms, ..spec() };
        let draw = |replica| Emulation::new(spec.clone(), replica).service_time(1);
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
    }

    #[test]
    fn run_takes_at_least_its_service_time() {
        let time_ms = Distribution::Constant { value: 2.0 };
        let mut model = model(Spec { time_ms, per_row_ms: 1.0, ..spec() });
        let started = Instant::now();
        run(&mut *model, &[0.; 9], 3);
        assert!(started.elapsed() >= Duration::from_millis(4));
    }
}
