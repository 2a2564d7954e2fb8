//! Judges candidates on rows that none was made from.

use parm_protocol::Tensor;

use super::answers;
use super::candidates::Made;
use super::frontier::Candidate;
use crate::Error;
use crate::measure::{Comparison, Gap, Meanings, Share, Shares, judge, sureness};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// A share with its interval, in percent.
pub(super) fn percents(share: &Share) -> String {
    let [value, low, high] = [share.value, share.low, share.high].map(|share| 100.0 * share);
    format!("{value:.1} % ({low:.1}-{high:.1})")
}

/// Rows with their correct answers.
pub(super) struct Bar<'a> {
    pub(super) workshop: &'a Workshop,
    pub(super) rows: &'a Rows,
    /// The deployed model's answers and their meaning.
    pub(super) said: &'a [Tensor],
    pub(super) meanings: &'a Meanings,
    /// For each row, whether a constant answer agrees with it.
    pub(super) constant: &'a [bool],
    pub(super) labels: Option<&'a [usize]>,
    pub(super) progress: &'a dyn Progress,
}

impl Bar<'_> {
    /// Runs a candidate on the rows.
    pub(super) fn judge(&self, made: Made, cost: Shares) -> Result<Candidate, Error> {
        let Made { name, how, model, .. } = made;
        self.progress.doing(&format!("judging {name}"));
        let answers = answers(&mut self.workshop.load_stored(&model)?, self.rows, self.progress)?;
        let (meanings, list) = (self.meanings, self.meanings.list());
        let same = judge(self.said, &answers, &list);
        let right = self.labels.map(|labels| meanings.right(&answers, labels));
        let compared = Comparison::of((self.said, &answers), &list, (&same, right.as_deref()));
        let truth = meanings.truth(meanings.scores(self.said), self.labels);
        let sureness = sureness(&meanings.scores(&answers), &truth);
        let is_no_better = Gap::of(&same, self.constant).low <= 0.0;
        let agreement = percents(&compared.agreement);
        self.progress.tell(&format!("{name}: cost {:.3}, agrees on {agreement}", cost[0]));
        Ok(Candidate { name, how, cost, compared, is_no_better, sureness, model })
    }
}
