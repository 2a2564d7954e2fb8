//! Networks: ONNX models that can be run, differentiated and trained.

mod leaves;
mod speech;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use parm_parity_models::onnx::{Dim, Model, Tensor, rewrite};

use self::speech::Speech;
use crate::data::Parts;
use crate::graph::{Mode, Plan, Real, Role, Statistic, Value, roles};
use crate::{Array, Device, Error, Host};

/// Maximum nodes of a graph: finding a constant's readers visits all of them.
const MOST_NODES: usize = 50_000;

/// A network: the graph of an ONNX file with its parameters on a device.
pub struct Network {
    model: Model,
    plan: Plan,
    inputs: Vec<parm_parity_models::onnx::Value>,
    outputs: Vec<String>,
    weights: BTreeMap<String, Weight>,
    device: burn::tensor::Device,
    /// The inputs in a row, if there are several.
    parts: Parts,
    speech: Speech,
}

struct Weight {
    value: Real,
    role: Role,
    tensor: Tensor,
}

/// Gradients of a weighted sum of a network's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// The outputs themselves.
    pub outputs: Vec<Host>,
    /// Gradients by parameter; missing if the outputs do not depend on it.
    pub parameters: BTreeMap<String, Array<f32>>,
    /// Gradients by input; `None` for integers and for inputs that the outputs do not depend on.
    pub inputs: Vec<Option<Array<f32>>>,
}

impl Network {
    /// Reads a model's graph, checks that all of it can be trained through, and copies its weights to `device`. A
    /// weight that several nodes share is copied for each of them.
    pub fn new(model: Model, device: Device) -> Result<Self, Error> {
        let model = unshared(model)?;
        let (graph, device) = (model.graph()?, device.open()?);
        let mut weights = BTreeMap::new();
        for (name, role) in roles(&graph) {
            let Some(tensor) = graph.constant(&name)? else { continue };
            let array = Array::new(tensor.dims().to_vec(), tensor.to_f32()?);
            let array = array.expect("the tensor was checked when it was read");
            let fault = |problem| Error::Node { node: format!("constant '{name}'"), problem };
            let value = Real::upload(&array, &device).map_err(fault)?;
            weights.insert(name, Weight { value, role, tensor });
        }
        let given: BTreeSet<String> = weights.keys().cloned().collect();
        let plan = Plan::new(&graph, &given, &device)?;
        let outputs = graph.outputs.iter().map(|output| output.name.clone()).collect();
        let (parts, speech) = (Parts::default(), Speech::of(&graph.outputs));
        Ok(Self { model, plan, inputs: graph.inputs, outputs, weights, device, parts, speech })
    }

