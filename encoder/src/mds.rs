//! Exact codes for affine models, F(X) = W X + b: linear and logistic regression, linear SVMs, on raw outputs.
//!
//! The deployed model serves its own parities, which requires F(sum of c_i X_i) = sum of c_i F(X_i). The left side
//! has the bias b once, the right side (sum of c_i) times. Every row of coefficients is therefore scaled to a sum of
//! one. Blank slots would change that sum, so a group of m members uses the code designed for k = m, with columns in
//! slot order. Normalised Cauchy or Vandermonde rows of positive numbers are nearly parallel; mixed signs keep the
//! answers exact in f32. After Lee et al., *Speeding Up Distributed Machine Learning Using Codes*.

use crate::coefficients::{DESIGNED_K, DESIGNED_R, design};
use crate::kind::{Mixing, Nature, Requirement};
use crate::linear::{Linear, MAX_K};
use crate::matrix::Matrix;
use crate::{Code, CodeSpec, Error, Members, Needs, Received, Set, Workspace};

/// The row of the table of codes.
pub(crate) const NATURE: Nature = Nature {
    name: "mds",
    requires: Requirement::AffineModel,
    mixing: Mixing::AddsUp,
    fields: &[],
    parities: |spec| spec.r,
    needs: |_| Needs::AsManyAsMissing,
    build: |spec| Ok(Box::new(Mds::new(spec)?)),
};

/// Real MDS codes whose parities the deployed model serves.
#[derive(Debug)]
pub struct Mds {
    spec: CodeSpec,
    /// The code of a group of m members, at index m - 1.
    by_members: Vec<Linear>,
}

impl Mds {
    /// `spec.r` sums of `spec.k` queries, each row of which adds up to one.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(1..=DESIGNED_K, 1..=DESIGNED_R)?;
        let by_members = (1..=spec.k)
            .map(|members| design(members, spec.r).map(|matrix| Linear::new(&normalised(&matrix))))
            .collect::<Option<_>>()
            .ok_or(Error::NotDesigned { k: spec.k, r: spec.r })?;
        Ok(Self { spec: spec.clone(), by_members })
    }
}

impl Code for Mds {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let mut present: [Option<&[f32]>; MAX_K] = [None; MAX_K];
        let mut count = 0;
        for query in members.queries.iter().flatten() {
            present[count] = Some(query);
            count += 1;
        }
        self.by_members[count - 1].encode(&present[..count], parities);
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let members = received.members.both(Set::first(self.spec.k));
        let rank = |slot: usize| members.both(Set::first(slot)).len();
        self.by_members[members.len() - 1].decode_columns(received, slot, rank, prediction);
        Ok(())
    }
}

fn normalised(coefficients: &Matrix) -> Matrix {
    let sum = |row: usize| coefficients.row(row).iter().sum::<f64>();
    Matrix::from_fn(coefficients.rows(), coefficients.columns(), |row, column| {
        coefficients.at(row, column) / sum(row)
    })
}
