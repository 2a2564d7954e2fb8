//! Groups of rows that are coded together: drawn anew for every epoch of a training, and once for an evaluation.

use parm_encoder::{Code, Input, Members, Workspace, path};
use parm_random::Random;

use crate::{Array, Error};

/// A blank slot.
pub(crate) const BLANK: usize = usize::MAX;

/// Rows in groups of k.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    k: usize,
    rows: Vec<usize>,
}

/// The groups of a training.
///
/// An epoch walks through random orders of all rows, as many as it needs, so that every row is used equally often; k
/// consecutive ones are a group. Some groups lose members, so that a parity model learns blank slots. The draw depends
/// only on the seed and the epoch, so a resumed run continues with the same groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    /// Slots of a group.
    pub(crate) k: usize,
    /// Groups in an epoch.
    pub(crate) groups: usize,
    /// Share of groups that have blank slots.
    pub(crate) blanks: f32,
    /// Seed of the run.
    pub(crate) seed: u64,
}

impl Sampling {
    /// The groups of an epoch over `samples` rows, of which there must be at least one.
    pub(crate) fn draw(&self, samples: usize, epoch: u64) -> Groups {
        let mut random = Random::named(self.seed, &format!("groups of epoch {epoch}"));
        let wanted = self.groups * self.k;
        let mut rows = Vec::with_capacity(wanted + samples);
        while rows.len() < wanted {
            let start = rows.len();
            rows.extend(0..samples);
            random.shuffle(&mut rows[start..]);
        }
        rows.truncate(wanted);
        if self.k > 1 && self.blanks > 0.0 {
            let mut slots: Vec<usize> = (0..self.k).collect();
            for group in rows.chunks_exact_mut(self.k) {
                if random.unit() < f64::from(self.blanks) {
                    let count = 1 + random.below(self.k - 1);
                    random.shuffle(&mut slots);
                    slots[..count].iter().for_each(|&slot| group[slot] = BLANK);
                }
            }
        }
        Groups { k: self.k, rows }
    }
}

impl Groups {
    /// Random groups of `count` rows, every row at most once, the same for the same seed. Up to k - 1 rows are left over.
    pub(crate) fn draw(count: usize, k: usize, seed: u64) -> Result<Self, Error> {
        if k == 0 || count < k {
            return Err(Error::TooFew { rows: count, wanted: k });
        }
        let keys = Random::named(seed, "groups").uniforms(1.0, count);
        let mut rows: Vec<usize> = (0..count).collect();
        rows.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
        rows.truncate(count - count % k);
        Ok(Self { k, rows })
    }

    /// The same groups, each ordered along a short path through its queries: codes that interpolate along a curve
    /// gain.
    pub(crate) fn along_paths(mut self, inputs: &Array<f32>) -> Self {
        let row = row_len(inputs);
        for group in self.rows.chunks_exact_mut(self.k) {
            let queries: Vec<&[f32]> = group.iter().map(|&at| &inputs.data()[at * row..][..row]).collect();
            let order = path::nearest(&queries);
            let before = group.to_vec();
            group.iter_mut().zip(order).for_each(|(slot, from)| *slot = before[from]);
        }
        self
    }

    /// Groups with these members, k per group.
    pub(crate) fn of(k: usize, rows: Vec<usize>) -> Self {
        Self { k, rows }
    }

    /// Queries in a group.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// Number of groups; never 0.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() / self.k
    }

    /// The groups: a row for each slot.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.rows.chunks_exact(self.k)
    }

    /// The members of all groups, k per group.
    pub(crate) fn members(&self) -> &[usize] {
        &self.rows
    }

    /// Groups `from..to`, or fewer at the end.
    pub(crate) fn range(&self, from: usize, to: usize) -> Self {
        Self { k: self.k, rows: self.rows[from * self.k..to.min(self.len()) * self.k].to_vec() }
    }

    /// Parts of at most `groups` groups, to bound the memory of coded queries.
    pub(crate) fn parts(&self, groups: usize) -> impl Iterator<Item = Groups> {
        self.rows.chunks(groups.max(1) * self.k).map(|rows| Groups { k: self.k, rows: rows.to_vec() })
    }
}

