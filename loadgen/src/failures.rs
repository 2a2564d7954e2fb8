//! Failed requests by the class of their error, with the first message of each class.

use std::collections::BTreeMap;

use parm_protocol::{Code, Error as Refusal};

/// Failed requests by class. There are as many entries as classes of errors, however many requests fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures {
    classes: BTreeMap<Code, FailureClass>,
    first: Option<String>,
}

/// The failed requests of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureClass {
    /// Name of the class, such as `overloaded`.
    pub reason: &'static str,
    /// How many.
    pub requests: u64,
    /// Message of the first.
    pub first: String,
}

impl Failures {
    pub(crate) fn add(&mut self, failure: &Refusal) {
        let message = || one_line(&failure.to_string());
        self.first.get_or_insert_with(message);
        let new = || FailureClass { reason: failure.reason(), requests: 0, first: message() };
        self.classes.entry(failure.code()).or_insert_with(new).requests += 1;
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
        failures.add(&Refusal::DeadlineExceeded { waited: Duration::from_secs(2) });
        for at in 0..434 {
            failures.add(&Refusal::Unavailable { message: format!("no instance\n{at}") });
        }
        let told: Vec<_> =
            failures.by_frequency().into_iter().map(|one| (one.reason, one.requests, one.first)).collect();
        assert_eq!(told[0], ("unavailable", 434, "no instance 0".to_owned()));
        assert_eq!((told[1].0, told[1].1, told.len()), ("deadline", 1, 2));
        assert!(failures.first().is_some_and(|first| first.starts_with("the deadline passed")));
    }
}
