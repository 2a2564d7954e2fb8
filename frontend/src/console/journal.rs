//! What happened, in words: the last few hundred events, kept whether anybody watches or not.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use parm_dispatch::PoolId;
use parm_protocol::rest;
use serde::{Serialize, Serializer};

/// Events that are kept.
pub(super) const KEPT: usize = 200;

/// An instance that should go and is kept is told of once in so many milliseconds: it is found out with every answer.
const KEPT_EVERY_MS: u64 = 60_000;

/// The latest events.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    events: VecDeque<Event>,
    /// The number of the next one.
    next: u64,
    /// Instances that should have gone, and when that was last told.
    kept: Vec<(u32, u64)>,
}

/// Something that happened.
#[derive(Debug, Default)]
pub(crate) struct Happening {
    pub(crate) instance: Option<u32>,
    pub(crate) model: Option<PoolId>,
    /// One phrase, lower case, no full stop.
    pub(crate) text: String,
    /// The name of the key that ordered it.
    pub(crate) by: Option<Arc<str>>,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Joined,
    Left,
    Lost,
    Refused,
    Draining,
    Ejected,
    Returned,
    Kept,
    Suspect,
    Settings,
    Withheld,
    Resumed,
    Model,
}

/// An event, as it is told.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    at: u64,
    kind: Kind,
    instance: Option<u32>,
    #[serde(rename = "m", serialize_with = "number")]
    model: Option<PoolId>,
    text: Arc<str>,
    by: Option<Arc<str>>,
}

impl Journal {
    /// Notes what happened at this time, in milliseconds since 1970.
    pub(crate) fn tell(&self, at: u64, kind: Kind, what: Happening) {
        let mut pages = self.0.lock();
        if kind == Kind::Kept && !pages.kept_is_news(at, what.instance.unwrap_or_default()) {
            return;
        }
        if pages.events.len() >= KEPT {
            pages.events.pop_front();
        }
        let Happening { instance, model, mut text, by } = what;
        // It may quote what a caller sent, and whoever watches is told all that are kept in one line.
        rest::shorten(&mut text);
        pages.events.push_back(Event { at, kind, instance, model, text: text.into(), by });
        pages.next += 1;
    }

    /// The events from this number on, as far as they are kept, and the number of the next one.
    pub(super) fn since(&self, number: u64) -> (Vec<Event>, u64) {
        let pages = self.0.lock();
        let new = usize::try_from(pages.next.saturating_sub(number)).unwrap_or(usize::MAX);
        let old = pages.events.len().saturating_sub(new);
        (pages.events.iter().skip(old).cloned().collect(), pages.next)
    }
}

impl Pages {
    fn kept_is_news(&mut self, at: u64, instance: u32) -> bool {
        self.kept.retain(|(_, told)| told + KEPT_EVERY_MS > at);
        let news = !self.kept.iter().any(|(known, _)| *known == instance);
        if news {
            self.kept.push((instance, at));
        }
        news
    }
}

fn number<S: Serializer>(model: &Option<PoolId>, out: S) -> Result<S::Ok, S::Error> {
    model.map(|model| model.0).serialize(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(instance: u32) -> Happening {
        Happening { instance: Some(instance), ..Happening::default() }
    }

    #[test]
    fn the_latest_events_are_kept_and_told_once_each() {
        let journal = Journal::default();
        (0..250).for_each(|at| journal.tell(at, Kind::Joined, of(1)));
        let (events, next) = journal.since(0);
        assert_eq!((events.len(), events[0].at, next), (KEPT, 50, 250));
        journal.tell(250, Kind::Left, of(1));
        let (news, next) = journal.since(next);
        assert_eq!((news.len(), news[0].kind, next), (1, Kind::Left, 251));
        assert!(journal.since(next).0.is_empty());
    }

    #[test]
    fn what_an_event_quotes_at_length_is_cut() {
        let journal = Journal::default();
        journal.tell(0, Kind::Settings, Happening { text: "é".repeat(1_000_000), ..Happening::default() });
        let (events, _) = journal.since(0);
        assert!(events[0].text.len() < 5000, "{} bytes", events[0].text.len());
    }

    #[test]
    fn an_instance_that_is_kept_is_told_of_once_a_minute() {
        let journal = Journal::default();
        for (at, instance) in [(0, 1), (1, 1), (2, 2), (59_999, 1), (60_000, 1)] {
            journal.tell(at, Kind::Kept, of(instance));
        }
        let told: Vec<_> = journal.since(0).0.iter().map(|event| (event.at, event.instance)).collect();
        assert_eq!(told, [(0, Some(1)), (2, Some(2)), (60_000, Some(1))]);
    }
}
