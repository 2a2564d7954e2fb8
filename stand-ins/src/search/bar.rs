//! What candidates are judged by.

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

/// What a candidate says of the rows is kept up to so many bytes: there are twenty candidates.
const MOST_KEPT: usize = 1 << 26;

/// Rows, and what is right about them.
pub(super) struct Bar<'a> {
    pub(super) rows: &'a Rows,
    /// What the deployed model says of them, and what that means.
    pub(super) said: &'a [Tensor],
    pub(super) meaning: Meaning,
    pub(super) labels: Option<&'a [usize]>,
    pub(super) progress: &'a dyn Progress,
}

impl Bar<'_> {
    /// Asks a candidate about the rows. What it says of them goes to `said_by` where its confidence may be fitted once more.
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
