//! Story of a query: its steps, and their description in words.
//!
//! `parm ctl query` prints these words and the page shows them, so both say the same.

use std::time::Duration;

use parm_protocol::rounded;
use serde::Serialize;
use serde_json::{Value, json};
use smallvec::SmallVec;

use crate::serve::reading::Time;

/// Maximum kept steps of a query.
const STEPS: usize = 64;

/// Steps of a query so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    steps: SmallVec<[(Time, Step); 2]>,
}

/// A job at an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// Number of the instance.
    pub(crate) instance: u32,
    pub(crate) job: u64,
}

/// A step of a query, as it is sent. Times are relative to the query's arrival.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Step {
    Queued { waiting: u32 },
    Given { instance: u32, job: u64, rows: usize },
    Hedged { instance: u32, job: u64, rows: usize },
    Retried { instance: u32, job: u64, rows: usize },
    Grouped { group: u64, k: u8, slot: u8 },
    ParityGiven { instance: u32, job: u64, group: u64 },
    ParityIn { instance: u32, job: u64, group: u64 },
    StandInGiven { instance: u32, job: u64 },
    StandInIn { instance: u32, job: u64, confidence: Option<f32> },
    BackupGiven { instance: u32, job: u64 },
    BackupIn { instance: u32, job: u64 },
    Late { after_us: u64 },
    HeldBack { until_us: u64 },
    Decoded { group: u64, confidence: Option<f32> },
    Failed { instance: u32, job: u64, error: Box<str> },
    Answered { outcome: &'static str, error: Option<Box<str>> },
    PredictionIn { instance: u32, job: u64, agrees: Option<bool> },
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
        self.steps.iter().any(|(_, step)| matches!(step, Step::Given { .. }))
    }

    /// Whether it was late.
    pub(crate) fn is_late(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Late { .. }))
    }

    /// Sets whether the prediction of this job agrees with the answer.
    pub(crate) fn set_agrees(&mut self, job: u64, says: bool) {
        let step = self.steps.iter_mut().find_map(|(_, step)| match step {
            Step::PredictionIn { job: own, agrees, .. } if *own == job => Some(agrees),
            _ => None,
        });
        step.into_iter().for_each(|agrees| *agrees = Some(says));
    }

    /// The steps as they are sent; `arrived` is the query's arrival.
    pub(super) fn told(&self, arrived: Time) -> Vec<Value> {
        let since = |at: Time| at.since(arrived).as_micros() as u64;
        let tell = |(at, step): &(Time, Step)| {
            let mut told = json!(step);
            if *step != Step::More {
                told["at_us"] = json!(since(*at));
            }
            told["text"] = json!(step.text());
            told
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
            Step::Late { after_us } => Some((at, format!(" after {}", micros(*after_us)))),
            _ => None,
        });
        // Jobs that started after the query was late are not the cause.
        let until = late.as_ref().map_or(self.steps.len(), |(at, _)| *at);
        let given = self.steps[..until].iter().find_map(|(_, step)| match step {
            Step::Given { instance, .. } => Some(*instance),
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
    fn text(&self) -> String {
        let sure = |confidence: &Option<f32>| {
            confidence.map(|sure| format!(", {:.1} % sure", 100.0 * sure)).unwrap_or_default()
        };
        match self {
            Self::Queued { waiting: 0 } => "It had to wait for an instance.".to_owned(),
            Self::Queued { waiting: 1 } => "It had to wait: one was before it.".to_owned(),
            Self::Queued { waiting } => format!("It had to wait: {waiting} were before it."),
            Self::Given { instance, .. } => format!("Instance {instance} got it."),
            Self::Hedged { instance, .. } => format!("Instance {instance} got it too, as a hedge."),
            Self::Retried { instance, .. } => format!("Instance {instance} got it again."),
            Self::Grouped { k, slot, .. } => {
                format!("It joined a coding group of {k}, as member {}.", slot + 1)
            }
            Self::ParityGiven { instance, .. } => format!("Instance {instance} got the group's parity."),
            Self::ParityIn { instance, .. } => format!("The parity was in, from instance {instance}."),
            Self::StandInGiven { instance, .. } => format!("Instance {instance} began its stand-in."),
            Self::StandInIn { confidence, .. } => {
                format!("The stand-in's answer was in{}.", sure(confidence))
            }
            Self::BackupGiven { instance, .. } => format!("Instance {instance} got it for the backup model."),
            Self::BackupIn { .. } => "The backup model answered.".to_owned(),
            Self::Late { after_us } => format!("It was late, after {}.", micros(*after_us)),
            Self::HeldBack { until_us } => {
                let until = micros(*until_us);
                format!("The approximate answer was held back until {until}, in favour of the prediction.")
            }
            Self::Decoded { confidence, .. } => {
                format!("Its prediction was decoded from the others of its group{}.", sure(confidence))
            }
            Self::Failed { instance, error, .. } => format!("Instance {instance} failed it: {error}."),
            Self::Answered { outcome, error: None } => format!("It was answered by {}.", by(outcome)),
            Self::Answered { outcome, error: Some(error) } => {
                format!("It was answered by {}: {error}.", by(outcome))
            }
            Self::PredictionIn { instance, agrees, .. } => {
                let said = match agrees {
                    Some(true) => ": the same answer",
                    Some(false) => ": another answer",
                    None => "",
                };
                format!("Its own prediction came, from instance {instance}{said}.")
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

fn time(time: Duration) -> String {
    format!("{:?}", rounded(time))
}

fn micros(micros: u64) -> String {
    time(Duration::from_micros(micros))
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
        story.push(at(0), Step::Given { instance: 3, job: 7, rows: 1 });
        story.push(at(1), Step::StandInGiven { instance: 5, job: 8 });
        story.push(at(9), Step::StandInIn { instance: 5, job: 8, confidence: Some(0.93) });
        story.push(at(22), Step::Late { after_us: 22_000 });
        story.push(at(25), Step::Answered { outcome: "stand-in", error: None });
        story.push(at(98), Step::PredictionIn { instance: 3, job: 7, agrees: None });
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
                "It was late, after 22ms.",
                "It was answered by a stand-in.",
                "Its own prediction came, from instance 3: the same answer.",
            ]
        );
        assert_eq!((&told[6]["at_us"], &told[6]["agrees"]), (&json!(98_000), &json!(true)));
        let why = story.why("stand-in", Duration::from_millis(25), Some(Duration::from_millis(98)));
        let expected = "Its prediction from instance 3 was late after 22ms, so a stand-in answered it after 25ms, \
                        73ms sooner than the prediction, which came after 98ms.";
        assert_eq!(why, expected);
    }

    #[test]
    fn late_waiting_query_does_not_blame_later_instance() {
        let mut story = Story::default();
        story.push(at(0), Step::Queued { waiting: 1 });
        story.push(at(4), Step::Late { after_us: 4_000 });
        story.push(at(5), Step::StandInGiven { instance: 5, job: 8 });
        story.push(at(9), Step::StandInIn { instance: 5, job: 8, confidence: None });
        story.push(at(11), Step::Given { instance: 3, job: 7, rows: 1 });
        story.push(at(12), Step::Answered { outcome: "stand-in", error: None });
        assert_eq!(story.told(at(0))[1]["text"], "It had to wait: one was before it.");
        let why = story.why("stand-in", Duration::from_millis(12), None);
        let expected = "It was still waiting for an instance and was late after 4ms, so a stand-in answered it after 12ms; \
                        the prediction has not come yet.";
        assert_eq!(why, expected);
    }

    #[test]
    fn long_story_is_truncated_with_a_note() {
        let mut story = Story::default();
        (0..200).for_each(|n| story.push(at(n), Step::Queued { waiting: 1 }));
        let told = story.told(at(0));
        assert_eq!((told.len(), &told[64]["what"]), (65, &json!("more")));
    }
}
