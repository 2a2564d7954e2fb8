//! Journal of the latest few hundred events, in words, kept whether or not a stream is open.
//!
//! Problem: an instance that is ejected and readmitted every second fills 200 entries in 100 s. Changes of settings and
//! failures of other instances are then lost.
//!
//! Choice: an event that repeats an earlier one (same instance, kind and model, without an order) replaces it, with a
//! count and the time of the first. An instance thus has one entry for each kind and model.
//!
//! Rejected: a bound on entries per instance, which drops distinct events and does not count repeated ones.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use parm_protocol::rest;
use serde::{Serialize, Serializer};

use crate::serve::reading::PoolId;

/// Maximum kept events.
pub(super) const KEPT: usize = 200;

/// Milliseconds within which an event repeats the one before. A trouble is told once a minute while it lasts.
const REPEATED_MS: u64 = 600_000;

/// The latest events.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    events: VecDeque<Event>,
    /// Number of the next event.
    next: u64,
}

/// Contents of an event.
#[derive(Debug, Default)]
pub(crate) struct Happening {
    pub(crate) instance: Option<u32>,
    pub(crate) model: Option<PoolId>,
    /// One phrase, lower case, no full stop.
    pub(crate) text: String,
    /// Name of the key that ordered it.
    pub(crate) by: Option<Arc<str>>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Joined,
    Left,
    Lost,
    Refused,
    Draining,
    Ejected,
    Trouble,
    Returned,
    Suspect,
    Settings,
    Withheld,
    Resumed,
    Model,
}

/// An event, as it is sent.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    #[serde(skip)]
    number: u64,
    at: u64,
    /// Time of the first of the events that this entry stands for, and their number.
    since: u64,
    times: u64,
    kind: Kind,
    instance: Option<u32>,
    #[serde(rename = "m", serialize_with = "number")]
    model: Option<PoolId>,
    text: Arc<str>,
    by: Option<Arc<str>>,
}

impl Journal {
    /// Adds an event with its time in milliseconds since 1970.
    pub(crate) fn tell(&self, at: u64, kind: Kind, what: Happening) {
        let mut pages = self.0.lock();
        let before = pages.take_repeated(at, kind, &what);
        if pages.events.len() >= KEPT {
            pages.events.pop_front();
        }
        let Happening { instance, model, mut text, by } = what;
        // The text may quote a caller's data, and watchers receive all kept events in one line.
        rest::shorten(&mut text);
        let (since, times) = before.map_or((at, 1), |before| (before.since, before.times + 1));
        let (number, text) = (pages.next, text.into());
        pages.events.push_back(Event { number, at, since, times, kind, instance, model, text, by });
        pages.next += 1;
    }

    /// Kept events from this number on, and the number of the next event.
    pub(super) fn since(&self, number: u64) -> (Vec<Event>, u64) {
        let pages = self.0.lock();
        let old = pages.events.partition_point(|event| event.number < number);
        (pages.events.iter().skip(old).cloned().collect(), pages.next)
    }
}

impl Pages {
    /// Takes out the event that this one repeats. Orders are kept as they are, with the name of the key.
    fn take_repeated(&mut self, at: u64, kind: Kind, what: &Happening) -> Option<Event> {
        if what.instance.is_none() || what.by.is_some() {
            return None;
        }
        let repeats = |event: &Event| {
            (event.kind, event.instance, event.model) == (kind, what.instance, what.model)
                && event.by.is_none()
                && event.at + REPEATED_MS > at
        };
        let place = self.events.iter().rposition(repeats)?;
        self.events.remove(place)
    }
}

fn number<S: Serializer>(model: &Option<PoolId>, out: S) -> Result<S::Ok, S::Error> {
    model.map(|model| model.0).serialize(out)
}

/// Interval between lines of a subject.
const EVERY_MS: u64 = 60_000;

/// The times of the last lines.
#[derive(Debug)]
pub(crate) struct LogRate<K>(Mutex<HashMap<K, Last>>);

#[derive(Debug)]
struct Last {
    at_ms: u64,
    left_out: u64,
}

