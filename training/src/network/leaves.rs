//! The weights of a network as leaves of a computation graph, for one training step.
//!
//! A step takes the leaves, runs any number of graphs over them, differentiates one number, and returns the leaves
//! for the update of the weights. Nothing in between leaves the device.

use burn::tensor::Gradients as History;

use parm_parity_models::onnx::{DataType, Value as Declaration};

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

    /// Changes every parameter that has a gradient. `change` receives the parameter's number, its value without other
    /// owners, and the gradient.
    pub(crate) fn change(
        &mut self,
        leaves: Vec<Real>,
        gradients: &History,
        mut change: impl FnMut(usize, Real, Real) -> Real,
    ) {
        let parameters = self.weights.values_mut().zip(leaves).filter(|(w, _)| w.role == Role::Parameter);
        for (number, (weight, leaf)) in parameters.enumerate() {
            let Some(gradient) = leaf.gradient(gradients) else { continue };
            drop(leaf);
            let value = std::mem::replace(&mut weight.value, Real::empty(&self.device));
            weight.value = change(number, value, gradient.untracked());
        }
    }

    /// The number of elements of each parameter, in the order that [`change`](Self::change) numbers them.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let parameters = self.weights.values().filter(|weight| weight.role == Role::Parameter);
        parameters.map(|weight| weight.value.count()).collect()
    }

    /// Passes all weights to `see`, in the order of a [`snapshot`](Self::snapshot); on the processor without a copy.
    pub(crate) fn show(&mut self, mut see: impl FnMut(&[f32])) {
        for weight in self.weights.values_mut() {
            let value = std::mem::replace(&mut weight.value, Real::empty(&self.device));
            weight.value = value.with_elements(|elements| see(elements));
        }
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

    /// Whether each entry of a snapshot is a parameter.
    pub(crate) fn is_parameter(&self) -> impl Iterator<Item = bool> {
        self.weights.values().map(|weight| weight.role == Role::Parameter)
    }

    /// The declaration of the only input; an error if there are several.
    pub(crate) fn input(&self) -> Result<&Declaration, Error> {
        match self.inputs.as_slice() {
            [input] => Ok(input),
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
            crate::parity::rows(array, input)?;
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
