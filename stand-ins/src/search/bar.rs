//! Judges candidates on rows that none was made from.

use std::collections::BTreeMap;

use parm_protocol::Tensor;

use super::answers;
use super::candidates::Made;
use super::frontier::Candidate;
use crate::Error;
use crate::measure::{
    Gap, Meanings, ScoredRows, Share, Shares, difference, judge, mean_cosine, neighbours_kept, sureness,
};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Maximum bytes of all candidates' answers that are kept.
pub(super) const MOST_KEPT: usize = 1 << 28;

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
    /// Runs a candidate on the rows. Its answers are added to `said_by` if its confidence may be fitted again.
    pub(super) fn judge(
        &self,
        made: Made,
        cost: Shares,
        said_by: &mut BTreeMap<String, ScoredRows>,
    ) -> Result<Candidate, Error> {
        let Made { name, how, model, .. } = made;
        self.progress.doing(&format!("judging {name}"));
        let answers = answers(&mut self.workshop.load_stored(&model)?, self.rows, self.progress)?;
        let (meanings, list) = (self.meanings, self.meanings.list());
        let same = judge(self.said, &answers, &list);
        let accuracy = self.labels.map(|labels| Share::of(&meanings.right(&answers, labels)));
        let scores = meanings.scores(&answers);
        let sureness = sureness(&scores, &meanings.truth(meanings.scores(self.said), self.labels));
        let cosine = mean_cosine(self.said, &answers, &list);
        let neighbours = neighbours_kept(self.said, &answers, &list);
        let difference = difference(self.said, &answers);
        if sureness.is_some() {
            let kept: usize = said_by.values().map(ScoredRows::bytes).sum();
            if kept + scores.bytes() <= MOST_KEPT {
                said_by.insert(name.clone(), scores);
            }
        }
        let agreement = Share::of(&same);
        let is_no_better = Gap::of(&same, self.constant).low <= 0.0;
        let found = Candidate {
            name,
            how,
            cost,
            agreement,
            is_no_better,
            difference,
            accuracy,
            cosine,
            neighbours,
            sureness,
            model,
        };
        self.progress.tell(&format!(
            "{}: cost {:.3}, agrees on {}",
            found.name,
            cost[0],
            percents(&agreement)
        ));
        Ok(found)
    }
}
