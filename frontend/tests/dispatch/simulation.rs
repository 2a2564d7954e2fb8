//! The dispatcher in virtual time: the order of the policies under interference, in the small.
//!
//! 18 instances, 20 ms of service, Poisson arrivals; `rho` is the load on 12 of them. A: one job in a hundred takes 5 to
//! 10 times as long. B: every instance is 5 times slower for a twelfth of the time, in spells of about 2 s. Fixed seeds,
//! so the figures are the same everywhere; what is compared is the gap from the median to the 99.9th percentile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU8;
use std::time::Duration;

use parm_frontend::dispatch::{
    Accept, Action, Actions, Answer, CodingSettings, Dispatcher, EjectionSettings, Event, GroupId,
    InstanceId, InstanceSpec, JobId, PolicyKind, PoolId, PoolSettings, Query, QueryId, Served, Settings,
    ShapeId, Time,
};

const INSTANCES: u32 = 18;
const SERVICE: f64 = 0.020;
const QUERIES: u64 = 25_000;
const WARM_UP: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    A,
    B,
    Ab,
}

/// What a policy made of the arrivals and the faults, which are the same for all.
#[derive(Debug)]
struct Outcome {
    /// p99.9 - p50, in milliseconds.
    gap: f64,
    median: f64,
    reconstructed: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival(u64),
    Completion(JobId),
    Wake,
    Encoded(u64),
    Decoded(u64, QueryId),
    Probe(u32),
}

struct Simulation {
    dispatcher: Dispatcher,
    now: Time,
    heap: BinaryHeap<Reverse<(Time, u64, Due)>>,
    order: u64,
    fault: Fault,
    /// Of every instance, when spells of slowness begin and end.
    spells: Vec<Vec<(f64, f64)>>,
    arrivals: BTreeMap<QueryId, Time>,
    latencies: Vec<f64>,
    reconstructed: u64,
    starts: Random,
}

/// SplitMix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }
}

impl Simulation {
    fn new(settings: PoolSettings, fault: Fault) -> Self {
        let mut random = Random(11);
        let share = if fault == Fault::Ab { 1.0 / 24.0 } else { 1.0 / 12.0 };
        let spells = (0..INSTANCES).map(|_| {
            let (mut at, mut spells) = (0.0, Vec::new());
            while at < 1000.0 && fault != Fault::A {
                at += random.exponential(2.0 / share * (1.0 - share));
                let end = at + random.exponential(2.0);
                spells.push((at, end));
                at = end;
            }
            spells
        });
        Self {
            spells: spells.collect(),
            dispatcher: Dispatcher::new(Settings::uniform(settings), 1),
            now: Time::ZERO,
            heap: BinaryHeap::new(),
            order: 0,
            fault,
            arrivals: BTreeMap::new(),
            latencies: Vec::new(),
            reconstructed: 0,
            starts: Random(12),
        }
    }

    fn run(mut self, rho: f64) -> Outcome {
        let mut actions = Actions::new();
        for id in 0..INSTANCES {
            let spec = InstanceSpec { serves: vec![Served::all(PoolId(0))], slots: 1, node: None };
            self.dispatcher.on_event(Time::ZERO, Event::InstanceJoined(InstanceId(id), spec), &mut actions);
        }
        let mut random = Random(13);
        let mut at = 0.0;
        for id in 0..QUERIES {
            at += random.exponential(SERVICE / (12.0 * rho));
            self.later(seconds(at), Due::Arrival(id));
        }
        while let Some(Reverse((at, _, due))) = self.heap.pop() {
            self.now = at;
            let event = self.event(due);
            self.dispatcher.on_event(at, event, &mut actions);
            for action in actions.drain(..) {
                self.obey(action);
            }
            if self.latencies.len() as u64 == QUERIES {
                break;
            }
        }
        let mut latencies = self.latencies.split_off(WARM_UP);
        latencies.sort_by(f64::total_cmp);
        let quantile = |q: f64| latencies[(latencies.len() as f64 * q) as usize] * 1e3;
        let reconstructed = self.reconstructed as f64 / QUERIES as f64;
        Outcome { gap: quantile(0.999) - quantile(0.5), median: quantile(0.5), reconstructed }
    }

    fn event(&mut self, due: Due) -> Event {
        match due {
            Due::Arrival(id) => {
                let id = QueryId(id);
                self.arrivals.insert(id, self.now);
                let (deadline, shape) = (self.now + Duration::from_secs(20), ShapeId(0));
                let (pool, accept) = (PoolId(0), Accept::Any);
                Event::QueryArrived(Query { id, pool, shape, deadline, priority: 0, accept, codable: true })
            }
            Due::Completion(job) => Event::JobCompleted(job),
            Due::Wake => Event::TimerFired,
            Due::Encoded(group) => Event::GroupEncoded(GroupId(group)),
            Due::Decoded(group, query) => Event::SlotDecoded(GroupId(group), query, None),
            Due::Probe(instance) => Event::ProbeAnswered(InstanceId(instance), None, true),
        }
    }