impl<K> Default for LogRate<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> LogRate<K> {
    /// Returns the number of lines left out since the last one if a line is due, otherwise counts this one.
    pub(crate) fn due(&self, now_ms: u64, subject: K) -> Option<u64> {
        let mut lasts = self.0.lock();
        match lasts.get_mut(&subject) {
            Some(last) if last.at_ms + EVERY_MS > now_ms => {
                last.left_out += 1;
                return None;
            }
            _ => {}
        }
        let before = lasts.insert(subject, Last { at_ms: now_ms, left_out: 0 });
        // Subjects that went silent are forgotten, after their count was shown or a second minute has passed.
        lasts.retain(|_, last| last.at_ms + 2 * EVERY_MS > now_ms);
        Some(before.map_or(0, |before| before.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(instance: u32) -> Happening {
        Happening { instance: Some(instance), ..Happening::default() }
    }

    #[test]
    fn latest_events_are_kept_and_sent_once() {
        let journal = Journal::default();
        (0..250).for_each(|at| journal.tell(at, Kind::Joined, of(at as u32)));
        let (events, next) = journal.since(0);
        assert_eq!((events.len(), events[0].at, next), (KEPT, 50, 250));
        journal.tell(250, Kind::Left, of(249));
        let (news, next) = journal.since(next);
        assert_eq!((news.len(), news[0].kind, next), (1, Kind::Left, 251));
        assert!(journal.since(next).0.is_empty());
    }

    #[test]
    fn journal_keeps_other_events_while_an_instance_flaps() {
        let journal = Journal::default();
        journal.tell(0, Kind::Settings, Happening::default());
        let mut watched = journal.since(0).1;
        for second in 1..=1000 {
            let at = second * 1000;
            let kind = if second % 2 == 0 { Kind::Returned } else { Kind::Trouble };
            journal.tell(at, kind, of(7));
            let (news, next) = journal.since(watched);
            assert_eq!(
                (news.len(), news[0].at, news[0].times),
                (1, at, second.div_ceil(2)),
                "an open stream receives each event"
            );
            watched = next;
        }
        let kept: Vec<_> =
            journal.since(0).0.iter().map(|event| (event.kind, event.since, event.at, event.times)).collect();
        let flaps = [(Kind::Trouble, 1000, 999_000, 500), (Kind::Returned, 2000, 1_000_000, 500)];
        assert_eq!(kept, [&[(Kind::Settings, 0, 0, 1)], &flaps[..]].concat());
    }

    #[test]
    fn event_is_an_entry_of_its_own_unless_it_repeats_one() {
        let journal = Journal::default();
        let ordered = || Happening { by: Some("ops".into()), ..of(1) };
        journal.tell(0, Kind::Ejected, of(1));
        journal.tell(1, Kind::Ejected, of(2));
        journal.tell(2, Kind::Lost, of(1));
        journal.tell(3, Kind::Ejected, Happening { model: Some(PoolId(4)), ..of(1) });
        journal.tell(4, Kind::Ejected, ordered());
        journal.tell(5, Kind::Ejected, ordered());
        journal.tell(REPEATED_MS, Kind::Ejected, of(1));
        journal.tell(REPEATED_MS + 1, Kind::Settings, Happening::default());
        journal.tell(REPEATED_MS + 2, Kind::Settings, Happening::default());
        let (events, next) = journal.since(0);
        assert_eq!((events.len(), next), (9, 9));
        assert!(events.iter().all(|event| event.times == 1 && event.since == event.at));
    }

    #[test]
    fn each_subject_has_one_line_a_minute() {
        let rate = LogRate::default();
        assert_eq!((rate.due(0, "a"), rate.due(0, "b"), rate.due(1, "a")), (Some(0), Some(0), None));
        assert_eq!((rate.due(59_999, "a"), rate.due(60_000, "a")), (None, Some(2)));
        assert_eq!(rate.due(60_001, "a"), None);
        assert_eq!(rate.due(500_000, "c"), Some(0));
        assert_eq!(rate.0.lock().len(), 1, "silent subjects are forgotten");
    }
}