/// The coded queries of all groups: one array `[groups, ..]` for each coded query of a group. They are made on the host
/// by the code that serves, so training and serving cannot differ.
pub(crate) fn encode(
    code: &dyn Code,
    groups: &Groups,
    inputs: &Array<f32>,
) -> Result<Vec<Array<f32>>, Error> {
    let rows = inputs.shape().first().copied().unwrap_or(0);
    if let Some(&row) = groups.rows.iter().find(|&&row| row >= rows && row != BLANK) {
        return Err(Error::Rows { what: "inputs", expected: row + 1, actual: rows });
    }
    let input = Input::floats(&inputs.shape()[1..]);
    let mut shape = code.parity_dims(input)?;
    let size: usize = shape.iter().product();
    shape.insert(0, groups.len());
    let mut coded = vec![vec![0.0; groups.len() * size]; code.recovery().parities];
    let mut workspace = Workspace::new();
    for (at, group) in groups.iter().enumerate() {
        let query = |&row: &usize| (row != BLANK).then(|| &inputs.data()[row * input.len()..][..input.len()]);
        let queries: Vec<Option<&[f32]>> = group.iter().map(query).collect();
        let mut out: Vec<&mut [f32]> = coded.iter_mut().map(|all| &mut all[at * size..][..size]).collect();
        code.encode(Members { input, queries: &queries }, &mut out, &mut workspace)?;
    }
    let arrays = coded.into_iter().map(|data| Array::new(shape.clone(), data).expect("one query a group"));
    Ok(arrays.collect())
}

/// Values in a row.
pub(crate) fn row_len(array: &Array<f32>) -> usize {
    array.shape().iter().skip(1).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling { k: 3, groups: 40, blanks: 0.0, seed: 7 }
    }

    #[test]
    fn epoch_uses_every_row_equally_often_in_an_order_of_its_own() {
        let mut seen = [0; 30];
        sampling().draw(30, 1).rows.iter().for_each(|&row| seen[row] += 1);
        assert_eq!(seen, [4; 30]);
        assert_eq!(sampling().draw(30, 1), sampling().draw(30, 1));
        assert_ne!(sampling().draw(30, 1), sampling().draw(30, 2));
        assert_ne!(sampling().draw(30, 1), Sampling { seed: 8, ..sampling() }.draw(30, 1));
    }

    #[test]
    fn blanks_leave_a_member_in_every_group() {
        let groups = Sampling { blanks: 0.5, ..sampling() }.draw(30, 1);
        let blanks = |group: &[usize]| group.iter().filter(|&&row| row == BLANK).count();
        assert!(groups.iter().all(|group| blanks(group) < 3));
        let touched = groups.iter().filter(|group| blanks(group) > 0).count();
        assert!((5..36).contains(&touched), "{touched} of 40");
    }
    #[test]
    fn groups_hold_every_row_once_and_keep_their_rows_along_paths() {
        let sorted = |rows: &[usize]| {
            let mut rows = rows.to_vec();
            rows.sort_unstable();
            rows
        };
        let groups = Groups::draw(60, 5, 1).unwrap();
        assert_ne!(groups, Groups::draw(60, 5, 2).unwrap());
        assert_eq!(sorted(&groups.rows), (0..60).collect::<Vec<_>>());
        let inputs = Array::new(vec![60, 1], (0..60).map(|row| (row * 31 % 17) as f32).collect()).unwrap();
        let ordered = groups.clone().along_paths(&inputs);
        assert_ne!(ordered, groups);
        assert!(ordered.iter().map(sorted).eq(groups.iter().map(sorted)));
    }
}