    fn obey(&mut self, action: Action) {
        let soon = self.now + Duration::from_micros(100);
        match action {
            Action::Run(job, _) => {
                let takes = self.service(job.instance);
                self.later(self.now + Duration::from_secs_f64(takes), Due::Completion(job.id));
            }
            Action::Answer(query, answer) => {
                assert!(!matches!(answer, Answer::Rejected(_)), "{query:?}: {answer:?}");
                self.reconstructed += u64::from(matches!(answer, Answer::Reconstructed { .. }));
                let arrived = self.arrivals.remove(&query).expect("it arrived");
                self.latencies.push(self.now.since(arrived).as_secs_f64());
            }
            Action::WakeAt(at) => self.later(at, Due::Wake),
            Action::Encode(group, _) => self.later(soon, Due::Encoded(group.0)),
            Action::Decode(recovery) => self.later(soon, Due::Decoded(recovery.group.0, recovery.query)),
            Action::Probe(instance, of) => {
                assert_eq!(of, None, "nothing fails here");
                self.later(soon, Due::Probe(instance.0));
            }
            // What runs is never aborted.
            Action::Drop(_) | Action::Release(_) | Action::Forget(_) => {}
            Action::Compare(_) | Action::Suspect(..) => unreachable!("nothing is compared"),
        }
    }

    fn service(&mut self, instance: InstanceId) -> f64 {
        let (slow, how) = (self.starts.next(), self.starts.next());
        let stragglers = match self.fault {
            Fault::A => 0.01,
            Fault::Ab => 0.005,
            Fault::B => 0.0,
        };
        let at = self.now.as_nanos() as f64 / 1e9;
        let spells = &self.spells[instance.0 as usize];
        let next = spells.partition_point(|(_, end)| *end <= at);
        let spell = spells.get(next).is_some_and(|(begin, _)| *begin <= at);
        let straggle = if slow < stragglers { 5.0 + 5.0 * how } else { 1.0 };
        SERVICE * straggle * if spell { 5.0 } else { 1.0 }
    }

    fn later(&mut self, at: Time, due: Due) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, due)));
    }
}

fn seconds(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

fn run(policy: PolicyKind, fault: Fault, rho: f64) -> Outcome {
    let ejection = matches!(policy, PolicyKind::Hedge | PolicyKind::ParmPlus);
    let k_choices = (3..=4).filter_map(NonZeroU8::new).collect();
    let settings = PoolSettings {
        policy,
        queue_limit: std::num::NonZeroU32::MAX,
        ejection: EjectionSettings { enabled: ejection, ..EjectionSettings::default() },
        coding: CodingSettings { k_choices, ..CodingSettings::default() },
        ..PoolSettings::default()
    };
    let outcome = Simulation::new(settings, fault).run(rho);
    eprintln!("{policy:?} {fault:?} {rho}: {outcome:?}");
    outcome
}

#[test]
fn parm_beats_equal_at_low_load_and_loses_at_high_load() {
    let gap = |policy, rho| run(policy, Fault::A, rho).gap;
    assert!(gap(PolicyKind::Parm, 0.5) < gap(PolicyKind::Equal, 0.5) / 5.0);
    let gap = |policy, rho| run(policy, Fault::B, rho).gap;
    assert!(gap(PolicyKind::Parm, 0.85) > gap(PolicyKind::Equal, 0.85) * 1.5);
}

/// Also: no median is paid for it, and little is reconstructed that need not be.
fn parm_plus_is_no_worse_than_hedging(fault: Fault) {
    for rho in [0.5, 0.7, 0.85] {
        let (plus, hedge) = (run(PolicyKind::ParmPlus, fault, rho), run(PolicyKind::Hedge, fault, rho));
        assert!(plus.gap <= hedge.gap * 1.001, "{fault:?} {rho}: {plus:?} {hedge:?}");
        assert!(rho > 0.5 || plus.gap * 2.0 < hedge.gap, "{fault:?} {rho}: {plus:?} {hedge:?}");
        assert!(plus.median <= hedge.median * 1.03, "{fault:?} {rho}: {plus:?} {hedge:?}");
        assert!(plus.reconstructed < 0.03, "{fault:?} {rho}: {plus:?}");
    }
}

#[test]
fn parm_plus_is_no_worse_than_hedging_with_single_stragglers() {
    parm_plus_is_no_worse_than_hedging(Fault::A);
}

#[test]
fn parm_plus_is_no_worse_than_hedging_with_slow_spells() {
    parm_plus_is_no_worse_than_hedging(Fault::B);
}

#[test]
fn parm_plus_is_no_worse_than_hedging_with_both() {
    parm_plus_is_no_worse_than_hedging(Fault::Ab);
}
