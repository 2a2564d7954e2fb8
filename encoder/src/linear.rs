//! The linear codes `sum`, `weighted` and `mds`, and the decoder of the head `sum`: r weighted sums of k vectors.
//!
//! Encoding is a weighted sum of queries, and decoding one lost slot is a weighted sum of outputs. The decoder takes
//! the lost slot's column of coefficients (over the parities that arrived) and makes it orthogonal to the columns of
//! the other missing slots. The remainder selects that slot from the parity outputs while the others cancel. With more
//! parities than losses this is the least-squares estimate, which uses every output. Matrices are at most 3 x 3 and
//! live on the stack.
//!
//! **Coefficients.** Any r losses can be solved for if every square sub-matrix is regular. They can be solved for
//! accurately if each is well conditioned, because the inverse multiplies the errors of a parity model. Positive Cauchy
//! or Vandermonde rows are regular but nearly parallel, so they multiply errors. A random search found these: it
//! minimised the largest error gain over all loss patterns, and every sub-matrix has a condition number below 60. The
//! first row is ones, so that parity 0 is always ParM's sum. All rows have one length, and their sums are far from zero,
//! because `mds` scales rows to a sum of one.
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

use crate::{Code, CodeSpec, Error, Kind, Members, Received, Set, Workspace, kernel};

/// The most queries per group of a linear code.
pub(crate) const MAX_K: usize = 16;
/// The most parities of a linear code.
const MAX_R: usize = 3;
/// The most queries per group with more than one parity.
const DESIGNED_K: usize = 8;

#[rustfmt::skip]
const TWO: [&[f64]; 7] = [
    &[1.216, -0.721],
    &[1.501, 0.611, -0.611],
    &[1.624, 0.947, 0.483, -0.483],
    &[1.612, 0.910, 0.417, -0.417, -1.108],
    &[1.740, 1.148, 0.715, 0.360, -0.360, -0.941],
    &[1.804, 1.297, 0.915, 0.602, 0.319, -0.319, -0.814],
    &[1.792, 1.285, 0.892, 0.570, 0.286, -0.286, -0.677, -1.180],
];

#[rustfmt::skip]
const THREE: [[&[f64]; 2]; 7] = [
    [&[-0.721, 1.216],
     &[1.216, -0.721]],
    [&[1.421, 0.574, -0.807],
     &[0.574, 1.421, -0.807]],
    [&[0.402, -0.639, 0.770, 1.685],
     &[0.669, 1.523, -0.401, 1.035]],
    [&[1.715, -1.066, -0.519, 0.731, 0.344],
     &[-0.380, 0.710, -0.895, 0.350, 1.852]],
    [&[0.726, 1.074, 0.236, 2.003, -0.229, 0.447],
     &[0.471, -1.258, 1.484, 0.233, 1.099, -0.856]],
    [&[0.738, -0.272, 1.220, -0.524, 0.986, 0.185, 1.900],
     &[-0.929, 1.384, -0.186, 0.361, 0.885, 1.693, -0.640]],
    [&[1.060, 0.245, 1.820, 0.709, -1.131, -0.368, 1.246, -0.194],
     &[1.488, 1.074, -0.354, -0.929, -0.153, 0.223, 0.500, 1.822]],
];

/// Returns well-conditioned coefficients, r rows of k. One parity is ones for any k.
fn design(k: usize, r: usize) -> Result<Vec<Vec<f64>>, Error> {
    if k == 0 || r == 0 || k > MAX_K || r > MAX_R || (r > 1 && k > DESIGNED_K) {
        return Err(Error::NotDesigned { k, r });
    }
    let row = |row: usize| match (row, k, r) {
        (0, ..) | (_, 1, _) => vec![1.0; k],
        (_, _, 2) => TWO[k - 2].to_vec(),
        _ => THREE[k - 2][row - 1].to_vec(),
    };
    Ok((0..r).map(row).collect())
}

/// r rows of k coefficients, rounded, so that encoder and decoder use the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Linear(Vec<Vec<f32>>);

impl Linear {
    /// The sums of a group of k queries.
    pub(crate) fn new(k: usize, r: usize) -> Result<Self, Error> {
        Ok(Self::rounded(&design(k, r)?))
    }

