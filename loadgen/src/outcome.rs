//! How requests end, and how often each way.

use parm_protocol::{InferResponse, Parameter};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The deployed model's own prediction.
    Exact,
    /// An exact prediction from a duplicate.
    Hedged,
    /// A reconstruction.
    Reconstructed,
    /// The answer of a stand-in: a cheaper model, asked beside the deployed one.
    StandIn,
    /// The answer of a backup: a cheaper model on instances of its own.
    Backup,
    /// The model's default answer.
    Default,
    /// No answer.
    Failed,
    /// Never sent: too many requests were without an answer.
    Dropped,
}

impl Outcome {
    /// All, from best to worst.
    pub const ALL: [Outcome; 8] = [
        Outcome::Exact,
        Outcome::Hedged,
        Outcome::Reconstructed,
        Outcome::StandIn,
        Outcome::Backup,
        Outcome::Default,
        Outcome::Failed,
        Outcome::Dropped,
    ];

    /// Its name in reports; for answers the value of `parm_outcome`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Exact => "exact",
            Outcome::Hedged => "hedged",
            Outcome::Reconstructed => "reconstructed",
            Outcome::StandIn => "stand-in",
            Outcome::Backup => "backup",
            Outcome::Default => "default",
            Outcome::Failed => "failed",
            Outcome::Dropped => "dropped",
        }
    }

    /// Whether the client got something.
    pub fn is_answer(self) -> bool {
        self < Outcome::Failed
    }

    /// How an answer says that it came about; servers that say nothing gave their model's own.
    pub fn of(response: &InferResponse) -> Self {
        text(response, "parm_outcome").map_or(Outcome::Exact, Outcome::named)
    }

    /// The same for each of its rows.
    pub fn of_rows(response: &InferResponse, rows: usize) -> Vec<Self> {
        match text(response, "parm_outcomes") {
            Some(list) => list.split(',').map(Outcome::named).take(rows).collect(),
            None => vec![Outcome::of(response); rows],
        }
    }

    fn named(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.is_answer() && outcome.name() == name)
            .unwrap_or(Outcome::Exact)
    }
}

fn text<'a>(response: &'a InferResponse, name: &str) -> Option<&'a str> {
    response.parameters.get(name).and_then(Parameter::as_str)
}

/// How often each outcome was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([Count; Outcome::ALL.len()]);

/// What is counted of one outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests that ended so.
    pub requests: u64,
    /// Rows that were compared with a label.
    pub graded: u64,
    /// Those of them that were right.
    pub right: u64,
}

impl Tally {
    /// Counts a request.
    pub fn request(&mut self, outcome: Outcome) {
        self.0[outcome as usize].requests += 1;
    }

    /// Counts a row whose label is known.
    pub fn row(&mut self, outcome: Outcome, right: bool) {
        let count = &mut self.0[outcome as usize];
        count.graded += 1;
        count.right += u64::from(right);
    }

    /// What was counted of an outcome.
    pub fn of(&self, outcome: Outcome) -> Count {
        self.0[outcome as usize]
    }

    /// All outcomes together.
    pub fn total(&self) -> Count {
        self.0.iter().fold(Count::default(), |sum, count| Count {
            requests: sum.requests + count.requests,
            graded: sum.graded + count.graded,
            right: sum.right + count.right,
        })
    }
}

impl Count {
    /// Share of the graded rows that were right; `None` of nothing.
    pub fn accuracy(&self) -> Option<f64> {
        (self.graded > 0).then(|| self.right as f64 / self.graded as f64)
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::Parameters;

    use super::*;

    fn response(parameters: &[(&str, &str)]) -> InferResponse {
        InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            id: String::new(),
            parameters: parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Parameters>(),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn an_answer_says_how_it_came_about_row_by_row() {
        use Outcome::{Exact, Hedged, Reconstructed};
        let mixed =
            response(&[("parm_outcome", "reconstructed"), ("parm_outcomes", "exact,reconstructed,hedged")]);
        assert_eq!(Outcome::of(&mixed), Reconstructed);
        assert_eq!(Outcome::of_rows(&mixed, 3), [Exact, Reconstructed, Hedged]);
        assert_eq!(Outcome::of_rows(&response(&[("parm_outcome", "hedged")]), 2), [Hedged, Hedged]);
        assert_eq!(Outcome::of(&response(&[])), Exact, "other servers say nothing");
        assert_eq!(Outcome::of(&response(&[("parm_outcome", "stand-in")])), Outcome::StandIn);
        for outcome in Outcome::ALL.into_iter().filter(|outcome| outcome.is_answer()) {
            assert_eq!(Outcome::of(&response(&[("parm_outcome", outcome.name())])), outcome);
        }
    }

    #[test]
    fn accuracy_is_that_of_the_graded_rows_of_an_outcome() {
        let mut tally = Tally::default();
        for (outcome, right) in
            [(Outcome::Exact, true), (Outcome::Exact, true), (Outcome::Reconstructed, false)]
        {
            tally.request(outcome);
            tally.row(outcome, right);
        }
        assert_eq!(tally.of(Outcome::Exact).accuracy(), Some(1.0));
        assert_eq!(tally.of(Outcome::Reconstructed).accuracy(), Some(0.0));
        assert_eq!(tally.of(Outcome::Hedged).accuracy(), None);
        assert_eq!(tally.total(), Count { requests: 3, graded: 3, right: 2 });
    }
}
