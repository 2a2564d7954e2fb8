//! The weights of a network as leaves of a computation graph, for one training step.
//!
//! A step takes the leaves, runs any number of graphs over them, differentiates one number, and returns the leaves
//! for the update of the weights. Nothing in between leaves the device.

use burn::tensor::{Gradients as History, Tensor};

use parm_parity_models::onnx::{DataType, Dim, Value as Declaration};

use crate::data::Samples;
use crate::graph::{Mode, PassResults, Real, Role, Value};
use crate::network::Network;
use crate::{Error, Host};

impl Network {
    /// Parameters with gradients, and buffers without; in a fixed order.
    pub(crate) fn leaves(&self) -> Vec<Real> {
        let leaf = |weight: &super::Weight| match weight.role {
            Role::Parameter => weight.value.clone().tracked(),
            Role::Buffer => weight.value.clone(),
        };
        self.weights.values().map(leaf).collect()
    }

    /// All weights as constants, in the order of [`leaves`](Self::leaves).
    pub(crate) fn frozen(&self) -> Vec<Real> {
        self.weights.values().map(|weight| weight.value.clone()).collect()
    }

    /// Runs the graph over `leaves`.
    pub(crate) fn forward(
        &self,
        leaves: &[Real],
        inputs: Vec<Value>,
        mode: Mode,
    ) -> Result<PassResults, Error> {
        let given =
            self.weights.keys().zip(leaves).map(|(name, leaf)| (name.as_str(), Value::Real(leaf.clone())));
        self.plan.run(inputs, given, mode, &self.device)
    }

    /// Changes every parameter that has a gradient. `change` receives the parameter's number, its value and the gradient,
    /// both as vectors.
    pub(crate) fn change(
        &mut self,
        leaves: Vec<Real>,
        gradients: &History,
        mut change: impl FnMut(usize, Tensor<1>, Tensor<1>) -> Tensor<1>,
    ) -> Result<(), Error> {
        let parameters = self.weights.iter_mut().zip(leaves).filter(|((_, w), _)| w.role == Role::Parameter);
        for (number, ((name, weight), leaf)) in parameters.enumerate() {
            let Some(gradient) = leaf.gradient(gradients) else { continue };
            drop(leaf);
            let fault = |problem| Error::Node { node: format!("constant '{name}'"), problem };
            let value = std::mem::replace(&mut weight.value, Real::empty(&self.device));
            let shape = value.shape();
            let value = change(number, value.flat(), gradient.untracked().flat());
            weight.value = Real::R1(value).reshape(&shape).map_err(fault)?;
        }
        Ok(())
    }

    /// Copies of all weights, parameters and buffers.
    pub(crate) fn snapshot(&self) -> Vec<Vec<f32>> {
        self.weights.values().map(|weight| weight.value.download().into_data()).collect()
    }

    /// Restores a [`snapshot`](Self::snapshot) of a network with the same graph.
    pub(crate) fn restore(&mut self, snapshot: &[Vec<f32>]) -> Result<(), Error> {
        for ((name, weight), values) in self.weights.iter_mut().zip(snapshot) {
            let actual = weight.value.shape();
            let array = crate::Array::new(actual.clone(), values.clone()).ok_or_else(|| {
                Error::ParameterShape { name: name.clone(), actual, given: vec![values.len()] }
            })?;
            let fault = |problem| Error::Node { node: format!("constant '{name}'"), problem };
            weight.value = Real::upload(&array, &self.device).map_err(fault)?;
        }
        Ok(())
    }

    /// The number of arrays in a [`snapshot`](Self::snapshot).
    pub(crate) fn weights(&self) -> usize {
        self.weights.len()
    }

    pub(crate) fn device(&self) -> &burn::tensor::Device {
        &self.device
    }

    /// Checks that rows have the declared shape of the network's only input.
    pub(crate) fn accepts(&self, rows: &crate::Array<f32>) -> Result<(), Error> {
        match self.inputs.as_slice() {
            [input] => fit(rows, input),
            inputs => Err(Error::OneInput { inputs: inputs.len() }),
        }
    }

    /// Converts rows to the inputs' declared types.
    pub(crate) fn rows(&self, array: crate::Array<f32>) -> Result<Vec<Value>, Error> {
        let inputs = self.split(array)?;
        self.as_many(inputs.len())?;
        let as_declared = |(array, declared): (crate::Array<f32>, &Declaration)| match declared.datatype {
            kind if kind.is_float() => Host::Floats(array),
            DataType::Bool => Host::Bools(array.map(|&value| value != 0.0)),
            _ => Host::Ints(array.map(|&value| value as i64)),
        };
        let hosts: Vec<Host> = inputs.into_iter().zip(&self.inputs).map(as_declared).collect();
        self.upload(&hosts)
    }

    /// Prepares the network for samples whose rows hold its inputs; an error if they do not fit.
    pub fn taking(self, samples: &Samples) -> Result<Self, Error> {
        let network = Self { parts: samples.parts.clone(), ..self };
        network.as_many(network.parts.count())?;
        let first = network.split(samples.inputs.range(0, samples.len().min(1)))?;
        for (array, input) in first.iter().zip(&network.inputs) {
            fit(array, input)?;
        }
        Ok(network)
    }

    fn split(&self, rows: crate::Array<f32>) -> Result<Vec<crate::Array<f32>>, Error> {
        let given = rows.shape().get(1..).unwrap_or_default().to_vec();
        self.parts.split(rows).ok_or(Error::Parts { given })
    }

    fn as_many(&self, given: usize) -> Result<(), Error> {
        match self.inputs.len() {
            inputs if inputs == given => Ok(()),
            inputs => Err(Error::Inputs { inputs, given }),
        }
    }
}

/// Checks that rows have the declared shape of an input.
fn fit(rows: &crate::Array<f32>, input: &Declaration) -> Result<(), Error> {
    let fits = input.shape.as_ref().is_none_or(|shape| {
        shape.len() == rows.shape().len()
            && shape.iter().zip(rows.shape()).skip(1).all(|(dim, &size)| match dim {
                Dim::Fixed(fixed) => *fixed == size,
                _ => true,
            })
    });
    let misfit = || Error::RowShape { data: rows.shape()[1..].into(), model: input.to_string() };
    if fits { Ok(()) } else { Err(misfit()) }
}
