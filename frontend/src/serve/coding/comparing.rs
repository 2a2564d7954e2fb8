//! Predictions beside what parities say of them: who computed something else than its peers.
//!
//! Where a parity output predicts every member by itself, that is decoded and compared. Other codes need the members'
//! predictions, of which one may be wrong, so with one parity nobody could say whose fault a disagreement is. With two,
//! each member is decoded from either parity on its own: what both say of it stands or falls with the other members'
//! predictions, so they agree only if those are right, and then they tell whether this one is.

use parm_parity_models::bundle::Meaning;
use smallvec::SmallVec;

use super::decoding::{Arrived, Decoding};
use super::work::Scratch;
use crate::dispatch::{GroupId, Verdict};
use crate::error::Error;
use crate::serve::outputs::Outputs;

/// A group whose predictions are to be compared.
pub(crate) struct Comparing {
    pub(crate) group: GroupId,
    /// Row by row of the group.
    pub(crate) rows: Vec<Vec<Check>>,
}

/// One prediction, and what it is decoded from without it: once for each parity that tells something of its own.
pub(crate) struct Check {
    pub(crate) slot: u8,
    pub(crate) row: u32,
    pub(crate) prediction: Arrived,
    pub(crate) views: SmallVec<[Decoding; 2]>,
}

/// Values agree that are closer than this share of what they are.
const TOLERANCE: f32 = 0.1;

impl Comparing {
    /// Bytes that are read, about.
    pub(super) fn bytes(&self) -> usize {
        self.views().map(Decoding::bytes).sum()
    }

    pub(super) fn runs_models(&self) -> bool {
        self.views().any(Decoding::runs_models)
    }

    /// What the parities say; nothing of predictions that they contradict each other about.
    pub(super) fn compare(&self, scratch: &mut Scratch) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::new();
        for row in &self.rows {
            let mut known = Vec::with_capacity(row.len());
            for check in row {
                known.push(check.agrees(scratch)?);
            }
            // Who is alone in being contradicted by parities that are at one is wrong, and so the others are not.
            let located = known.iter().filter(|agrees| **agrees == Some(false)).count() == 1;
            let alone = |check: &Check| check.views.len() > 1;
            for (check, agrees) in row.iter().zip(known) {
                let Check { slot, row, .. } = *check;
                let agrees = agrees.or_else(|| (located && alone(check)).then_some(true));
                verdicts.extend(agrees.map(|agrees| Verdict { slot, row, agrees }));
            }
        }
        Ok(verdicts)
    }

    fn views(&self) -> impl Iterator<Item = &Decoding> {
        self.rows.iter().flatten().flat_map(|check| &check.views)
    }
}

impl Check {
    /// Whether what the parities say of the prediction is what it says; `None` if they do not say the same.
    fn agrees(&self, scratch: &mut Scratch) -> Result<Option<bool>, Error> {
        let mut first: Option<Outputs> = None;
        for view in &self.views {
            let (decoded, _) = view.decode(scratch)?;
            match &first {
                Some(before) if !view.alike(before, 0, &decoded)? => return Ok(None),
                Some(_) => {}
                None => first = Some(decoded),
            }
        }
        let (Some(said), Some(view)) = (first, self.views.first()) else { return Ok(None) };
        view.alike(&self.prediction.outputs, self.prediction.row, &said).map(Some)
    }
}

impl Decoding {
    /// Whether a row of some outputs and a decoded prediction say the same.
    fn alike(&self, outputs: &Outputs, row: usize, decoded: &Outputs) -> Result<bool, Error> {
        for said in &decoded.tensors {
            let declared = self.pool.metadata.outputs.iter().find(|output| output.name == said.name);
            let Some(declared) = declared else { continue };
            let here = outputs.tensors.iter().find(|output| output.name == said.name);
            let here = here.ok_or_else(|| Error::PartMissing { output: said.name.clone() })?;
            let here = match self.pool.batched {
                true => here.tensor.slice_rows(row, 1)?,
                false => here.tensor.clone(),
            };
            let (a, b) = (here.as_f32()?, said.tensor.as_f32()?);
            let classes = said.tensor.shape().last().copied().unwrap_or(1).max(1);
            let same = match self.meaning(declared) {
                Meaning::Values => near(&a, &b),
                Meaning::Logits | Meaning::Probabilities => {
                    a.len() == b.len()
                        && a.chunks(classes).zip(b.chunks(classes)).all(|(a, b)| top(a) == top(b))
                }
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The class with the highest score.
fn top(scores: &[f32]) -> Option<usize> {
    let best = scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(class, _)| class)
}

fn near(a: &[f32], b: &[f32]) -> bool {
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
    let size = norm(&mut a.iter().copied()).max(norm(&mut b.iter().copied()));
    a.len() == b.len() && apart <= TOLERANCE * size + 1e-6
}
