//! Plans: whole graphs, checked and ready to run.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::Device;
use parm_parity_models::onnx::Graph;

use super::kernel::{Inputs, Kernel, Mode, Pass, Statistic};
use super::operator::{prepare, shape::constant_of};
use super::{Problem, Value};
use crate::Error;

/// A graph's nodes in order, with slots for the values between them. Nodes that no output needs are omitted.
pub(crate) struct Plan {
    steps: Vec<PlanStep>,
    /// Constants that are the same in each run.
    constants: Vec<(usize, Value)>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// Parameters and buffers, which the caller passes to each run.
    given: BTreeMap<String, usize>,
    places: usize,
}

struct PlanStep {
    node: String,
    kernel: Kernel,
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
    /// Values without a later reader.
    spent: Vec<usize>,
}

/// The result of one run.
pub(crate) struct PassResults {
    pub(crate) outputs: Vec<Value>,
    pub(crate) statistics: Vec<Statistic>,
}

impl Plan {
    /// Checks `graph` and prepares every node that an output needs. Each run receives the constants named in `given`;
    /// all others are copied to `device`.
    pub(crate) fn new(graph: &Graph, given: &BTreeSet<String>, device: &Device) -> Result<Self, Error> {
        let mut plan = Draft { places: BTreeMap::new() };
        let needed = needed(graph);
        let inputs = graph.inputs.iter().map(|input| plan.place(&input.name)).collect();
        let given = given.iter().map(|name| (name.clone(), plan.place(name))).collect::<BTreeMap<_, _>>();
        let mut constants = Vec::new();
        for (name, tensor) in graph.initializers.iter().filter(|(name, _)| !given.contains_key(*name)) {
            // Constants without a reader may have unsupported types.
            if let Ok(value) = constant_of(tensor, device) {
                constants.push((plan.place(name), value));
            }
        }
        let mut steps = Vec::new();
        for node in graph.nodes.iter().filter(|node| needed.contains(&node.index)) {
            let fault = |problem| Error::Node { node: node.to_string(), problem };
            if node.output(0).is_some_and(|output| given.contains_key(output)) {
                continue; // a `Constant` node that holds a parameter
            }
            let read = |name: &String| match name.as_str() {
                "" => Ok(None),
                name => {
                    plan.places.get(name).copied().map(Some).ok_or(Problem::Undefined { name: name.into() })
                }
            };
            let inputs = node.inputs.iter().map(read).collect::<Result<_, _>>().map_err(fault)?;
            let kernel = prepare(node, graph.opset()).map_err(fault)?;
            let outputs =
                node.outputs.iter().map(|name| (!name.is_empty()).then(|| plan.place(name))).collect();
            steps.push(PlanStep { node: node.to_string(), kernel, inputs, outputs, spent: Vec::new() });
        }
        let output = |name: &String| {
            plan.places.get(name.as_str()).copied().ok_or(Error::NoOutput { output: name.clone() })
        };
        let outputs: Vec<usize> =
            graph.outputs.iter().map(|value| output(&value.name)).collect::<Result<_, _>>()?;
        mark_spent(&mut steps, &outputs);
        Ok(Self { steps, constants, inputs, outputs, given, places: plan.places.len() })
    }

    /// Runs the graph. `given` are the values of the parameters and buffers, by name.
    pub(crate) fn run<'a>(
        &self,
        inputs: Vec<Value>,
        given: impl Iterator<Item = (&'a str, Value)>,
        mode: Mode,
        device: &Device,
    ) -> Result<PassResults, Error> {
        let mut values: Vec<Option<Value>> = vec![None; self.places];
        for (place, value) in &self.constants {
            values[*place] = Some(value.clone());
        }
        for (place, value) in self.inputs.iter().zip(inputs) {
            values[*place] = Some(value);
        }
        for (name, value) in given {
            if let Some(&place) = self.given.get(name) {
                values[place] = Some(value);
            }
        }
        let mut pass = Pass { mode, device: device.clone(), statistics: Vec::new() };
        for step in &self.steps {
            let fault = |problem| Error::Node { node: step.node.clone(), problem };
            let read =
                step.inputs.iter().map(|place| place.and_then(|place| values[place].clone())).collect();
            step.spent.iter().for_each(|&place| values[place] = None);
            let made = (step.kernel)(Inputs(read), &mut pass).map_err(fault)?;
            for (place, value) in step.outputs.iter().zip(made) {
                if let Some(place) = place {
                    values[*place] = Some(value);
                }
            }
        }
        let outputs = self.outputs.iter().map(|&place| values[place].clone().expect("every output was made"));
        Ok(PassResults { outputs: outputs.collect(), statistics: pass.statistics })
    }
}

/// Names resolved to slots.
struct Draft<'a> {
    places: BTreeMap<&'a str, usize>,
}

impl<'a> Draft<'a> {
    fn place(&mut self, name: &'a str) -> usize {
        let next = self.places.len();
        *self.places.entry(name).or_insert(next)
    }
}

/// Indices of the nodes that the graph's outputs depend on.
fn needed(graph: &Graph) -> BTreeSet<usize> {
    let mut wanted: BTreeSet<&str> = graph.outputs.iter().map(|output| output.name.as_str()).collect();
    let mut needed = BTreeSet::new();
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().any(|output| wanted.contains(output.as_str())) {
            needed.insert(node.index);
            wanted.extend(node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty()));
        }
    }
    needed
}

/// Finds the step after which each value can be dropped, so that memory holds only values with later readers.
fn mark_spent(steps: &mut [PlanStep], outputs: &[usize]) {
    let mut kept: BTreeSet<usize> = outputs.iter().copied().collect();
    for step in steps.iter_mut().rev() {
        let read = step.inputs.iter().flatten().copied();
        step.spent = read.filter(|place| kept.insert(*place)).collect();
    }
}
