//! The linear codes `sum`, `weighted` and `mds`, and the decoder of the head `sum`: r weighted sums of k vectors.
//!
//! Encoding is a weighted sum of queries, and decoding one lost slot is a weighted sum of outputs. The decoder takes
//! the lost slot's column of coefficients (over the parities that arrived) and makes it orthogonal to the columns of
//! the other missing slots. The remainder selects that slot from the parity outputs while the others cancel. With more
//! parities than losses this is the least-squares estimate, which uses every output. Matrices are at most 4 x 4 and
//! live on the stack.
//!
//! **`sum` and `weighted`.** Parity model j learns the sum of c_ji F(X_i). One parity query for two parity models with
//! different targets cannot work: it does not change when queries swap places, so no function of it can tell them apart.
//! A blank slot adds nothing to any sum.
//!
//! **`mds`** is exact for affine models, F(X) = W X + b: linear and logistic regression, linear SVMs, on raw outputs. The
//! deployed model serves its own parities, which requires F(sum of c_i X_i) = sum of c_i F(X_i). The left side has the
//! bias b once, the right side (sum of c_i) times. Every row of coefficients is therefore scaled to a sum of one. Blank
//! slots would change that sum, so a group of m members uses the code designed for k = m, with columns in slot order.
//! Mixed signs keep the answers exact in f32. After Lee et al., *Speeding Up Distributed Machine Learning Using Codes*.

use crate::coefficients::{DESIGNED_K, DESIGNED_R, Matrix, check, design};
use crate::{Code, CodeSpec, Error, Kind, Members, Received, Set, Workspace, kernel};

/// The most queries per group of a linear code: every square sub-matrix of its coefficients is checked.
pub(crate) const MAX_K: usize = 16;
/// The most parities of a linear code, for the same reason.
pub(crate) const MAX_R: usize = 4;

/// r rows of k coefficients.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    k: usize,
    exact: Matrix,
    rounded: Vec<f32>,
}

impl Linear {
    /// Rounds the coefficients to f32 first, so that encoder and decoder use the same numbers.
    pub(crate) fn new(coefficients: &Matrix) -> Self {
        let rounded = coefficients.to_f32();
        let k = coefficients.columns();
        let exact =
            Matrix::from_fn(coefficients.rows(), k, |row, column| f64::from(rounded[row * k + column]));
        Self { k, exact, rounded }
    }

    /// Writes every parity query. Blank slots add nothing.
    pub(crate) fn encode(&self, queries: &[Option<&[f32]>], parities: &mut [&mut [f32]]) {
        let mut terms: [&[f32]; MAX_K] = [&[]; MAX_K];
        let mut weights = [[0.0_f32; MAX_K]; MAX_R];
        let mut count = 0;
        for (slot, query) in queries.iter().enumerate() {
            let Some(query) = query else { continue };
            terms[count] = query;
            for (parity, weights) in weights.iter_mut().enumerate().take(self.exact.rows()) {
                weights[count] = self.rounded[parity * self.k + slot];
            }
            count += 1;
        }
        kernel::combine_each(|parity| &weights[parity][..count], &terms[..count], parities);
    }

    /// Writes the prediction of `slot`, which the caller has checked to be recoverable. `column_of` gives the column of
    /// each slot.
    pub(crate) fn decode(
        &self,
        received: Received<'_>,
        slot: usize,
        column_of: impl Fn(usize) -> usize,
        prediction: &mut [f32],
    ) {
        let arrived = received.arrived();
        let missing = arrived.members.without(arrived.predictions);
        let picker = self.picker(&received, column_of(slot), || {
            missing.iter().filter(|other| *other != slot).map(&column_of)
        });
        let mut terms: [&[f32]; MAX_K + MAX_R] = [&[]; MAX_K + MAX_R];
        let mut weights = [0.0_f32; MAX_K + MAX_R];
        let mut count = 0;
        for (parity, output) in received.parities.iter().enumerate() {
            if let Some(output) = output {
                (terms[count], weights[count]) = (output, picker[parity] as f32);
                count += 1;
            }
        }
        for (other, output) in received.predictions.iter().enumerate() {
            if let Some(output) = output
                && other != slot
                && received.members.contains(other)
            {
                let column = column_of(other);
                let weight: f64 =
                    (0..self.exact.rows()).map(|row| picker[row] * self.exact.at(row, column)).sum();
                (terms[count], weights[count]) = (output, -weight as f32);
                count += 1;
            }
        }
        kernel::combine(&weights[..count], &terms[..count], prediction);
    }

