//! A tape that is read and played to a dispatcher.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{FORMAT, Head, Started, TapeLine, TapedEvent};
use crate::{Action, Actions, Dispatcher, Event, GroupId, JobId, Output, Settings, Time};

/// A tape that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    head: Head,
    before: Vec<Event>,
    events: Vec<TapedEvent>,
}

/// The outcome of a replay in which nothing panicked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// The tape holds every event since the dispatcher was made, so that the replay is exact.
    pub complete: bool,
    /// Events that the dispatcher received.
    pub events: usize,
    /// Events about jobs or groups that it did not start in the replay.
    pub skipped: usize,
    /// Everything that it did, with the time.
    pub actions: Vec<(Time, Action)>,
}

/// A text is not a tape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} of the tape cannot be read: {reason}: give a file that a frontend of this version wrote"
)]
pub struct Unreadable {
    /// Its number, from 1.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

impl Replay {
    /// Reads a tape.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let (mut head, mut before, mut events) = (None, Vec::new(), Vec::new());
        for (number, text) in text.lines().enumerate() {
            let bad = |reason: String| Unreadable { line: number + 1, reason };
            match serde_json::from_str(text).map_err(|error| bad(error.to_string()))? {
                TapeLine::Tape(first) if first.format == FORMAT => head = Some(*first),
                TapeLine::Tape(first) => return Err(bad(format!("format {} is not {FORMAT}", first.format))),
                TapeLine::Before(event) => before.push(event),
                TapeLine::Event(entry) => events.push(entry),
            }
        }
        let head = head.ok_or_else(|| Unreadable { line: 1, reason: "there is no first line".into() })?;
        Ok(Self { head, before, events })
    }

    /// Plays the tape to a new dispatcher. It panics at the same event as the original if the tape is complete.
    pub fn play(self) -> Replayed {
        let Head { seed, traced, evicted, default, pools, shares, .. } = self.head;
        let settings =
            Settings { default, pools: pools.into_iter().collect(), shares: shares.into_iter().collect() };
        let mut dispatcher = Dispatcher::new(settings, seed);
        dispatcher.follow_queries(traced);
        let mut played = Replayed { complete: evicted == 0, ..Replayed::default() };
        let (mut names, mut actions) = (NewNames::default(), Actions::new());
        let began = self.events.first().map(|entry| entry.at).unwrap_or_default();
        let before =
            self.before.into_iter().map(|event| TapedEvent { at: began, event, started: SmallVec::new() });
        for entry in before.chain(self.events) {
            let Some(event) = names.translated(entry.event) else {
                played.skipped += 1;
                continue;
            };
            dispatcher.on_event(entry.at, event, &mut actions);
            played.events += 1;
            names.learn(entry.started, actions.iter().filter_map(Started::by).collect());
            played.actions.extend(actions.drain(..).map(|action| (entry.at, action)));
        }
        played
    }
}

/// The ids of the replay for jobs and groups of the original.
#[derive(Default)]
struct NewNames {
    jobs: BTreeMap<JobId, JobId>,
    groups: BTreeMap<GroupId, GroupId>,
    /// Started by the original, and not yet by the replay.
    then: Vec<Started>,
    /// Started by the replay, and not yet by the original: without older queries it starts some of them earlier.
    now: Vec<Started>,
}

impl NewNames {
    /// Pairs jobs and groups of the original with those of the replay: jobs of the same rows at the same instance, otherwise of
    /// the same rows; groups in their order.
    fn learn(&mut self, then: SmallVec<[Started; 1]>, now: Vec<Started>) {
        self.now.extend(now);
        let older = std::mem::take(&mut self.then);
        for one in older.into_iter().chain(then) {
            let Some(place) = self.place(&one) else {
                self.then.push(one);
                continue;
            };
            match (one, self.now.remove(place)) {
                (Started::Job { id, .. }, Started::Job { id: own, .. }) => {
                    self.jobs.insert(id, own);
                }
                (Started::Group { id }, Started::Group { id: own }) => {
                    self.groups.insert(id, own);
                }
                _ => {}
            }
        }
    }

    /// The place of a job or group of the original among those of the replay.
    fn place(&self, one: &Started) -> Option<usize> {
        let Started::Job { instance, rows, .. } = one else {
            return self.now.iter().position(|other| matches!(other, Started::Group { .. }));
        };
        let same = |other: &Started, anywhere: bool| {
            let Started::Job { instance: at, rows: of, .. } = other else { return false };
            of == rows && (anywhere || at == instance)
        };
        let there = self.now.iter().position(|other| same(other, false));
        there.or_else(|| self.now.iter().position(|other| same(other, true)))
    }

    /// The event in the names of the replay; none if it is about what was not started here.
    fn translated(&self, event: Event) -> Option<Event> {
        let job = |id: JobId| self.jobs.get(&id).copied();
        let group = |id: GroupId| self.groups.get(&id).copied();
        let output = |output: Output| Some(Output { job: job(output.job)?, ..output });
        Some(match event {
            Event::JobCompleted(id) => Event::JobCompleted(job(id)?),
            Event::JobFailed(id, how) => Event::JobFailed(job(id)?, how),
            Event::GroupEncoded(id) => Event::GroupEncoded(group(id)?),
            Event::GroupFailed(id) => Event::GroupFailed(group(id)?),
            Event::SlotDecoded { group: id, query, confidence } => {
                Event::SlotDecoded { group: group(id)?, query, confidence }
            }
            Event::SlotFailed { group: id, query } => Event::SlotFailed { group: group(id)?, query },
            Event::Compared(id, verdicts) => Event::Compared(group(id)?, verdicts),
            Event::Judged(query, of, judgement) => Event::Judged(query, output(of)?, judgement),
            Event::Checked(mut pair, agrees) => {
                (pair.prediction, pair.stand_in) = (output(pair.prediction)?, output(pair.stand_in)?);
                Event::Checked(pair, agrees)
            }
            other => other,
        })
    }
}
