//! Judges candidates on rows that none was made from.

use std::collections::BTreeMap;

use parm_parity_models::bundle::Meaning;
use parm_protocol::Tensor;

use super::answers;
use super::candidates::Made;
use super::frontier::Candidate;
use crate::Error;
use crate::measure::{Share, Shares, Truth, judge, mean_cosine, right, sureness};
use crate::rows::Rows;
use crate::workshop::Progress;

/// Maximum bytes of a candidate's answers that are kept: there are twenty candidates.
const MOST_KEPT: usize = 1 << 26;

/// Rows with their correct answers.
pub(super) struct Bar<'a> {
    pub(super) rows: &'a Rows,
    /// The deployed model's answers and their meaning.
    pub(super) said: &'a [Tensor],
    pub(super) meaning: Meaning,
    pub(super) labels: Option<&'a [usize]>,
    pub(super) progress: &'a dyn Progress,
}

impl Bar<'_> {
    /// Runs a candidate on the rows. Its answers are added to `said_by` if its confidence may be fitted again.
    pub(super) fn judge(
        &self,
        made: Made,
        cost: Shares,
        said_by: &mut BTreeMap<String, Tensor>,
    ) -> Result<Candidate, Error> {
        let Made { name, how, model, mut runner, .. } = made;
        self.progress.doing(&format!("judging {name}"));
        let answers = answers(&mut runner, self.rows, self.progress)?;
        let agreement = Share::of(&judge(self.said, &answers, self.meaning));
        let accuracy = self.labels.map(|labels| Share::of(&right(&answers, labels)));
        let truth = self.labels.map_or(Truth::Deployed(self.said), Truth::Labels);
        let sureness = sureness(self.said, &answers, &truth, self.meaning);
        let cosine = mean_cosine(self.said, &answers, self.meaning);
        if sureness.is_some() {
            let first = answers.into_iter().next().filter(|first| first.data().len() <= MOST_KEPT);
            said_by.extend(first.map(|first| (name.clone(), first)));
        }
        Ok(Candidate { name, how, cost, agreement, accuracy, cosine, sureness, model })
    }
}