    /// Names of the parameters, which training changes.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let parameters = self.weights.iter().filter(|(_, weight)| weight.role == Role::Parameter);
        parameters.map(|(name, _)| name.as_str())
    }

    /// Names of the running statistics of batch normalisations, which follow the data.
    pub fn buffers(&self) -> impl Iterator<Item = &str> {
        let buffers = self.weights.iter().filter(|(_, weight)| weight.role == Role::Buffer);
        buffers.map(|(name, _)| name.as_str())
    }

    /// The current value of a parameter or buffer.
    pub fn weight(&self, name: &str) -> Result<Array<f32>, Error> {
        let weight = self.weights.get(name).ok_or_else(|| Error::NoParameter { name: name.into() })?;
        Ok(weight.value.download())
    }

    /// Replaces the value of a parameter or buffer.
    pub fn set_weight(&mut self, name: &str, value: &Array<f32>) -> Result<(), Error> {
        let weight = self.weights.get_mut(name).ok_or_else(|| Error::NoParameter { name: name.into() })?;
        let (actual, given) = (weight.value.shape(), value.shape().to_vec());
        if actual != given {
            return Err(Error::ParameterShape { name: name.into(), actual, given });
        }
        let fault = |problem| Error::Node { node: format!("constant '{name}'"), problem };
        weight.value = Real::upload(value, &self.device).map_err(fault)?;
        Ok(())
    }

    /// The outputs for given inputs, as an engine would compute them.
    pub fn predict(&self, inputs: &[Host]) -> Result<Vec<Host>, Error> {
        let results = self.forward(&self.frozen(), self.upload(inputs)?, Mode::Evaluate)?;
        Ok(results.outputs.iter().map(Value::download).collect())
    }

    /// Gradients of the sum of all outputs' elements, each weighted by `seeds`, with respect to parameters and
    /// inputs. In [`Mode::Train`], the running statistics follow the batch.
    pub fn gradients(
        &mut self,
        inputs: &[Host],
        seeds: &[Array<f32>],
        mode: Mode,
    ) -> Result<Gradients, Error> {
        let (gradients, statistics) = self.differentiate(inputs, seeds, mode)?;
        self.follow(statistics)?;
        Ok(gradients)
    }

    /// The file with the current weights; everything else is unchanged.
    pub fn export(&self) -> Result<Bytes, Error> {
        let tensors = self.weights.values().map(|weight| {
            let values = weight.value.download().into_data();
            Ok(weight.tensor.with_f32(&values)?)
        });
        Ok(self.model.with_weights(&tensors.collect::<Result<Vec<_>, Error>>()?)?)
    }

    fn differentiate(
        &self,
        inputs: &[Host],
        seeds: &[Array<f32>],
        mode: Mode,
    ) -> Result<(Gradients, Vec<Statistic>), Error> {
        let inputs = self.upload(inputs)?.into_iter().map(|value| match value {
            Value::Real(real) => Value::Real(real.tracked()),
            other => other,
        });
        let inputs: Vec<Value> = inputs.collect();
        let leaves = self.leaves();
        let results = self.forward(&leaves, inputs.clone(), mode)?;
        let outputs = results.outputs.iter().map(Value::download).collect();
        let loss = self.weighted(results.outputs, seeds)?;
        let Some(gradients) = loss.and_then(|loss| loss.backward()) else {
            let none = Gradients { outputs, parameters: BTreeMap::new(), inputs: vec![None; inputs.len()] };
            return Ok((none, results.statistics));
        };
        let of = |leaf: &Real| leaf.gradient(&gradients).map(|gradient| gradient.download());
        let parameters =
            self.weights.iter().zip(&leaves).filter(|((_, weight), _)| weight.role == Role::Parameter);
        let parameters = parameters.filter_map(|((name, _), leaf)| Some((name.clone(), of(leaf)?)));
        let inputs = inputs.iter().map(|input| match input {
            Value::Real(real) => of(real),
            _ => None,
        });
        let gradients = Gradients { outputs, parameters: parameters.collect(), inputs: inputs.collect() };
        Ok((gradients, results.statistics))
    }

    /// The sum of all outputs' elements times their weights.
    fn weighted(&self, outputs: Vec<Value>, seeds: &[Array<f32>]) -> Result<Option<Real>, Error> {
        let mut total: Option<Real> = None;
        for (at, (output, seed)) in outputs.into_iter().zip(seeds).enumerate() {
            let name = &self.outputs[at];
            let real = match output {
                Value::Real(real) => real,
                other => return Err(Error::NoGradient { output: name.clone(), actual: other.kind() }),
            };
            let (actual, given) = (real.shape(), seed.shape().to_vec());
            if actual != given {
                return Err(Error::GradientShape { at, actual, given });
            }
            let fault = |problem| Error::Node { node: format!("output '{name}'"), problem };
            let axes: Vec<usize> = (0..actual.len()).collect();
            let term = Real::upload(seed, &self.device).and_then(|seed| real.mul(seed)).map_err(fault)?;
            let term = term.sum(&axes).reshape(&[]).map_err(fault)?;
            total = Some(match total {
                Some(total) => total.add(term).map_err(fault)?,
                None => term,
            });
        }
        Ok(total)
    }

    /// Updates running statistics from those of a batch.
    pub(crate) fn follow(&mut self, statistics: Vec<Statistic>) -> Result<(), Error> {
        for Statistic { name, value, momentum } in statistics {
            let Some(weight) = self.weights.get_mut(&name) else { continue };
            let fault = |problem| Error::Node { node: format!("constant '{name}'"), problem };
            let old = weight.value.clone().scale(momentum);
            weight.value = old.add(value.untracked().scale(1.0 - momentum)).map_err(fault)?;
        }
        Ok(())
    }

    pub(crate) fn upload(&self, given: &[Host]) -> Result<Vec<Value>, Error> {
        let mut values = Vec::with_capacity(self.inputs.len());
        for (at, declared) in self.inputs.iter().enumerate() {
            let input = declared.name.clone();
            let missing =
                || Error::NoInput { input: input.clone(), wanted: self.inputs.len(), given: given.len() };
            let host = given.get(at).ok_or_else(missing)?;
            let fits = declared.shape.as_ref().is_none_or(|shape| {
                shape.len() == host.shape().len()
                    && shape.iter().zip(host.shape()).all(|(dim, &size)| match dim {
                        Dim::Fixed(fixed) => *fixed == size,
                        _ => true,
                    })
            });
            if !fits {
                let (given, wanted) = (host.shape().to_vec(), declared.to_string());
                return Err(Error::InputShape { input, given, wanted });
            }
            let fault = |problem| Error::Node { node: format!("input '{input}'"), problem };
            values.push(host.upload(&self.device).map_err(fault)?);
        }
        Ok(values)
    }
}

/// The model, with a separate copy of a shared weight for every reader.
fn unshared(model: Model) -> Result<Model, Error> {
    let graph = model.graph()?;
    let nodes = graph.nodes.len();
    if nodes > MOST_NODES {
        return Err(Error::TooManyNodes { nodes, limit: MOST_NODES });
    }
    let shared =
        graph.initializers.iter().filter(|(_, t)| t.datatype().is_float() && t.len() > 1).any(|(name, _)| {
            let mut readers = graph.consumers(name);
            readers.next().is_some_and(|first| first.is("Identity")) || readers.next().is_some()
        });
    if !shared {
        return Ok(model);
    }
    Ok(rewrite::Draft::new(&model)?.finish()?)
}
