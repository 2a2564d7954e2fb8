//! Failed requests by reason, with the first message of each.

use std::borrow::Cow;

use parm_protocol::Error as Refusal;
use schemars::JsonSchema;
use serde::Serialize;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One of few: the class of an error, or the end of a chat.
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}

/// Failed requests by reason, in the order of the first one of each. There are as many entries as reasons, however many requests
/// fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures(Vec<FailureReason>);

/// Failed requests with one class of error.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FailureReason {
    /// The class, such as `overloaded`, `deadline` or `unavailable`. Of chats `connection`, `status N`, `error in the
    /// stream`, `cut off`, `unreadable`, `no content` or `timeout`.
    pub reason: String,
    /// How many.
    pub requests: u64,
    /// The first one's message.
    pub first: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { reason: refusal.reason().into(), message: refusal.to_string() }
    }
}

impl Failures {
    pub(crate) fn add(&mut self, failure: &Failure) {
        if let Some(known) = self.0.iter_mut().find(|own| own.reason == failure.reason) {
            known.requests += 1;
            return;
        }
        let first = failure.message.split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.push(FailureReason { reason: failure.reason.to_string(), requests: 1, first });
    }

    /// Message of the first failed request, if any failed.
    pub fn first(&self) -> Option<&str> {
        self.0.first().map(|class| class.first.as_str())
    }

    /// The classes, the most frequent first.
    pub fn by_frequency(&self) -> Vec<FailureReason> {
        let mut classes = self.0.clone();
        classes.sort_by_key(|class| std::cmp::Reverse(class.requests));
        classes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn classes_are_listed_by_frequency_with_first_message() {
        let mut failures = Failures::default();
        assert_eq!(failures.first(), None);
        failures.add(&Refusal::DeadlineExceeded { waited: Duration::from_secs(2) }.into());
        for at in 0..434 {
            failures.add(&Refusal::Unavailable { message: format!("no instance\n{at}") }.into());
        }
        let told = failures.by_frequency();
        let unavailable =
            FailureReason { reason: "unavailable".into(), requests: 434, first: "no instance 0".into() };
        assert_eq!(told[0], unavailable);
        assert_eq!((told[1].reason.as_str(), told[1].requests, told.len()), ("deadline", 1, 2));
        assert!(failures.first().is_some_and(|first| first.starts_with("the deadline passed")));
    }
}