    /// The weight of each parity output: the dual vector of `column` against the `others`, zero for parities that have
    /// not arrived. Two passes of Gram-Schmidt: for four vectors it is as accurate as a factorisation.
    fn picker<I: Iterator<Item = usize>>(
        &self,
        received: &Received<'_>,
        column: usize,
        others: impl Fn() -> I,
    ) -> [f64; MAX_R] {
        let load = |column: usize| -> [f64; MAX_R] {
            std::array::from_fn(|row| match received.parities.get(row) {
                Some(Some(_)) => self.exact.at(row, column),
                _ => 0.0,
            })
        };
        let mut basis = [[0.0; MAX_R]; MAX_R];
        let mut size = 0;
        for other in others() {
            let rest = remainder(load(other), &basis[..size]);
            let length = dot(&rest, &rest).sqrt();
            basis[size] = rest.map(|value| value / length);
            size += 1;
        }
        let rest = remainder(load(column), &basis[..size]);
        let square = dot(&rest, &rest);
        rest.map(|value| value / square)
    }
}

/// Checks and returns the coefficients of a spec, or the designed ones.
pub(crate) fn coefficients(spec: &CodeSpec) -> Result<Matrix, Error> {
    let Some(rows) = &spec.coefficients else {
        return design(spec.k, spec.r).ok_or(Error::NotDesigned { k: spec.k, r: spec.r });
    };
    if rows.len() != spec.r {
        return Err(Error::CoefficientRows { expected: spec.r, actual: rows.len() });
    }
    for (row, numbers) in rows.iter().enumerate() {
        if numbers.len() != spec.k {
            return Err(Error::CoefficientShape { row, expected: spec.k, actual: numbers.len() });
        }
        if let Some(value) = numbers.iter().find(|value| !value.is_finite()) {
            return Err(Error::NotANumber { value: f64::from(*value) });
        }
    }
    let matrix = Matrix::from_fn(spec.r, spec.k, |row, column| f64::from(rows[row][column]));
    check(&matrix)?;
    Ok(matrix)
}

fn remainder(mut vector: [f64; MAX_R], basis: &[[f64; MAX_R]]) -> [f64; MAX_R] {
    for _pass in 0..2 {
        for direction in basis {
            let along = dot(&vector, direction);
            for (value, direction) in vector.iter_mut().zip(direction) {
                *value -= along * direction;
            }
        }
    }
    vector
}

fn dot(a: &[f64; MAX_R], b: &[f64; MAX_R]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A code of weighted sums: `sum`, `weighted` or `mds`.
#[derive(Debug)]
pub(crate) struct Weighted {
    spec: CodeSpec,
    /// The code of a group of m members, at index m - 1; the last is that of all groups unless blank slots count.
    by_members: Vec<Linear>,
}

impl Weighted {
    /// `spec.r` sums of `spec.k` queries.
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        let tables = match spec.kind {
            Kind::Mds => {
                spec.check_sizes(1..=DESIGNED_K, 1..=DESIGNED_R)?;
                let normalised = |members| design(members, spec.r).map(|matrix| normalised(&matrix));
                (1..=spec.k).map(normalised).collect()
            }
            kind => {
                spec.check_sizes(1..=MAX_K, 1..=if kind == Kind::Sum { 1 } else { MAX_R })?;
                Some(vec![coefficients(spec)?])
            }
        };
        let tables = tables.ok_or(Error::NotDesigned { k: spec.k, r: spec.r })?;
        Ok(Self { spec: spec.clone(), by_members: tables.iter().map(Linear::new).collect() })
    }

    /// The sums of a group with these members, and whether its columns are those of its members in slot order.
    fn of(&self, members: Set) -> (&Linear, bool) {
        match self.by_members.as_slice() {
            [all] => (all, false),
            some => (&some[members.len() - 1], true),
        }
    }
}

impl Code for Weighted {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let (linear, is_packed) = self.of(members.present());
        if !is_packed {
            linear.encode(members.queries, parities);
            return Ok(());
        }
        let mut packed: [Option<&[f32]>; MAX_K] = [None; MAX_K];
        let present = members.queries.iter().filter(|query| query.is_some());
        packed.iter_mut().zip(present).for_each(|(to, query)| *to = *query);
        linear.encode(&packed[..members.present().len()], parities);
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
        let (linear, is_packed) = self.of(members);
        let column = |slot: usize| if is_packed { members.both(Set::first(slot)).len() } else { slot };
        linear.decode(received, slot, column, prediction);
        Ok(())
    }
}

fn normalised(coefficients: &Matrix) -> Matrix {
    let sum = |row: usize| coefficients.row(row).iter().sum::<f64>();
    Matrix::from_fn(coefficients.rows(), coefficients.columns(), |row, column| {
        coefficients.at(row, column) / sum(row)
    })
}
