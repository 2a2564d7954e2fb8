//! A tape plays as it was recorded, and panics where the original did.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::{
    Accept, Action, Actions, Dispatcher, Failure, InstanceSpec, PolicyKind, QueryId, QuerySpec, Served,
    Settings, ShapeId, Site,
};

const POOL: PoolId = PoolId(0);

thread_local! {
    /// The dispatcher of this thread panics when so many jobs are held and a query arrives.
    pub(crate) static PLANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A dispatcher with its tape, three instances, and a query every 6 or 15 ms; jobs take 20 ms, every seventh fails.
struct Recorded {
    dispatcher: Dispatcher,
    tape: Tape,
    now: Time,
    wake: Option<Time>,
    running: Vec<(Time, JobId)>,
    ended: u64,
    actions: Vec<(Time, Action)>,
}

impl Recorded {
    fn new(policy: PolicyKind, most: usize) -> Self {
        let settings = Settings::uniform(PoolSettings { policy, ..PoolSettings::default() });
        let tape = Tape::new(&settings, 7, false).of(most);
        let dispatcher = Dispatcher::new(settings, 7);
        let (now, wake, running, actions) = (Time::ZERO, None, Vec::new(), Vec::new());
        let mut own = Self { dispatcher, tape, now, wake, running, ended: 0, actions };
        for id in 0..3 {
            let spec = InstanceSpec {
                serves: vec![Served::all(POOL)],
                slots: 1,
                site: Site::default(),
                learns: false,
            };
            own.send(Event::InstanceJoined(InstanceId(id), spec));
        }
        own
    }

    fn send(&mut self, event: Event) {
        self.tape.note(self.now, &event);
        let mut actions = Actions::new();
        self.dispatcher.on_event(self.now, event, &mut actions);
        self.tape.did(&actions);
        for action in actions {
            match &action {
                Action::Run(job, _) => self.running.push((self.now + Duration::from_millis(20), job.id)),
                Action::WakeAt(at) => self.wake = Some(*at),
                _ => {}
            }
            let encoded = if let Action::Encode(group, _) = &action { Some(*group) } else { None };
            self.actions.push((self.now, action));
            encoded.into_iter().for_each(|group| self.send(Event::GroupEncoded(group)));
        }
    }

    fn serve(&mut self, queries: u64) {
        for number in 0..queries {
            let id = QueryId(number);
            let deadline = self.now + Duration::from_secs(1);
            let (shape, accept) = (ShapeId(0), Accept::Any);
            let query = QuerySpec {
                id,
                pool: POOL,
                shape,
                deadline,
                priority: 0,
                share: None,
                accept,
                codable: true,
                size: 1,
                padded: false,
            };
            self.send(Event::QueryArrived(query));
            let next = self.now + Duration::from_millis(6 + 9 * (number % 2));
            while let Some(at) =
                self.running.iter().map(|(at, _)| *at).chain(self.wake).min().filter(|at| *at <= next)
            {
                self.now = self.now.max(at);
                if self.wake.is_some_and(|wake| wake <= at) {
                    self.wake = None;
                    self.send(Event::TimerFired);
                    continue;
                }
                let place = self.running.iter().position(|(end, _)| *end == at).unwrap();
                let (_, job) = self.running.remove(place);
                self.ended += 1;
                let fails = self.ended.is_multiple_of(7);
                self.send(if fails {
                    Event::JobFailed(job, Failure::Instance)
                } else {
                    Event::JobCompleted(job)
                });
            }
            self.now = next;
        }
    }

    fn written(&self) -> Replay {
        Replay::read(std::str::from_utf8(&self.tape.write()).unwrap()).unwrap()
    }
}

#[test]
fn complete_tape_leads_to_the_same_actions() {
    for policy in PolicyKind::ALL {
        let mut recorded = Recorded::new(policy, 10_000);
        recorded.serve(200);
        let played = recorded.written().play();
        assert!(played.complete && played.skipped == 0, "{policy:?}");
        assert!(played.actions == recorded.actions, "{policy:?}: {} actions", recorded.actions.len());
    }
}

#[test]
fn tape_that_evicted_events_plays_what_it_has() {
    // Of what depends on measured times, as stand-ins do, a part is skipped until these are known again.
    for policy in [PolicyKind::None, PolicyKind::Hedge] {
        let mut recorded = Recorded::new(policy, 100);
        recorded.serve(200);
        let played = recorded.written().play();
        assert!(!played.complete, "{policy:?}");
        // Three instances joined before what it holds; of the rest a few events are about older jobs.
        assert_eq!(played.events + played.skipped, 103, "{policy:?}");
        assert!(played.skipped < 20, "{policy:?}: {} skipped", played.skipped);
        let runs = played.actions.iter().filter(|(_, action)| matches!(action, Action::Run(..))).count();
        assert!(runs > 20, "{policy:?}: {runs} jobs");
    }
}

#[test]
fn replay_of_a_panic_panics_in_the_same_way() {
    let mut recorded = Recorded::new(PolicyKind::Hedge, 10_000);
    PLANTED.set(Some(2));
    let said = |panic: Box<dyn std::any::Any + Send>| panic.downcast::<String>().map(|text| *text).unwrap();
    let original = said(catch_unwind(AssertUnwindSafe(|| recorded.serve(200))).unwrap_err());
    let replay = recorded.written();
    let again = said(catch_unwind(|| replay.clone().play()).unwrap_err());
    PLANTED.set(None);
    assert_eq!(again, original);
    assert!(original.contains("planted"), "{original}");
    assert!(replay.play().complete, "without the fault the tape plays to its end");
}

#[test]
fn tape_of_another_format_is_refused() {
    let recorded = Recorded::new(PolicyKind::Hedge, 10);
    let text = String::from_utf8(recorded.tape.write()).unwrap();
    let other = text.replace("\"format\":1", "\"format\":2");
    assert!(Replay::read(&other).unwrap_err().reason.contains("format 2"));
    assert_eq!(Replay::read("").unwrap_err().line, 1);
    assert_eq!(Replay::read(&format!("{text}?")).unwrap_err().line, text.lines().count() + 1);
}

#[test]
fn tape_keeps_nothing_of_instances_that_have_left() {
    let settings = Settings::uniform(PoolSettings::default());
    let mut tape = Tape::new(&settings, 7, false).of(4);
    let spec =
        InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
    for id in (0..100).map(InstanceId) {
        // What a connection says last may come after its instance has left.
        let late = [Event::TokensShared(id, None), Event::HeldElsewhere(id, Default::default())];
        let known =
            [Event::InstanceJoined(id, spec.clone()), Event::TokensOffered(id), Event::InstanceLeft(id)];
        known.into_iter().chain(late).for_each(|event| tape.note(Time::ZERO, &event));
    }
    let text = String::from_utf8(tape.write()).unwrap();
    let before = text.lines().filter(|line| line.starts_with("{\"before\"")).count();
    assert!(before <= 3, "{before} events of instances that have left are kept");
}
