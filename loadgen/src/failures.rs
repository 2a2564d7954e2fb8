//! Failed requests by reason, with the first message of each.

use std::borrow::Cow;
use std::collections::BTreeMap;

use parm_protocol::Error as Refusal;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One of few: the class of an error, or the end of a chat.
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}

/// Failed requests by reason. There are as many entries as reasons, however many requests fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures {
    classes: BTreeMap<String, FailureClass>,
    first: Option<String>,
}

/// The failed requests of one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureClass {
    /// The reason, such as `overloaded`.
    pub reason: String,
    /// How many.
    pub requests: u64,
    /// Message of the first.
    pub first: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { reason: refusal.reason().into(), message: refusal.to_string() }
    }
}

impl Failures {
    pub(crate) fn add(&mut self, failure: &Failure) {
        let message = || one_line(&failure.message);
        self.first.get_or_insert_with(message);
        let reason = failure.reason.to_string();
        let new = || FailureClass { reason: reason.clone(), requests: 0, first: message() };
        self.classes.entry(reason.clone()).or_insert_with(new).requests += 1;
    }

    /// Message of the first failed request, if any failed.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// The classes, the most frequent first.
    pub fn by_frequency(&self) -> Vec<FailureClass> {
        let mut classes: Vec<FailureClass> = self.classes.values().cloned().collect();
        classes.sort_by_key(|class| std::cmp::Reverse(class.requests));
        classes
    }
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
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
            FailureClass { reason: "unavailable".into(), requests: 434, first: "no instance 0".into() };
        assert_eq!(told[0], unavailable);
        assert_eq!((told[1].reason.as_str(), told[1].requests, told.len()), ("deadline", 1, 2));
        assert!(failures.first().is_some_and(|first| first.starts_with("the deadline passed")));
    }
}
