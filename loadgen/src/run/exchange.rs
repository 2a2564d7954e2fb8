//! One request and the recording of its end.

use std::time::{Duration, Instant};

use parm_protocol::InferResponse;
use parm_protocol::client::CallContext;

use super::{Queries, Target, Work};
use crate::failures::Failure;
use crate::live::Ended;
use crate::outcome::{self, Outcome};
use crate::recorder::Sample;

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// Its number.
    pub(crate) index: usize,
    /// When the run began.
    pub(crate) start: Instant,
    /// When the request was to be sent.
    pub(crate) intended: Instant,
    /// How late it is.
    pub(crate) lag: Duration,
    /// Whether the warm-up is over.
    pub(crate) counted: bool,
    /// How long it may take.
    pub(crate) deadline: Duration,
}

impl Exchange {
    /// Sends the request and records its end. Returns whether it was answered.
    pub(super) async fn run(self, target: &Target) -> bool {
        let ended = match &target.work {
            Work::Queries(queries) => self.query(queries).await,
            Work::Chats(chats) => chats.exchange(self).await,
        };
        let answered = ended.failure.is_none();
        target.live.record(ended);
        answered
    }

    async fn query(self, queries: &Queries) -> Ended {
        let request = queries.inputs.request(self.index);
        let context =
            CallContext { deadline: Some((self.intended + self.deadline).into()), ..CallContext::default() };
        let answer = queries.client.infer(request, context).await;
        let took = self.intended.elapsed();
        match answer {
            Ok(response) => Ended {
                sample: self.sample(took, outcome::of(&response)),
                counted: self.counted,
                rows: self.graded(queries, &response),
                chat: None,
                failure: None,
            },
            Err(failure) => self.unanswered(took, Outcome::Failed, Some(failure.into())),
        }
    }

    /// Records that the request was not sent.
    pub(super) fn drop(self, target: &Target) {
        target.live.record(self.unanswered(Duration::ZERO, Outcome::Dropped, None));
    }

    /// No answer is never a quick one: it counts as late as the deadline, so that errors cannot make a tail look short.
    pub(crate) fn unanswered(self, took: Duration, outcome: Outcome, failure: Option<Failure>) -> Ended {
        let sample = self.sample(took.max(self.deadline), outcome);
        Ended { sample, counted: self.counted, rows: Vec::new(), chat: None, failure }
    }

    pub(crate) fn sample(self, latency: Duration, outcome: Outcome) -> Sample {
        Sample { intended: self.intended - self.start, latency, lag: self.lag, outcome }
    }

    fn graded(self, queries: &Queries, response: &InferResponse) -> Vec<(Outcome, bool)> {
        let (Some(grader), Some(labels)) = (&queries.grader, queries.inputs.labels(self.index)) else {
            return Vec::new();
        };
        let outcomes = outcome::of_rows(response, labels.len());
        let classes = grader.classes(response, labels.len());
        let right = classes.iter().zip(labels).map(|(class, label)| *class == Some(*label));
        outcomes.into_iter().zip(right).collect()
    }
}
