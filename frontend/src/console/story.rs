//! Story of a query: its steps, and their description in words.
//!
//! `parm ctl query` prints these words and the page shows them, so both say the same.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::words::{share, time};
use crate::serve::reading::Time;

/// Maximum kept steps of a query.
const STEPS: usize = 64;

/// Steps of a query so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    steps: Vec<(Time, Step)>,
}

/// A job at an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// Number of the instance.
    pub(crate) instance: u32,
    pub(crate) job: u64,
}

/// A step of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Queued(u32),
    Given(At, usize),
    Hedged(At, usize),
    Retried(At, usize),
    Grouped { group: u64, k: u8, slot: u8 },
    ParityGiven(At, u64),
    ParityIn(At, u64),
    StandInGiven(At),
    StandInIn(At, Option<f32>),
    BackupGiven(At),
    BackupIn(At),
    Late(Duration),
    HeldBack(Time),
    Decoded(u64, Option<f32>),
    Failed(At, Box<str>),
    Answered(&'static str, Option<Box<str>>),
    PredictionIn(At, Option<bool>),
    More,
}

impl Story {
    pub(crate) fn push(&mut self, at: Time, step: Step) {
        match self.steps.len() {
            full if full >= STEPS => {}
            last if last == STEPS - 1 => self.steps.push((at, Step::More)),
            _ => self.steps.push((at, step)),
        }
    }

