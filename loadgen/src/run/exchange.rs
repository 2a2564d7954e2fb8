//! One request and the recording of its end.

use std::time::{Duration, Instant};

use parm_protocol::client::CallContext;
use parm_protocol::{Error as Refusal, InferResponse};

use super::Target;
use crate::live::Ended;
use crate::outcome::{self, Outcome};
use crate::recorder::Sample;

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    /// Its number.
    pub(super) index: usize,
    /// When the run began.
    pub(super) start: Instant,
    /// When the request was to be sent.
    pub(super) intended: Instant,
    /// How late it is.
    pub(super) lag: Duration,
    /// Whether the warm-up is over.
    pub(super) counted: bool,
    /// How long it may take.
    pub(super) deadline: Duration,
}

impl Exchange {
    /// Sends the request and records its end. Returns whether it was answered.
    pub(super) async fn run(self, target: &Target) -> bool {
        let request = target.inputs.request(self.index);
        let context =
            CallContext { deadline: Some((self.intended + self.deadline).into()), ..CallContext::default() };
        let answer = target.client.infer(request, context).await;
        let took = self.intended.elapsed();
        let answered = answer.is_ok();
        target.live.record(match answer {
            Ok(response) => Ended {
                sample: self.sample(took, outcome::of(&response)),
                counted: self.counted,
                rows: self.graded(target, &response),
                failure: None,
            },
            Err(failure) => self.unanswered(took, Outcome::Failed, Some(failure)),
        });
        answered
    }

    /// Records that the request was not sent.
    pub(super) fn drop(self, target: &Target) {
        target.live.record(self.unanswered(Duration::ZERO, Outcome::Dropped, None));
    }

    /// No answer is never a quick one: it counts as late as the deadline, so that errors cannot make a tail look short.
    fn unanswered(self, took: Duration, outcome: Outcome, failure: Option<Refusal>) -> Ended {
        let sample = self.sample(took.max(self.deadline), outcome);
        Ended { sample, counted: self.counted, rows: Vec::new(), failure }
    }

    fn sample(self, latency: Duration, outcome: Outcome) -> Sample {
        Sample { intended: self.intended - self.start, latency, lag: self.lag, outcome }
    }

    fn graded(self, target: &Target, response: &InferResponse) -> Vec<(Outcome, bool)> {
        let (Some(grader), Some(labels)) = (&target.grader, target.inputs.labels(self.index)) else {
            return Vec::new();
        };
        let outcomes = outcome::of_rows(response, labels.len());
        let classes = grader.classes(response, labels.len());
        let right = classes.iter().zip(labels).map(|(class, label)| *class == Some(*label));
        outcomes.into_iter().zip(right).collect()
    }
}
