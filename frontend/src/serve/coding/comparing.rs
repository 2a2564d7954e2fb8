//! Compares predictions with their decodings from parities, to find wrong instances.
//!
//! If a parity output predicts every member directly, its decoding is compared. Other codes need the members'
//! predictions, one of which may be wrong, so a single parity cannot tell which. With two parities each member is
//! decoded from either one with the help of the other members' predictions. If those are right, both decodings are
//! equal. If one member of a row is wrong, the decodings agree for that member only (its decoding does not use its own
//! prediction), and differ for the others.

use parm_dispatch::{GroupId, Verdict};
use smallvec::SmallVec;

use super::decoding::{Arrived, Decoding};
use super::work::Scratch;
use crate::error::Error;
use crate::serve::outputs::Outputs;

/// A group whose predictions are to be compared.
pub(crate) struct Comparing {
    pub(crate) group: GroupId,
    /// Checks by row of the group.
    pub(crate) rows: Vec<Vec<Check>>,
}

/// One prediction, and its decodings without it: one for each parity with independent information.
pub(crate) struct Check {
    pub(crate) slot: u8,
    pub(crate) row: u32,
    pub(crate) prediction: Arrived,
    pub(crate) views: SmallVec<[Decoding; 2]>,
    /// Whether the decodings depend on the other members' predictions.
    pub(crate) leans: bool,
}

impl Comparing {
    /// Approximate number of bytes read.
    pub(super) fn bytes(&self) -> usize {
        self.views().map(Decoding::bytes).sum()
    }

    pub(super) fn runs_models(&self) -> bool {
        self.views().any(Decoding::runs_models)
    }

    /// Compares all predictions. Those on which the parities disagree get no verdict.
    pub(super) fn compare(&self, scratch: &mut Scratch) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::new();
        for row in &self.rows {
            let said = row.iter().map(|check| check.hear(scratch)).collect::<Result<Vec<_>, _>>()?;
            let culprit = row.iter().all(|check| check.leans).then(|| Said::culprit(&said)).flatten();
            for (at, (check, said)) in row.iter().zip(&said).enumerate() {
                let agrees = match culprit {
                    Some(culprit) => Some(at != culprit),
                    // A member is wrong and it is unclear which, so disagreements of the row are void.
                    None if check.leans => said.agrees.filter(|agrees| *agrees),
                    None => said.agrees,
                };
                let Check { slot, row, .. } = *check;
                verdicts.extend(agrees.map(|agrees| Verdict { slot, row, agrees }));
            }
        }
        Ok(verdicts)
    }

    fn views(&self) -> impl Iterator<Item = &Decoding> {
        self.rows.iter().flatten().flat_map(|check| &check.views)
    }
}

/// Result for one prediction.
struct Said {
    /// Whether the prediction equals its decodings; `None` if the decodings differ.
    agrees: Option<bool>,
    /// Squared distance between the decodings.
    spread: f32,
}

impl Said {
    /// Index of the wrong prediction in a row with at most one, if it is clear.
    ///
    /// An error in one member changes the decodings of the others by different amounts; those of the member itself stay
    /// equal. If all decodings have the same class, the member with the closest ones is wrong.
    fn culprit(row: &[Self]) -> Option<usize> {
        let accused = || row.iter().enumerate().filter(|(_, said)| said.agrees == Some(false));
        let (at, least) = accused().min_by(|(_, a), (_, b)| a.spread.total_cmp(&b.spread))?;
        let is_clear = accused().all(|(other, said)| other == at || least.spread * CLEARLY < said.spread);
        is_clear.then_some(at)
    }
}

/// Minimum ratio of squared distances that distinguishes members.
const CLEARLY: f32 = 4.0;

impl Check {
    fn hear(&self, scratch: &mut Scratch) -> Result<Said, Error> {
        let mut heard = Said { agrees: None, spread: 0.0 };
        let Some(view) = self.views.first() else { return Ok(heard) };
        let (first, _) = view.decode(scratch)?;
        let mut at_one = true;
        for view in &self.views[1..] {
            let (other, _) = view.decode(scratch)?;
            at_one &= view.alike(&first, 0, &other)?;
            heard.spread += distance(&first, &other)?;
        }
        if at_one {
            heard.agrees = Some(view.alike(&self.prediction.outputs, self.prediction.row, &first)?);
        }
        Ok(heard)
    }
}

/// Squared distance between decoded outputs, which are in the same order.
fn distance(a: &Outputs, b: &Outputs) -> Result<f32, Error> {
    let mut sum = 0.0;
    for (a, b) in a.tensors.iter().zip(&b.tensors) {
        let (a, b) = (a.tensor.as_f32()?, b.tensor.as_f32()?);
        sum += a.iter().zip(b.iter()).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
    }
    Ok(sum)
}

impl Decoding {
    /// Whether a row of some outputs equals a decoded prediction.
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
            if !self.meaning(declared).agree(&a, &b, classes, self.coder.tolerance()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(said: &[(Option<bool>, f32)]) -> Vec<Said> {
        said.iter().map(|&(agrees, spread)| Said { agrees, spread }).collect()
    }

    #[test]
    fn single_contradicted_member_is_wrong() {
        assert_eq!(Said::culprit(&row(&[(None, 9.0), (Some(false), 0.1), (Some(true), 0.1)])), Some(1));
    }

    #[test]
    fn member_with_closest_decodings_is_wrong() {
        assert_eq!(Said::culprit(&row(&[(Some(false), 9.0), (Some(false), 0.0), (None, 5.0)])), Some(1));
        assert_eq!(Said::culprit(&row(&[(Some(false), 2.0), (Some(false), 1.0)])), None);
    }

    #[test]
    fn no_member_is_wrong_without_contradiction() {
        assert_eq!(Said::culprit(&row(&[(Some(true), 0.0), (None, 3.0)])), None);
    }
}
