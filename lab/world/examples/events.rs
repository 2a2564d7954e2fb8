//! Events a second of the dispatcher beside the one that it replaces, in turns within one run.
//!
//! `cargo run --release -p parm-world --example events [-- hedge,18]`. The load is 60 % of 18 or 1000 instances, with a deadline a second away
//! and one of 128 runs eight times as long. Both sides have the same loop around them (an event heap), so the ratios are a lower
//! bound.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use parm_dispatch as old;
use parm_dispatcher as new;

const QUERIES: u64 = 400_000;
const ROUNDS: usize = 5;
const SERVICE: u64 = 20_000_000;
const SECOND: u64 = 1_000_000_000;

fn main() {
    println!("policy, instances | old, ns a query | new, ns a query | times as fast, median of {ROUNDS}");
    let cases = [
        ("none", parm_settings::PolicyKind::None, new::Policy::NONE, 18),
        ("hedge", parm_settings::PolicyKind::Hedge, new::Policy::HEDGE, 18),
        ("stand-in", parm_settings::PolicyKind::StandIn, new::Policy::STAND_IN, 18),
        ("none", parm_settings::PolicyKind::None, new::Policy::NONE, 1000),
        ("hedge", parm_settings::PolicyKind::Hedge, new::Policy::HEDGE, 1000),
        ("stand-in", parm_settings::PolicyKind::StandIn, new::Policy::STAND_IN, 1000),
    ];
    let only = std::env::args().nth(1);
    for (name, kind, policy, instances) in cases {
        if only.as_ref().is_some_and(|only| *only != format!("{name},{instances}")) {
            continue;
        }
        let mut ratios: Vec<(f64, f64, f64)> = (0..ROUNDS)
            .map(|_| {
                let before = nanos(|| run(&mut Old::of(kind, instances), instances));
                let after = nanos(|| run(&mut New::of(policy, instances), instances));
                (before / after, before, after)
            })
            .collect();
        ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, before, after) = ratios[ROUNDS / 2];
        println!("{name}, {instances} | {before:.0} | {after:.0} | {ratio:.2}");
    }
}

fn nanos(run: impl FnOnce() -> u64) -> f64 {
    let started = Instant::now();
    let answers = run();
    assert_eq!(answers, QUERIES, "each query is answered");
    started.elapsed().as_nanos() as f64 / QUERIES as f64
}

/// What the loop needs of a dispatcher.
trait Side {
    type Job: Copy + Ord;
    fn arrive(&mut self, now: u64, out: &mut Out<Self::Job>);
    fn end(&mut self, now: u64, job: Self::Job, out: &mut Out<Self::Job>);
    fn tick(&mut self, now: u64, out: &mut Out<Self::Job>);
    fn next_tick(&self) -> u64;
}

/// What a dispatcher wants after an event.
struct Out<J> {
    started: Vec<J>,
    answers: u64,
}

fn run<S: Side>(side: &mut S, instances: u32) -> u64 {
    let between = SERVICE * 10 / (u64::from(instances) * 6);
    let mut heap: BinaryHeap<Reverse<(u64, S::Job)>> = BinaryHeap::new();
    let mut out = Out { started: Vec::new(), answers: 0 };
    let (mut arrival, mut arrived, mut random) = (0, 0, 1_u64);
    let mut draw = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    while out.answers < QUERIES {
        let end = heap.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let next = if arrived < QUERIES { arrival } else { u64::MAX };
        let tick = side.next_tick();
        let now = end.min(next).min(tick);
        if now == u64::MAX {
            break;
        }
        if tick <= now {
            side.tick(now, &mut out);
        } else if end <= now {
            let Some(Reverse((_, job))) = heap.pop() else { break };
            side.end(now, job, &mut out);
        } else {
            arrived += 1;
            arrival += draw() % (2 * between);
            side.arrive(now, &mut out);
        }
        for job in out.started.drain(..) {
            let slow = if draw() & 127 == 0 { 8 } else { 1 };
            heap.push(Reverse((now + SERVICE * slow, job)));
        }
    }
    out.answers
}

struct New {
    dispatcher: new::Dispatcher<(), ()>,
    model: new::ModelKey,
}

