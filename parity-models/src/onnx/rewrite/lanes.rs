//! A network that answers each query of a group by itself.
//!
//! The queries of a group have nothing to do with one another, so nothing is won by mixing their features, and a
//! layer's weights between features of different slots only cost. In lanes all slots go through ONE network, as rows of
//! a k times larger batch, and that network is thinner than the deployed one ([`super::thin`]). The price: rows must be
//! independent of each other and their number free.

use super::super::proto::{NodeProto, ValueInfoProto};
use super::super::topology::reads;
use super::super::{Defect, Dim, Tensor, Value};
use super::draft::Draft;
use super::slot::{self, Names};

impl Draft {
    /// Takes `slots` rows side by side as that many rows, and puts as many predictions side by side, which the outputs'
    /// new second dimension counts.
    pub(super) fn lay_lanes(&mut self, slots: usize) -> Result<(), Defect> {
        let front = self.part_inputs(slots)?;
        let back = self.join_outputs(slots)?;
        let lanes = std::mem::take(&mut self.nodes);
        self.nodes = front.into_iter().chain(lanes).chain(back).collect();
        self.forget(|_| true);
        Ok(())
    }

    fn part_inputs(&mut self, slots: usize) -> Result<Vec<NodeProto>, Defect> {
        let mut made = Vec::new();
        let mut names = Names::new();
        for at in 0..self.graph().input.len() {
            let mut input = Value::from_proto(&self.graph().input[at]);
            // An input that nothing reads stays as it is.
            if !self.nodes.iter().any(|node| reads(node).contains(input.name.as_str())) {
                continue;
            }
            let row = row(&input)?;
            let Some(first) = row.first() else { return Err(Defect::InputRank { input: input.to_string() }) };
            let apart = self.fresh(&format!("{}.rows", input.name));
            made.push(self.cut(&input.name, &apart, &row)?);
            if let Some([_, second, ..]) = input.shape.as_deref_mut() {
                *second = first.checked_mul(slots).map_or(Dim::Unknown, Dim::Fixed);
            }
            self.graph_mut().input[at] = input.to_proto();
            names.insert(input.name, apart);
        }
        for at in 0..self.nodes.len() {
            let label = self.label(at);
            slot::rename(&mut self.nodes[at], &names).map_err(|_| Defect::ControlFlow { node: label })?;
        }
        Ok(made)
    }

    fn join_outputs(&mut self, slots: usize) -> Result<Vec<NodeProto>, Defect> {
        let mut made = Vec::new();
        for at in 0..self.graph().output.len() {
            let output = Value::from_proto(&self.graph().output[at]);
            let predictions: Vec<usize> = std::iter::once(slots).chain(row(&output)?).collect();
            let apart = self.fresh(&format!("{}.rows", output.name));
            for node in &mut self.nodes {
                let names = node.input.iter_mut().chain(&mut node.output);
                names.filter(|name| **name == output.name).for_each(|name| name.clone_from(&apart));
            }
            made.push(self.cut(&apart, &output.name, &predictions)?);
            self.graph_mut().output[at] = stacked(output, slots);
        }
        Ok(made)
    }

    /// A node that cuts `value` into rows of these sizes.
    fn cut(&mut self, value: &str, made: &str, row: &[usize]) -> Result<NodeProto, Defect> {
        let target: Vec<i64> = std::iter::once(-1).chain(row.iter().map(|&size| size as i64)).collect();
        let shape = Tensor::from_i64(&format!("{made}.shape"), &[target.len()], &target)?;
        let shape = self.add_constant(shape);
        Ok(self.make("Reshape", &[value, &shape], made, []))
    }
}

/// The sizes of a value's rows, of which only the number may vary.
fn row(value: &Value) -> Result<Vec<usize>, Defect> {
    let sizes = match value.shape.as_deref() {
        Some([rows, row @ ..]) if rows.fixed().is_none() => row.iter().map(Dim::fixed).collect(),
        _ => None,
    };
    sizes.ok_or_else(|| Defect::FixedRows { value: value.to_string() })
}

fn stacked(mut output: Value, slots: usize) -> ValueInfoProto {
    if let Some(shape) = &mut output.shape {
        shape.insert(1, Dim::Fixed(slots));
    }
    output.to_proto()
}
