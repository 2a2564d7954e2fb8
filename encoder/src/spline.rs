//! Smoothing splines (NeRCC, LeTCC): like `berrut`, with cubic splines for curves. No training, every answer
//! approximate.
//!
//! A natural cubic smoothing spline is linear in its data: values at other points are S y with a matrix S that depends
//! on the points and the smoothing weight only. The encoder's and the full decoder's are made once; a decoder for
//! another set of outputs is made when that set first comes, and kept in the workspace until another comes.
//! Queries sit in the middle of k equal parts of 0..1, outputs at equal steps from 0 to 1. Ordering the queries along
//! a short path first ([`path::nearest`](crate::path::nearest)) makes the curve smoother and the answers better.

use crate::interpolated::{self, Samples};
use crate::kind::{Mixing, Nature, Requirement};
use crate::matrix::Matrix;
use crate::workspace::SmootherKey;
use crate::{Code, CodeSpec, Error, Members, Needs, Received, Set, Workspace};

const SMOOTHING: f64 = 1e-7;

/// What is known of it by name.
pub(crate) const NATURE: Nature = Nature {
    name: "spline",
    requires: Requirement::Nothing,
    mixing: Mixing::DrawsCurve,
    fields: &["smoothing"],
    parities: |spec| spec.k + spec.r,
    needs: |spec| Needs::AnyOutputs(spec.k),
    build: |spec| Ok(Box::new(Spline::new(spec)?)),
};

/// The spline code.
#[derive(Debug)]
pub struct Spline {
    spec: CodeSpec,
    smoothing: f64,
    samples: Samples,
    queries: Vec<f64>,
    outputs: Vec<f64>,
    /// The decoder for when everything came back.
    full: Matrix,
}

impl Spline {
    /// `spec.k` queries (at least 3) at `spec.k + spec.r` points.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(3..=32, 1..=32)?;
        let smoothing = spec.smoothing.unwrap_or(SMOOTHING);
        if !smoothing.is_finite() || smoothing < 0.0 {
            return Err(Error::NotANumber { field: "smoothing", value: smoothing });
        }
        let (k, coded) = (spec.k, spec.k + spec.r);
        let queries: Vec<f64> = (0..k).map(|j| (2 * j + 1) as f64 / (2 * k) as f64).collect();
        let outputs: Vec<f64> = (0..coded).map(|i| i as f64 / (coded - 1) as f64).collect();
        let samples = Samples::new(&smoother(&queries, &outputs, smoothing));
        let full = smoother(&outputs, &queries, smoothing);
        Ok(Self { spec: spec.clone(), smoothing, samples, queries, outputs, full })
    }
}

impl Code for Spline {
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
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let returned = received.arrived().parities;
        interpolated::decode(received, prediction, |weights| {
            let matrix = self.decoder(returned, workspace);
            for (weight, exact) in weights.iter_mut().zip(matrix.row(slot)) {
                *weight = *exact as f32;
            }
        })
    }
}

impl Spline {
    fn decoder<'m>(&'m self, returned: Set, workspace: &'m mut Workspace) -> &'m Matrix {
        let coded = self.outputs.len();
        if returned.len() == coded {
            return &self.full;
        }
        let key = SmootherKey { returned, k: self.spec.k, coded, smoothing: self.smoothing };
        if workspace.smoother.as_ref().is_none_or(|(kept, _)| *kept != key) {
            workspace.smoother = None;
        }
        let (_, matrix) = workspace.smoother.get_or_insert_with(|| {
            let nodes: Vec<f64> = returned.iter().map(|index| self.outputs[index]).collect();
            (key, smoother(&nodes, &self.queries, self.smoothing))
        });
        matrix
    }
}

/// The matrix that takes values at `nodes` (ascending, at least 3) to their smoothing spline's values at `points`.
///
/// With steps h, the second derivatives g at the inner nodes and the fitted values f obey (Green and Silverman)
/// (R + smoothing Q'Q) g = Q'y and f = y - smoothing Q g, where Q takes second differences and R is tridiagonal.
pub(crate) fn smoother(nodes: &[f64], points: &[f64], smoothing: f64) -> Matrix {
    let n = nodes.len();
    let step = |index: usize| nodes[index + 1] - nodes[index];
    let differences = Matrix::from_fn(n - 2, n, |row, column| match column.wrapping_sub(row) {
        0 => 1.0 / step(row),
        1 => -1.0 / step(row) - 1.0 / step(row + 1),
        2 => 1.0 / step(row + 1),
        _ => 0.0,
    });
    let penalty = differences.times(&differences.transposed());
    let system = Matrix::from_fn(n - 2, n - 2, |row, column| {
        let r = match row.abs_diff(column) {
            0 => (step(row) + step(row + 1)) / 3.0,
            1 => step(row.max(column)) / 6.0,
            _ => 0.0,
        };
        r + smoothing * penalty.at(row, column)
    });
    // R is diagonally dominant and the penalty is positive: the system is regular for distinct nodes.
    let curvature = system.solve(&differences).unwrap_or_else(|| Matrix::from_fn(n - 2, n, |_, _| 0.0));
    let pull = differences.transposed().times(&curvature);
    let fitted = Matrix::from_fn(n, n, |row, column| {
        f64::from(u8::from(row == column)) - smoothing * pull.at(row, column)
    });
    let bend = |node: usize, column: usize| match node {
        0 => 0.0,
        node if node == n - 1 => 0.0,
        node => curvature.at(node - 1, column),
    };
    Matrix::from_fn(points.len(), n, |row, column| {
        let at = |node: usize| (fitted.at(node, column), bend(node, column));
        evaluate(nodes, points[row], at)
    })
}

/// A natural cubic spline with these (value, second derivative) at its nodes; straight beyond them.
fn evaluate(nodes: &[f64], point: f64, at: impl Fn(usize) -> (f64, f64)) -> f64 {
    let last = nodes.len() - 1;
    let left = nodes.partition_point(|node| *node <= point).clamp(1, last) - 1;
    let step = nodes[left + 1] - nodes[left];
    let ((f0, g0), (f1, g1)) = (at(left), at(left + 1));
    let slope = (f1 - f0) / step;
    if point < nodes[0] {
        return f0 + (point - nodes[0]) * (slope - step * g1 / 6.0);
    }
    if point > nodes[last] {
        return f1 + (point - nodes[last]) * (slope + step * g0 / 6.0);
    }
    let (a, b) = ((nodes[left + 1] - point) / step, (point - nodes[left]) / step);
    a * f0 + b * f1 + ((a * a * a - a) * g0 + (b * b * b - b) * g1) * step * step / 6.0
}
