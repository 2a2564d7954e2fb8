//! Tests whether a model is linear by running it.
//!
//! Problem: with the code `mds` the deployed model runs the parity queries, which is right only if `f(a) + f(b) - f(0)
//! = f(a + b)`. Reconstructions by any other model are wrong but look like answers. One setting enables the code for
//! all models, and an operator may not know all of them.
//!
//! Choice: each model is tested on random inputs before it is coded: small ones, and larger ones for functions that
//! bend only far from zero. A model that fails is not coded, and the log says so. Until the test is done, its late
//! queries are hedged.
//!
//! Rejected: analysing the graph. A remote server does not expose it, and a graph of nonlinear operators may still be
//! linear. Random inputs can miss a kink that real ones find, but such models are unlikely, and the documentation
//! limits `mds` to linear models.

use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{
    Code, DataType, Error, InferRequest, NamedTensor, Parameters, Shape, Tensor, TensorMetadata,
};
use parm_random::Random;

use super::is_decodable;
use crate::serve::pool::{Files, Pool};

/// Magnitudes of the inputs.
const SCALES: [f32; 2] = [1.0, 50.0];
/// Tolerance relative to the largest answer: linear models are exact except for rounding.
const TOLERANCE: f32 = 1e-3;
/// Maximum values of an input; larger models are neither tested nor coded.
const MOST: usize = 1 << 24;
/// Size used for a variable dimension other than the batch.
const ANY: usize = 3;

/// A model's linearity, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Linearity(Mutex<Option<Trial>>);

/// A test of some files of the model: another file under the same version number may be another function.
#[derive(Debug)]
struct Trial {
    files: Files,
    verdict: Option<Result<(), String>>,
}

impl Linearity {
    /// Whether the model of these files is linear, or why not; `None` before the test.
    pub(crate) fn verdict(&self, files: &Files) -> Option<Result<(), String>> {
        self.0.lock().as_ref().filter(|trial| trial.files == *files)?.verdict.clone()
    }

    /// Claims the test of these files for the caller: true once.
    pub(crate) fn claim(&self, files: &Files) -> bool {
        let mut trial = self.0.lock();
        let is_new = trial.as_ref().is_none_or(|trial| trial.files != *files);
        if is_new {
            *trial = Some(Trial { files: files.clone(), verdict: None });
        }
        is_new
    }

    /// Whether the test of these files is still wanted.
    pub(crate) fn is_wanted(&self, files: &Files) -> bool {
        self.0.lock().as_ref().is_some_and(|trial| trial.files == *files)
    }

    /// Stores the verdict.
    pub(crate) fn settle(&self, files: &Files, verdict: Result<(), String>) {
        if let Some(trial) = self.0.lock().as_mut().filter(|trial| trial.files == *files) {
            trial.verdict = Some(verdict);
        }
    }
}

/// Tests a pool's model at an instance. An error says nothing about the model: try again.
pub(crate) async fn examine(
    pool: &Pool,
    client: &dyn Client,
    patience: Duration,
) -> Result<Result<(), String>, Error> {
    for (round, scale) in SCALES.into_iter().enumerate() {
        let seed = 2 * round as u64;
        let mut answers = Vec::new();
        for seeds in [&[][..], &[seed], &[seed + 1], &[seed, seed + 1]] {
            let request = match request(pool, seeds, scale) {
                Ok(request) => request,
                Err(reason) => return Ok(Err(reason)),
            };
            let deadline = Some(tokio::time::Instant::now() + patience);
            let context = CallContext { deadline, ..CallContext::default() };
            let answer = tokio::time::timeout(patience, client.infer(request, context)).await;
            match answer.unwrap_or(Err(Error::DeadlineExceeded { waited: patience })) {
                Ok(answer) => answers.push(answer.outputs),
                Err(error) if is_refusal(&error) => {
                    return Ok(Err(format!("testing its linearity failed: {error}")));
                }
                Err(error) => return Err(error),
            }
        }
        if let Err(reason) = add_up(pool, &answers) {
            return Ok(Err(reason));
        }
    }
    Ok(Ok(()))
}

