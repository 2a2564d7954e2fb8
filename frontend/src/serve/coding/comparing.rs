//! Predictions beside what parities say of them: who computed something else than its peers.
//!
//! Where a parity output predicts every member by itself, that is decoded and compared. Other codes need the members'
//! predictions, of which one may be wrong, so with one parity nobody could say whose fault a disagreement is. With two,
//! each member is decoded from either parity on its own, with the help of the other members' predictions. If those are
//! right, both parities say the same. So if one member of a row is wrong, the parities agree about that member only (its
//! decoding does not use its own prediction), and disagree about the others, or are further apart.

use parm_dispatch::{GroupId, Verdict};
use parm_parity_models::bundle::Meaning;
use smallvec::SmallVec;

use super::alike::{near, same_classes};
use super::decoding::{Arrived, Decoding};
use super::work::Scratch;
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
    /// Whether what parities say of it depends on the other members' predictions.
    pub(crate) leans: bool,
}

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
            let said = row.iter().map(|check| check.hear(scratch)).collect::<Result<Vec<_>, _>>()?;
            let culprit = row.iter().all(|check| check.leans).then(|| Said::culprit(&said)).flatten();
            for (at, (check, said)) in row.iter().zip(&said).enumerate() {
                let agrees = match culprit {
                    Some(culprit) => Some(at != culprit),
                    // Somebody is wrong and nobody knows who: what is said of all of them is void.
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

/// What the parities say of one prediction.
struct Said {
    /// Whether it is what the prediction says; `None` if the parities do not say the same.
    agrees: Option<bool>,
    /// How far apart they are: squared distance between the outputs decoded from each.
    spread: f32,
}

impl Said {
    /// Whose prediction is wrong, of a row in which one can be at most, if that is clear.
    ///
    /// An error in one member moves what each parity says of the others, by amounts that differ; of the member itself they
    /// still say the same. Where they all happen to name the same class, the one about whom they are closest is wrong.
    fn culprit(row: &[Self]) -> Option<usize> {
        let accused = || row.iter().enumerate().filter(|(_, said)| said.agrees == Some(false));
        let (at, least) = accused().min_by(|(_, a), (_, b)| a.spread.total_cmp(&b.spread))?;
        let is_clear = accused().all(|(other, said)| other == at || least.spread * CLEARLY < said.spread);
        is_clear.then_some(at)
    }
}

/// Squared distances that differ less than this many times do not tell members apart.
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

/// Squared distance between decoded outputs, which come in the same order.
fn distance(a: &Outputs, b: &Outputs) -> Result<f32, Error> {
    let mut sum = 0.0;
    for (a, b) in a.tensors.iter().zip(&b.tensors) {
        let (a, b) = (a.tensor.as_f32()?, b.tensor.as_f32()?);
        sum += a.iter().zip(b.iter()).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
    }
    Ok(sum)
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
                Meaning::Values => near(&a, &b, self.coder.tolerance()),
                Meaning::Embedding => Meaning::same_directions(&a, &b, classes),
                Meaning::Logits | Meaning::Probabilities => same_classes(&a, &b, classes),
            };
            if !same {
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
    fn who_alone_is_contradicted_is_wrong() {
        assert_eq!(Said::culprit(&row(&[(None, 9.0), (Some(false), 0.1), (Some(true), 0.1)])), Some(1));
    }

    #[test]
    fn of_several_the_one_about_whom_parities_are_at_one_is_wrong() {
        assert_eq!(Said::culprit(&row(&[(Some(false), 9.0), (Some(false), 0.0), (None, 5.0)])), Some(1));
        assert_eq!(Said::culprit(&row(&[(Some(false), 2.0), (Some(false), 1.0)])), None);
    }

    #[test]
    fn nobody_is_wrong_where_nobody_is_contradicted() {
        assert_eq!(Said::culprit(&row(&[(Some(true), 0.0), (None, 3.0)])), None);
    }
}