    /// Whether an instance received the query for the deployed model.
    pub(crate) fn was_given(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Given(..)))
    }

    /// Whether it was late.
    pub(crate) fn is_late(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Late(_)))
    }

    /// Sets whether the prediction of this job agrees with the answer.
    pub(crate) fn set_agrees(&mut self, job: u64, says: bool) {
        let step = self.steps.iter_mut().find_map(|(_, step)| match step {
            Step::PredictionIn(at, agrees) if at.job == job => Some(agrees),
            _ => None,
        });
        step.into_iter().for_each(|agrees| *agrees = Some(says));
    }

    /// Clears the steps and keeps the memory.
    pub(crate) fn emptied(mut self) -> Self {
        self.steps.clear();
        self
    }

    /// The steps as they are sent; `arrived` is the query's arrival.
    pub(super) fn told(&self, arrived: Time) -> Vec<Value> {
        let since = |at: Time| at.since(arrived).as_micros() as u64;
        let tell = |(at, step): &(Time, Step)| {
            let mut told = Map::new();
            if *step != Step::More {
                told.insert("at_us".into(), json!(since(*at)));
            }
            told.insert("what".into(), json!(step.name()));
            step.fields(arrived, &mut told);
            told.insert("text".into(), json!(step.text(arrived)));
            Value::Object(told)
        };
        let first = json!({ "at_us": 0, "what": "arrived", "text": "It arrived." });
        [first].into_iter().chain(self.steps.iter().map(tell)).collect()
    }

    /// Explains the query's outcome.
    pub(super) fn why(&self, outcome: &str, took: Duration, alone: Option<Duration>) -> String {
        let answered = match outcome {
            "exact" => return format!("Its own prediction answered it after {}.", time(took)),
            "rejected" => return "It was rejected: no instance could take it.".to_owned(),
            "failed" => return format!("It got no answer in {}.", time(took)),
            other => by(other),
        };
        let late = self.steps.iter().enumerate().find_map(|(at, (_, step))| match step {
            Step::Late(after) => Some((at, format!(" after {}", time(*after)))),
            _ => None,
        });
        // Jobs that started after the query was late are not the cause.
        let until = late.as_ref().map_or(self.steps.len(), |(at, _)| *at);
        let given = self.steps[..until].iter().find_map(|(_, step)| match step {
            Step::Given(at, _) => Some(at.instance),
            _ => None,
        });
        let what = match given {
            Some(instance) => format!("Its prediction from instance {instance}"),
            None if late.is_some() => "It was still waiting for an instance and".to_owned(),
            None => "Its prediction".to_owned(),
        };
        let came = alone.map_or("has not come yet".to_owned(), |alone| format!("came after {}", time(alone)));
        let end = match alone.and_then(|alone| alone.checked_sub(took)).filter(|saved| !saved.is_zero()) {
            Some(saved) => format!(", {} sooner than the prediction, which {came}", time(saved)),
            None => format!("; the prediction {came}"),
        };
        format!(
            "{what} was late{}, so {answered} answered it after {}{end}.",
            late.map(|(_, after)| after).unwrap_or_default(),
            time(took)
        )
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Queued(_) => "queued",
            Self::Given(..) => "given",
            Self::Hedged(..) => "hedged",
            Self::Retried(..) => "retried",
            Self::Grouped { .. } => "grouped",
            Self::ParityGiven(..) => "parity_given",
            Self::ParityIn(..) => "parity_in",
            Self::StandInGiven(..) => "stand_in_given",
            Self::StandInIn(..) => "stand_in_in",
            Self::BackupGiven(_) => "backup_given",
            Self::BackupIn(_) => "backup_in",
            Self::Late(_) => "late",
            Self::HeldBack(_) => "held_back",
            Self::Decoded(..) => "decoded",
            Self::Failed(..) => "failed",
            Self::Answered(..) => "answered",
            Self::PredictionIn(..) => "prediction_in",
            Self::More => "more",
        }
    }

    fn fields(&self, arrived: Time, told: &mut Map<String, Value>) {
        let mut set = |name: &str, value: Value| {
            told.insert(name.to_owned(), value);
        };
        match self {
            Self::Given(at, _)
            | Self::Hedged(at, _)
            | Self::Retried(at, _)
            | Self::ParityGiven(at, _)
            | Self::ParityIn(at, _)
            | Self::StandInGiven(at)
            | Self::StandInIn(at, _)
            | Self::BackupGiven(at)
            | Self::BackupIn(at)
            | Self::Failed(at, _)
            | Self::PredictionIn(at, _) => {
                set("instance", json!(at.instance));
                set("job", json!(at.job));
            }
            _ => {}
        }
        match self {
            Self::Queued(waiting) => set("waiting", json!(waiting)),
            Self::Given(_, rows) | Self::Hedged(_, rows) | Self::Retried(_, rows) => set("rows", json!(rows)),
            Self::Grouped { group, k, slot } => {
                set("group", json!(group));
                set("k", json!(k));
                set("slot", json!(slot));
            }
            Self::ParityGiven(_, group) | Self::ParityIn(_, group) => set("group", json!(group)),
            Self::StandInIn(_, confidence) => set("confidence", json!(confidence)),
            Self::Late(after) => set("after_us", json!(after.as_micros() as u64)),
            Self::HeldBack(until) => set("until_us", json!(until.since(arrived).as_micros() as u64)),
            Self::Decoded(group, confidence) => {
                set("group", json!(group));
                set("confidence", json!(confidence));
            }
            Self::Failed(_, error) => set("error", json!(error)),
            Self::Answered(outcome, error) => {
                set("outcome", json!(outcome));
                error.iter().for_each(|error| set("error", json!(error)));
            }
            Self::PredictionIn(_, agrees) => set("agrees", json!(agrees)),
            Self::StandInGiven(_) | Self::BackupGiven(_) | Self::BackupIn(_) | Self::More => {}
        }
    }

    fn text(&self, arrived: Time) -> String {
        let sure = |confidence: &Option<f32>| {
            confidence.map(|sure| format!(", {} sure", share(f64::from(sure)))).unwrap_or_default()
        };
        match self {
            Self::Queued(0) => "It had to wait for an instance.".to_owned(),
            Self::Queued(1) => "It had to wait: one was before it.".to_owned(),
            Self::Queued(waiting) => format!("It had to wait: {waiting} were before it."),
            Self::Given(at, _) => format!("Instance {} got it.", at.instance),
            Self::Hedged(at, _) => format!("Instance {} got it too, as a hedge.", at.instance),
            Self::Retried(at, _) => format!("Instance {} got it again.", at.instance),
            Self::Grouped { k, slot, .. } => {
                format!("It joined a coding group of {k}, as member {}.", slot + 1)
            }
            Self::ParityGiven(at, _) => format!("Instance {} got the group's parity.", at.instance),
            Self::ParityIn(at, _) => format!("The parity was in, from instance {}.", at.instance),
            Self::StandInGiven(at) => format!("Instance {} began its stand-in.", at.instance),
            Self::StandInIn(_, confidence) => format!("The stand-in's answer was in{}.", sure(confidence)),
            Self::BackupGiven(at) => format!("Instance {} got it for the backup model.", at.instance),
            Self::BackupIn(_) => "The backup model answered.".to_owned(),
            Self::Late(after) => format!("It was late, after {}.", time(*after)),
            Self::HeldBack(until) => {
                let until = time(until.since(arrived));
                format!("The approximate answer was held back until {until}, in favour of the prediction.")
            }
            Self::Decoded(_, confidence) => {
                format!("Its prediction was decoded from the others of its group{}.", sure(confidence))
            }
            Self::Failed(at, error) => format!("Instance {} failed it: {error}.", at.instance),
            Self::Answered(outcome, None) => format!("It was answered by {}.", by(outcome)),
            Self::Answered(outcome, Some(error)) => format!("It was answered by {}: {error}.", by(outcome)),
            Self::PredictionIn(at, agrees) => {
                let said = match agrees {
                    Some(true) => ": the same answer",
                    Some(false) => ": another answer",
                    None => "",
                };
                format!("Its own prediction came, from instance {}{said}.", at.instance)
            }
            Self::More => "More happened than is kept.".to_owned(),
        }
    }
}