    fn rounded(rows: &[Vec<f64>]) -> Self {
        Self(rows.iter().map(|row| row.iter().map(|value| *value as f32).collect()).collect())
    }

    /// As [`new`](Self::new), with rows that add up to one.
    fn normalised(k: usize, r: usize) -> Result<Self, Error> {
        let mut rows = design(k, r)?;
        for row in &mut rows {
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|value| *value /= sum);
        }
        Ok(Self::rounded(&rows))
    }

    /// The weights, r rows of k.
    pub(crate) fn into_rows(self) -> Vec<Vec<f32>> {
        self.0
    }

    /// Writes every parity query. Blank slots add nothing. `column_of` gives the column of each slot.
    fn encode(
        &self,
        queries: &[Option<&[f32]>],
        column_of: impl Fn(usize) -> usize,
        parities: &mut [&mut [f32]],
    ) {
        let mut terms: [&[f32]; MAX_K] = [&[]; MAX_K];
        let mut weights = [[0.0_f32; MAX_K]; MAX_R];
        let mut count = 0;
        for (slot, query) in queries.iter().enumerate() {
            let Some(query) = query else { continue };
            terms[count] = query;
            for (row, weights) in self.0.iter().zip(&mut weights) {
                weights[count] = row[column_of(slot)];
            }
            count += 1;
        }
        kernel::combine(|parity| &weights[parity][..count], &terms[..count], parities);
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
        let others = missing.iter().filter(|other| *other != slot).map(&column_of);
        let picker = self.picker(&received, column_of(slot), others);
        let mut terms: [&[f32]; MAX_K + MAX_R] = [&[]; MAX_K + MAX_R];
        let mut weights = [0.0_f32; MAX_K + MAX_R];
        let mut count = 0;
        for (output, weight) in received.parities.iter().zip(picker) {
            if let Some(output) = output {
                (terms[count], weights[count]) = (output, weight as f32);
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
                    self.0.iter().zip(picker).map(|(row, pick)| pick * f64::from(row[column])).sum();
                (terms[count], weights[count]) = (output, -weight as f32);
                count += 1;
            }
        }
        kernel::combine(|_| &weights[..count], &terms[..count], &mut [prediction]);
    }

    /// The weight of each parity output: the dual vector of `column` against the `others`, zero for parities that have
    /// not arrived. Two passes of Gram-Schmidt: for four vectors it is as accurate as a factorisation.
    fn picker(
        &self,
        received: &Received<'_>,
        column: usize,
        others: impl Iterator<Item = usize>,
    ) -> [f64; MAX_R] {
        let load = |column: usize| -> [f64; MAX_R] {
            std::array::from_fn(|row| match received.parities.get(row) {
                Some(Some(_)) => f64::from(self.0[row][column]),
                _ => 0.0,
            })
        };
        let mut basis = [[0.0; MAX_R]; MAX_R];
        let mut size = 0;
        for other in others {
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
        let by_members = match spec.kind {
            Kind::Mds => {
                spec.check(1..=DESIGNED_K, 1..=MAX_R)?;
                (1..=spec.k).map(|members| Linear::normalised(members, spec.r)).collect::<Result<_, _>>()?
            }
            kind => {
                spec.check(1..=MAX_K, 1..=if kind == Kind::Sum { 1 } else { MAX_R })?;
                vec![Linear::new(spec.k, spec.r)?]
            }
        };
        Ok(Self { spec: spec.clone(), by_members })
    }

    /// The sums of a group with these members, and the column of each slot.
    fn of(&self, members: Set) -> (&Linear, impl Fn(usize) -> usize + use<>) {
        let (linear, is_packed) = match self.by_members.as_slice() {
            [all] => (all, false),
            some => (&some[members.len() - 1], true),
        };
        (linear, move |slot| if is_packed { members.both(Set::first(slot)).len() } else { slot })
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
        let (linear, column) = self.of(members.present());
        linear.encode(members.queries, column, parities);
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let (linear, column) = self.of(received.members.both(Set::first(self.spec.k)));
        linear.decode(received, slot, column, prediction);
        Ok(())
    }
}