/// Whether the model never accepts such inputs. Other errors are the server's: a broken engine is repaired or replaced,
/// and must not decide about the model for good.
fn is_refusal(error: &Error) -> bool {
    use Code::{InvalidArgument, TooLarge, Unimplemented};
    matches!(error.code(), InvalidArgument | TooLarge | Unimplemented)
}

/// A request of one row: the sum of the inputs that these seeds generate.
fn request(pool: &Pool, seeds: &[u64], scale: f32) -> Result<InferRequest, String> {
    let inputs = pool.metadata.inputs.iter().enumerate();
    let inputs = inputs.map(|(place, declared)| {
        if declared.datatype != DataType::Fp32.as_str() {
            return Err(format!(
                "input '{}' is {}, which codes cannot add up",
                declared.name, declared.datatype
            ));
        }
        let shape = one_row(declared, pool.batched);
        let len = shape.iter().try_fold(1usize, |len, dim| len.checked_mul(*dim)).filter(|len| *len <= MOST);
        let len = len.ok_or_else(|| format!("input '{}' is too large to test", declared.name))?;
        let value = |at: usize| seeds.iter().map(|seed| scale * noise(*seed, place, at)).sum::<f32>();
        let values: Vec<f32> = (0..len).map(value).collect();
        let tensor = Tensor::from_f32(shape, &values).map_err(|error| error.to_string())?;
        Ok(NamedTensor::new(declared.name.clone(), tensor))
    });
    Ok(InferRequest {
        model: (*pool.model).clone(),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: inputs.collect::<Result<_, _>>()?,
        outputs: Vec::new(),
    })
}

fn one_row(declared: &TensorMetadata, batched: bool) -> Shape {
    let size = |(axis, dim): (usize, &i64)| match usize::try_from(*dim) {
        Ok(fixed) => fixed,
        Err(_) if axis == 0 && batched => 1,
        Err(_) => ANY,
    };
    declared.shape.iter().enumerate().map(size).collect()
}

/// Whether the answers to 0, a, b and a + b add up.
fn add_up(pool: &Pool, answers: &[Vec<NamedTensor>]) -> Result<(), String> {
    let bent = |name: &str| {
        format!(
            "its output '{name}' is not linear, which the code mds needs: train parity models for it (parm train), or \
             choose another policy for it with frontend.models"
        )
    };
    let mut decodable = pool.metadata.outputs.iter().filter(|output| is_decodable(output)).peekable();
    if decodable.peek().is_none() {
        return Err("it has no FP32 output, which a code could reconstruct".into());
    }
    for declared in decodable {
        let of = |answer: &Vec<NamedTensor>| {
            let output = answer.iter().find(|output| output.name == declared.name)?;
            Some(output.tensor.as_f32().ok()?.into_owned())
        };
        let values: Option<Vec<Vec<f32>>> = answers.iter().map(of).collect();
        let Some([zero, a, b, sum]) = values.as_deref() else { return Err(bent(&declared.name)) };
        let same_size = [a, b, sum].iter().all(|other| other.len() == zero.len());
        let largest = [zero, a, b, sum].into_iter().flatten().fold(0f32, |most, value| most.max(value.abs()));
        let near = |at: usize| (a[at] + b[at] - zero[at] - sum[at]).abs() <= TOLERANCE * largest;
        if !same_size || !largest.is_finite() || !(0..zero.len()).all(near) {
            return Err(bent(&declared.name));
        }
    }
    Ok(())
}

/// A number from -1 to 1, the same at each call.
fn noise(seed: u64, input: usize, at: usize) -> f32 {
    (2.0 * Random::of(seed, [input as u64, at as u64]).unit() - 1.0) as f32
}
