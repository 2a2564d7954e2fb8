//! Outcomes of requests: read from responses, and counted.

use parm_protocol::{InferResponse, Parameter};

pub use parm_workload::Outcome;

/// Reads how an answer came about. Servers without `parm_outcome` always answer with the deployed model.
pub fn of(response: &InferResponse) -> Outcome {
    text(response, "parm_outcome").map_or(Outcome::Exact, named)
}

/// Reads the same for each of its rows.
pub fn of_rows(response: &InferResponse, rows: usize) -> Vec<Outcome> {
    match text(response, "parm_outcomes") {
        Some(list) => list.split(',').map(named).take(rows).collect(),
        None => vec![of(response); rows],
    }
}

fn named(name: &str) -> Outcome {
    let is_it = |outcome: &Outcome| outcome.is_answer() && outcome.name() == name;
    Outcome::ALL.into_iter().find(is_it).unwrap_or(Outcome::Exact)
}

fn text<'a>(response: &'a InferResponse, name: &str) -> Option<&'a str> {
    response.parameters.get(name).and_then(Parameter::as_str)
}

/// Number of requests and rows by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([Count; Outcome::ALL.len()]);

/// The counts of one outcome.
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

    /// Returns the counts of an outcome.
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
    /// Returns the share of the graded rows that were right; `None` if no row was graded.
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
            parameters: parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Parameters>(),
            ..InferResponse::default()
        }
    }

    #[test]
    fn response_parameters_give_the_outcome_of_each_row() {
        use Outcome::{Exact, Hedged, Reconstructed};
        let mixed =
            response(&[("parm_outcome", "reconstructed"), ("parm_outcomes", "exact,reconstructed,hedged")]);
        assert_eq!(of(&mixed), Reconstructed);
        assert_eq!(of_rows(&mixed, 3), [Exact, Reconstructed, Hedged]);
        assert_eq!(of_rows(&response(&[("parm_outcome", "hedged")]), 2), [Hedged, Hedged]);
        assert_eq!(of(&response(&[])), Exact, "other servers send no outcome");
        assert_eq!(of(&response(&[("parm_outcome", "stand-in")])), Outcome::StandIn);
        for outcome in Outcome::ALL.into_iter().filter(|outcome| outcome.is_answer()) {
            assert_eq!(of(&response(&[("parm_outcome", outcome.name())])), outcome);
        }
    }
}