/// Describes the source of an answer.
fn by(outcome: &str) -> &'static str {
    match outcome {
        "exact" => "its own prediction",
        "hedged" => "a hedge",
        "reconstructed" => "a reconstruction",
        "stand-in" => "a stand-in",
        "backup" => "the backup model",
        "default" => "the default answer",
        "rejected" => "a refusal",
        _ => "a failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(1000 + millis)
    }

    #[test]
    fn story_names_instances_and_reason_of_answer() {
        let mut story = Story::default();
        let (own, other) = (At { instance: 3, job: 7 }, At { instance: 5, job: 8 });
        story.push(at(0), Step::Given(own, 1));
        story.push(at(1), Step::StandInGiven(other));
        story.push(at(9), Step::StandInIn(other, Some(0.93)));
        story.push(at(22), Step::Late(Duration::from_millis(22)));
        story.push(at(25), Step::Answered("stand-in", None));
        story.push(at(98), Step::PredictionIn(own, None));
        story.set_agrees(7, true);
        let told = story.told(at(0));
        let texts: Vec<_> = told.iter().map(|step| step["text"].as_str().unwrap()).collect();
        assert_eq!(
            texts,
            [
                "It arrived.",
                "Instance 3 got it.",
                "Instance 5 began its stand-in.",
                "The stand-in's answer was in, 93.0 % sure.",
                "It was late, after 22 ms.",
                "It was answered by a stand-in.",
                "Its own prediction came, from instance 3: the same answer.",
            ]
        );
        assert_eq!((&told[6]["at_us"], &told[6]["agrees"]), (&json!(98_000), &json!(true)));
        let why = story.why("stand-in", Duration::from_millis(25), Some(Duration::from_millis(98)));
        let expected = "Its prediction from instance 3 was late after 22 ms, so a stand-in answered it after 25 ms, \
                        73 ms sooner than the prediction, which came after 98 ms.";
        assert_eq!(why, expected);
    }

    #[test]
    fn late_waiting_query_does_not_blame_later_instance() {
        let mut story = Story::default();
        let (own, other) = (At { instance: 3, job: 7 }, At { instance: 5, job: 8 });
        story.push(at(0), Step::Queued(1));
        story.push(at(4), Step::Late(Duration::from_millis(4)));
        story.push(at(5), Step::StandInGiven(other));
        story.push(at(9), Step::StandInIn(other, None));
        story.push(at(11), Step::Given(own, 1));
        story.push(at(12), Step::Answered("stand-in", None));
        assert_eq!(story.told(at(0))[1]["text"], "It had to wait: one was before it.");
        let why = story.why("stand-in", Duration::from_millis(12), None);
        let expected = "It was still waiting for an instance and was late after 4.0 ms, so a stand-in answered it after 12 ms; \
                        the prediction has not come yet.";
        assert_eq!(why, expected);
    }

    #[test]
    fn long_story_is_truncated_with_a_note() {
        let mut story = Story::default();
        (0..200).for_each(|n| story.push(at(n), Step::Queued(1)));
        let told = story.told(at(0));
        assert_eq!((told.len(), &told[64]["what"]), (65, &json!("more")));
        assert!(story.emptied().told(at(0)).len() == 1);
    }
}
