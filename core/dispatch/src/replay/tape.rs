//! The ring of the latest events.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use super::{FORMAT, Head, Started, TapeLine, TapedEvent};
use crate::{Action, Event, InstanceId, PoolId, Settings, Time};

/// Events that a tape holds: some seconds of a busy frontend, and about 2 MB when they are written. An operator has no reason
/// to change it.
const MOST: usize = 8192;

/// The latest events of a dispatcher.
#[derive(Debug)]
pub struct Tape {
    head: Head,
    before: BTreeMap<Trace, Event>,
    latest: VecDeque<TapedEvent>,
    most: usize,
}

/// The lasting state of an event; a later one of the same kind takes its place. Instances join after pools are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trace {
    Settings(PoolId),
    Cost(PoolId),
    Joined(InstanceId),
    Draining(InstanceId),
    Tokens(InstanceId),
    Slots(InstanceId),
    Shared(InstanceId),
    Elsewhere(InstanceId),
}

impl Tape {
    /// A tape of a dispatcher with these settings and this seed; `traced` where it follows queries.
    pub fn new(settings: &Settings, seed: u64, traced: bool) -> Self {
        let pools = settings.pools.iter().map(|(id, own)| (*id, own.clone())).collect();
        let shares = settings.shares.iter().map(|(id, terms)| (*id, *terms)).collect();
        let default = settings.default.clone();
        let head = Head { format: FORMAT, seed, traced, evicted: 0, default, pools, shares };
        Self { head, before: BTreeMap::new(), latest: VecDeque::new(), most: MOST }
    }

    /// Holds no more than so many events.
    #[cfg(test)]
    pub(super) fn of(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// An event, before the dispatcher reacts to it.
    pub fn note(&mut self, at: Time, event: &Event) {
        if self.latest.len() >= self.most
            && let Some(old) = self.latest.pop_front()
        {
            self.head.evicted += 1;
            self.keep(old.event);
        }
        self.latest.push_back(TapedEvent { at, event: event.clone(), started: SmallVec::new() });
    }

    /// Notes the actions of the dispatcher at the latest event.
    pub fn did(&mut self, actions: &[Action]) {
        let Some(entry) = self.latest.back_mut() else { return };
        entry.started.extend(actions.iter().filter_map(Started::by));
    }

    /// The tape as text, a JSON object a line.
    pub fn write(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut line = |line: &TapeLine| {
            // Every field has a form in JSON; a line that had none would be missed by the reader.
            if serde_json::to_writer(&mut text, line).is_ok() {
                text.push(b'\n');
            }
        };
        line(&TapeLine::Tape(Box::new(self.head.clone())));
        self.before.values().for_each(|event| line(&TapeLine::Before(event.clone())));
        self.latest.iter().for_each(|entry| line(&TapeLine::Event(entry.clone())));
        text
    }

    fn keep(&mut self, event: Event) {
        let trace = match &event {
            Event::SettingsChanged { pool, .. } => Trace::Settings(*pool),
            Event::StandInCost(pool, _) => Trace::Cost(*pool),
            Event::InstanceJoined(id, _) => {
                self.before.remove(&Trace::Draining(*id));
                Trace::Joined(*id)
            }
            Event::InstanceDraining(id) => Trace::Draining(*id),
            Event::TokensOffered(id) => Trace::Tokens(*id),
            Event::SlotsStated(id, _) => Trace::Slots(*id),
            Event::TokensShared(id, _) => Trace::Shared(*id),
            Event::HeldElsewhere(id, _) => Trace::Elsewhere(*id),
            Event::TokensEnded(id) => {
                self.before.remove(&Trace::Tokens(*id));
                self.before.remove(&Trace::Slots(*id));
                self.before.remove(&Trace::Shared(*id));
                return;
            }
            Event::InstanceLeft(id) => {
                self.before.retain(|trace, _| trace.instance() != Some(*id));
                return;
            }
            Event::PoolRemoved(id) => {
                self.before.remove(&Trace::Settings(*id));
                self.before.remove(&Trace::Cost(*id));
                return;
            }
            _ => return,
        };
        // What comes late of an instance that has left would never be removed. An instance joins before anything else of it.
        let is_joined = |id| self.before.contains_key(&Trace::Joined(id));
        if matches!(trace, Trace::Joined(_)) || trace.instance().is_none_or(is_joined) {
            self.before.insert(trace, event);
        }
    }
}

impl Trace {
    fn instance(self) -> Option<InstanceId> {
        match self {
            Self::Settings(_) | Self::Cost(_) => None,
            Self::Joined(id)
            | Self::Draining(id)
            | Self::Tokens(id)
            | Self::Slots(id)
            | Self::Shared(id)
            | Self::Elsewhere(id) => Some(id),
        }
    }
}

impl Started {
    pub(super) fn by(action: &Action) -> Option<Self> {
        match action {
            Action::Run(job, rows) => {
                Some(Self::Job { id: job.id, instance: job.instance, rows: rows.clone() })
            }
            Action::Encode(id, _) => Some(Self::Group { id: *id }),
            _ => None,
        }
    }
}