impl New {
    fn of(policy: new::Policy, instances: u32) -> Self {
        let mut dispatcher = new::Dispatcher::new();
        let stand_in = dispatcher.add_model(new::ModelSettings::default());
        let settings = new::ModelSettings { policy, stand_in: Some(stand_in), ..Default::default() };
        let model = dispatcher.add_model(settings);
        let models = if policy.stand_in.is_some() { vec![model, stand_in] } else { vec![model] };
        for _ in 0..instances {
            dispatcher.join(new::Time::ZERO, &new::InstanceSpec::new(models.clone(), 1));
        }
        Self { dispatcher, model }
    }

    fn take(&mut self, out: &mut Out<new::JobKey>) {
        for action in self.dispatcher.actions() {
            match action {
                new::Action::Run { job, .. } => out.started.push(job),
                new::Action::Reply { .. } => out.answers += 1,
                _ => {}
            }
        }
    }
}

impl Side for New {
    type Job = new::JobKey;

    fn arrive(&mut self, now: u64, out: &mut Out<Self::Job>) {
        let deadline = new::Time::from_nanos(now + SECOND);
        let query = new::Submission::new(self.model, (), deadline);
        self.dispatcher.submit(new::Time::from_nanos(now), query);
        self.take(out);
    }

    fn end(&mut self, now: u64, job: Self::Job, out: &mut Out<Self::Job>) {
        let outputs = new::End::Answered([Some(())].into_iter().collect());
        self.dispatcher.ended(new::Time::from_nanos(now), job, outputs);
        self.take(out);
    }

    fn tick(&mut self, now: u64, out: &mut Out<Self::Job>) {
        self.dispatcher.tick(new::Time::from_nanos(now));
        self.take(out);
    }

    fn next_tick(&self) -> u64 {
        self.dispatcher.next_tick().map_or(u64::MAX, new::Time::as_nanos)
    }
}

struct Old {
    dispatcher: old::Dispatcher,
    actions: old::Actions,
    wake: u64,
    queries: u64,
}

impl Old {
    fn of(policy: parm_settings::PolicyKind, instances: u32) -> Self {
        let settings = parm_settings::PoolSettings { policy, ..parm_settings::PoolSettings::default() };
        let mut dispatcher = old::Dispatcher::new(old::Settings::uniform(settings), 1);
        let mut actions = old::Actions::new();
        for id in 0..instances {
            let spec = old::InstanceSpec {
                serves: vec![old::Served::all(old::PoolId(0))],
                slots: 1,
                site: old::Site::default(),
                learns: false,
            };
            let event = old::Event::InstanceJoined(old::InstanceId(id), spec);
            dispatcher.on_event(old::Time::ZERO, event, &mut actions);
        }
        Self { dispatcher, actions, wake: u64::MAX, queries: 0 }
    }

    fn on(&mut self, now: u64, event: old::Event, out: &mut Out<old::JobId>) {
        let now = Duration::from_nanos(now);
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.dispatcher.on_event(old::Time::ZERO + now, event, &mut self.actions);
            for action in self.actions.drain(..) {
                match action {
                    old::Action::Run(job, _) => out.started.push(job.id),
                    old::Action::WakeAt(at) => self.wake = at.since(old::Time::ZERO).as_nanos() as u64,
                    old::Action::Answer(..) => out.answers += 1,
                    old::Action::Probe(instance, of) => {
                        events.push(old::Event::ProbeAnswered(instance, of, true));
                    }
                    old::Action::Judge(query, output, ..) => {
                        events.push(old::Event::Judged(query, output, old::Judgement::Fit(None)));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Side for Old {
    type Job = old::JobId;

    fn arrive(&mut self, now: u64, out: &mut Out<Self::Job>) {
        self.queries += 1;
        let query = old::QuerySpec {
            id: old::QueryId(self.queries),
            pool: old::PoolId(0),
            shape: old::ShapeId(0),
            deadline: old::Time::ZERO + Duration::from_nanos(now + SECOND),
            priority: 0,
            share: None,
            accept: old::Accept::Any,
            codable: true,
            size: 1,
            padded: false,
        };
        self.on(now, old::Event::QueryArrived(query), out);
    }

    fn end(&mut self, now: u64, job: Self::Job, out: &mut Out<Self::Job>) {
        self.on(now, old::Event::JobCompleted(job), out);
    }

    fn tick(&mut self, now: u64, out: &mut Out<Self::Job>) {
        self.wake = u64::MAX;
        self.on(now, old::Event::TimerFired, out);
    }

    fn next_tick(&self) -> u64 {
        self.wake
    }
}
