//! Events per second that the dispatcher handles on one core.
//!
//! Run `cargo bench -p parm-dispatch --bench dispatcher`. The load is 60 % of 18 or 1000 instances, with
//! Poisson-like arrivals, a deadline a second away, and one slow job in a hundred. The loop around the dispatcher
//! (an event heap) is included, so the figures are a lower bound.

#![allow(clippy::disallowed_methods)] // a benchmark reads the machine's clock

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use parm_dispatch::{
    Accept, Action, Actions, Dispatcher, Event, GroupId, InstanceId, InstanceSpec, JobId, PoolId, QueryId,
    QuerySpec, Served, Settings, ShapeId, Site, Time,
};
use parm_settings::{PolicyKind, PoolSettings};

const EVENTS: u64 = 3_000_000;
const SERVICE_NS: u64 = 20_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Completion(JobId),
    Wake,
}

fn main() {
    for instances in [18, 1000] {
        for policy in [PolicyKind::None, PolicyKind::Hedge, PolicyKind::Parm, PolicyKind::ParmPlus] {
            let started = Instant::now();
            let answers = run(policy, instances);
            let rate = EVENTS as f64 / started.elapsed().as_secs_f64() / 1e6;
            eprintln!("{policy:?} on {instances} instances: {rate:.2} million events/s, {answers} answers");
        }
    }
}

fn run(policy: PolicyKind, instances: u32) -> u64 {
    let settings = PoolSettings { policy, ..PoolSettings::default() };
    let mut dispatcher = Dispatcher::new(Settings::uniform(settings), 1);
    let (mut actions, mut answers, mut random) = (Actions::new(), 0, 1u64);
    for id in 0..instances {
        let spec = InstanceSpec {
            serves: vec![Served::all(PoolId(0))],
            slots: 1,
            site: Site::default(),
            learns: false,
        };
        dispatcher.on_event(Time::ZERO, Event::InstanceJoined(InstanceId(id), spec), &mut actions);
    }
    let between = SERVICE_NS * 10 / (u64::from(instances) * 6);
    let mut heap: BinaryHeap<Reverse<(Time, Due)>> = BinaryHeap::new();
    let mut reports: Vec<Event> = Vec::new();
    let (mut next_arrival, mut next_id) = (Time::ZERO, 0);
    for _ in 0..EVENTS {
        let (now, event) = if let Some(event) = reports.pop() {
            (next_arrival.min(heap.peek().map_or(Time::MAX, |Reverse((at, _))| *at)), event)
        } else if heap.peek().is_none_or(|Reverse((at, _))| next_arrival <= *at) {
            let now = next_arrival;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            next_arrival = now + Duration::from_nanos((random >> 33) % (2 * between));
            next_id += 1;
            (now, Event::QueryArrived(query(next_id, now)))
        } else {
            match heap.pop().expect("peeked").0 {
                (now, Due::Completion(job)) => (now, Event::JobCompleted(job)),
                (now, Due::Wake) => (now, Event::TimerFired),
            }
        };
        dispatcher.on_event(now, event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Run(job, _) => {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let slow = if random >> 33 & 127 == 0 { 8 } else { 1 };
                    heap.push(Reverse((
                        now + Duration::from_nanos(SERVICE_NS * slow),
                        Due::Completion(job.id),
                    )));
                }
                Action::WakeAt(at) => heap.push(Reverse((at, Due::Wake))),
                Action::Answer(..) => answers += 1,
                Action::Probe(instance, of) => reports.push(Event::ProbeAnswered(instance, of, true)),
                Action::Encode(GroupId(group), _) => reports.push(Event::GroupEncoded(GroupId(group))),
                Action::Decode(recovery) => {
                    reports.push(Event::SlotDecoded {
                        group: recovery.group,
                        query: recovery.query,
                        confidence: Some(1.0),
                    });
                }
                other => {
                    black_box(&other);
                }
            }
        }
    }
    answers
}

fn query(id: u64, now: Time) -> QuerySpec {
    QuerySpec {
        id: QueryId(id),
        pool: PoolId(0),
        shape: ShapeId(0),
        deadline: now + Duration::from_secs(1),
        priority: 0,
        share: None,
        accept: Accept::Any,
        codable: true,
        size: 1,
        padded: false,
    }
}
