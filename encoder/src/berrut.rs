//! Berrut's rational interpolation (BACC, ApproxIFER): no training, any model, every answer approximate.
//!
//! alpha_j are Chebyshev points of the first kind, beta_i of the second; Berrut's weights alternate in sign, which
//! keeps the denominator from vanishing anywhere on the line. In decoding the sign alternates by POSITION among the
//! outputs that came back, not by their index: with gaps, the signs of the indices would let the interpolant have
//! poles between the points. Constants come back exactly; nothing else does.

use std::f64::consts::PI;

use crate::interpolated::{self, Samples};
use crate::kind::{Mixing, Nature, Requirement};
use crate::matrix::Matrix;
use crate::{Code, CodeSpec, Error, Members, Needs, Received, Workspace};

/// What is known of it by name.
pub(crate) const NATURE: Nature = Nature {
    name: "berrut",
    requires: Requirement::Nothing,
    mixing: Mixing::DrawsCurve,
    fields: &[],
    parities: |spec| spec.k + spec.r,
    needs: |spec| Needs::AnyOutputs(spec.k),
    build: |spec| Ok(Box::new(Berrut::new(spec)?)),
};

/// The Berrut code.
#[derive(Debug)]
pub struct Berrut {
    spec: CodeSpec,
    samples: Samples,
    queries: Vec<f64>,
    outputs: Vec<f64>,
}

impl Berrut {
    /// `spec.k` queries at `spec.k + spec.r` points.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(2..=32, 1..=32)?;
        let (k, coded) = (spec.k, spec.k + spec.r);
        let queries: Vec<f64> = (0..k).map(|j| ((2 * j + 1) as f64 * PI / (2 * k) as f64).cos()).collect();
        let outputs: Vec<f64> = (0..coded).map(|i| (i as f64 * PI / (coded - 1) as f64).cos()).collect();
        let rows: Vec<Vec<f64>> = outputs.iter().map(|beta| basis(*beta, &queries)).collect();
        let samples = Samples::new(&Matrix::from_fn(coded, k, |row, column| rows[row][column]));
        Ok(Self { spec: spec.clone(), samples, queries, outputs })
    }
}

/// Berrut's basis functions of `nodes` at `point`.
fn basis(point: f64, nodes: &[f64]) -> Vec<f64> {
    let mut weights = vec![0.0; nodes.len()];
    basis_into(point, nodes.iter().copied(), |index, weight| weights[index] = weight);
    weights
}

/// The same without memory of its own; a point on a node has that node's value.
fn basis_into(point: f64, nodes: impl Iterator<Item = f64> + Clone, mut set: impl FnMut(usize, f64)) {
    let hit = nodes.clone().position(|node| (point - node).abs() < 1e-12);
    let term = |(index, node): (usize, f64)| match hit {
        Some(hit) => f64::from(u8::from(hit == index)),
        None if index % 2 == 0 => 1.0 / (point - node),
        None => -1.0 / (point - node),
    };
    let total: f64 = nodes.clone().enumerate().map(term).sum();
    for (index, node) in nodes.enumerate() {
        set(index, term((index, node)) / total);
    }
}

impl Code for Berrut {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        self.samples.encode(&self.spec, members, parities)
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let returned = received.arrived().parities;
        interpolated::decode(received, prediction, |weights| {
            let nodes = || returned.iter().map(|index| self.outputs[index]).collect::<NodeList>();
            let nodes = nodes();
            basis_into(self.queries[slot], nodes.iter(), |index, weight| weights[index] = weight as f32);
        })
    }
}

/// Nodes on the stack.
struct NodeList {
    nodes: [f64; interpolated::MAX_CODED],
    len: usize,
}

impl NodeList {
    fn iter(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.nodes[..self.len].iter().copied()
    }
}

impl FromIterator<f64> for NodeList {
    fn from_iter<I: IntoIterator<Item = f64>>(nodes: I) -> Self {
        let mut list = NodeList { nodes: [0.0; interpolated::MAX_CODED], len: 0 };
        for node in nodes {
            list.nodes[list.len] = node;
            list.len += 1;
        }
        list
    }
}
