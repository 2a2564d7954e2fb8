//! Scripts for the dispatcher, and its actions in words: one table row per behaviour.

use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Answer, CardId, Elsewhere, Event, Failure, InstanceId, InstanceSpec, JobId, Judgement,
    NodeId, Part, ProcessId, QueryId, QuerySpec, Role, Rows, Served, Settings, ShapeId, Site, Source, Time,
    Urgency, Verdict, ZoneId,
};
use parm_settings::{BatchSettings, BatchSize, Cost, InForce, PolicyKind, PoolSettings};

use super::world::{POOL, World};

/// A step of a script. Queries and instances go by number; an instance has one slot, so its job needs no name.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Time passes, in milliseconds.
    Wait(u64),
    Join(u32),
    /// An instance with nothing but the stand-in joins.
    JoinApart(u32),
    /// An instance joins on this node, in this zone.
    JoinAt(u32, u32, u32),
    /// An instance joins in this process, on this card of node 1.
    JoinOn(u32, u32, u32),
    Leave(u32),
    Drain(u32),
    /// A query with a deadline a second away.
    Query(u64),
    /// A query with a deadline in this many milliseconds.
    Within(u64, u64),
    Priority(u64, u8),
    Shape(u64, u32),
    /// A query of this size that may be padded, with a deadline a minute away.
    Padded(u64, u32),
    Cancel(u64),
    /// An instance completes its job.
    Done(u32),
    Fail(u32),
    /// An instance rejects the request.
    Refuse(u32),
    /// An instance reports that its model failed.
    Break(u32),
    Probe(u32, bool),
    /// A query whose client takes predictions only.
    Exact(u64),
    /// A query whose client accepts approximations for this many thousandths of its queries.
    AtMost(u64, u16),
    /// A query that must be served alone.
    Alone(u64),
    /// The driver encoded the requested group.
    Encoded,
    /// The driver decoded the requested slot, with this confidence in percent.
    Decoded(u8),
    /// The same, without a confidence.
    DecodedValues,
    /// The driver compared the requested group: the parities disagree with this instance.
    Compared(Option<u32>),
    /// The driver judged the requested stand-in's answer: a confidence in percent, or unfit.
    Judged(Option<u8>),
    /// The driver compared every requested prediction with its stand-in: they agree or not.
    Checked(bool),
    /// Other frontends hold this many jobs at an instance, whose home is this frontend or another.
    Elsewhere(u32, u16, bool),
    /// The cost of the stand-in, in percent of a query, for 1, 2, 4 and 8 rows.
    Cost([u16; 4]),
    /// This many queries in turn, each answered by instance 1 after 20 ms: the pool's times become known.
    Warm(u64),
    Settings(Box<PoolSettings>),
    /// These settings are configured, but late queries are hedged instead.
    Hedged(Box<PoolSettings>),
    /// The model is unloaded.
    Unload,
    /// Clears the log.
    Quiet,
}

/// Settings under which every batch has one query, so that scripts can count jobs.
pub(crate) fn one_by_one() -> PoolSettings {
    let batch = BatchSettings { max_size: BatchSize::ONE, ..BatchSettings::default() };
    PoolSettings { batch, ..PoolSettings::default() }
}

/// Runs a script in a pool with these settings and compares its actions, except wakes and releases.
#[track_caller]
pub(crate) fn check(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    let world = play(settings, steps);
    assert_eq!(words(&world), expect);
}

/// Runs a script in which no batch is queued ahead, although jobs take no time unless a step waits.
pub(crate) fn play(settings: PoolSettings, steps: &[Step]) -> World {
    let settings = PoolSettings { ahead: Duration::ZERO, ..settings };
    play_in(World::new(Settings::uniform(settings.clone()), 7), &settings, steps)
}

/// Runs a script in which batches are queued ahead at instances of fast models.
pub(crate) fn play_ahead(settings: PoolSettings, steps: &[Step]) -> World {
    play_in(World::new(Settings::uniform(settings.clone()), 7).given_ahead(), &settings, steps)
}

fn play_in(mut world: World, settings: &PoolSettings, steps: &[Step]) -> World {
    world.groups.compares = settings.coding.detection.enabled;
    for step in steps {
        act(&mut world, step);
    }
    world
}

/// The actions in words, with milliseconds.
pub(crate) fn words(world: &World) -> Vec<String> {
    let lines = world.log.iter().filter_map(|(at, action)| Some((at, word(world, action)?)));
    lines.map(|(at, word)| format!("{} {word}", at.as_nanos() / 1_000_000)).collect()
}

/// Takes a step.
pub(crate) fn act(world: &mut World, step: &Step) {
    let ms = Duration::from_millis;
    match *step {
        Step::Wait(time) => world.advance(ms(time)),
        Step::Join(id) => join(world, id, Site::default()),
        Step::JoinApart(id) => {
            let serves = vec![Served::stand_in(POOL)];
            let spec = InstanceSpec { serves, slots: 1, site: Site::default(), learns: false };
            world.send(Event::InstanceJoined(InstanceId(id), spec));
        }
        Step::JoinAt(id, node, zone) => {
            join(world, id, Site { node: Some(NodeId(node)), zone: Some(ZoneId(zone)), ..Site::default() });
        }
        Step::JoinOn(id, process, card) => {
            let (process, card) = (Some(ProcessId(process)), Some(CardId(card)));
            join(world, id, Site { process, card, node: Some(NodeId(1)), zone: None });
        }
        Step::Leave(id) => world.send(Event::InstanceLeft(InstanceId(id))),
        Step::Drain(id) => world.send(Event::InstanceDraining(InstanceId(id))),
        Step::Query(id) => arrive(world, query(id, world.now + ms(1000))),
        Step::Within(id, time) => arrive(world, query(id, world.now + ms(time))),
        Step::Priority(id, priority) => {
            arrive(world, QuerySpec { priority, ..query(id, world.now + ms(1000)) })
        }
        Step::Shape(id, shape) => {
            arrive(world, QuerySpec { shape: ShapeId(shape), ..query(id, world.now + ms(1000)) })
        }
        Step::Padded(id, size) => {
            let (size, padded) = (size, true);
            arrive(world, QuerySpec { size, padded, ..query(id, world.now + ms(60_000)) });
        }
        Step::Exact(id) => {
            arrive(world, QuerySpec { accept: Accept::Exact, ..query(id, world.now + ms(1000)) })
        }
        Step::AtMost(id, share) => {
            arrive(world, QuerySpec { accept: Accept::AtMost(share), ..query(id, world.now + ms(1000)) });
        }
        Step::Judged(percent) => {
            let (query, output) = *world.twins.judging.first().expect("a judgement was requested");
            let confidence = |percent| Judgement::Fit(Some(f32::from(percent) / 100.0));
            world.send(Event::Judged(query, output, percent.map_or(Judgement::Unfit, confidence)));
        }
        Step::Checked(agrees) => {
            let pairs: Vec<_> = world.twins.checking.iter().copied().collect();
            pairs.into_iter().for_each(|pair| world.send(Event::Checked(pair, Some(agrees))));
        }
        Step::Elsewhere(id, jobs, home) => {
            world.send(Event::HeldElsewhere(InstanceId(id), Elsewhere { jobs, home }));
        }
        Step::Cost(percent) => {
            let rows = percent.map(|percent| f64::from(percent) / 100.0);
            world.send(Event::StandInCost(POOL, Cost { rows }));
        }
        Step::Alone(id) => arrive(world, QuerySpec { codable: false, ..query(id, world.now + ms(1000)) }),
        Step::Encoded => {
            let group = *world.groups.encodings.first().expect("an encoding was requested");
            world.send(Event::GroupEncoded(group));
        }
        Step::Decoded(percent) => {
            let (group, query) =
                *world.groups.decodings.first_key_value().expect("a decoding was requested").0;
            world.send(Event::SlotDecoded { group, query, confidence: Some(f32::from(percent) / 100.0) });
        }
        Step::DecodedValues => {
            let (group, query) =
                *world.groups.decodings.first_key_value().expect("a decoding was requested").0;
            world.send(Event::SlotDecoded { group, query, confidence: None });
        }
        Step::Compared(wrong) => {
            let comparison = world.groups.comparisons.values().next().expect("a comparison was requested");
            let verdict = |part: &Part| match part.source {
                Source::Slot(slot) => {
                    let by = world.jobs[&part.job].job.instance;
                    Some(Verdict { slot, row: 0, agrees: Some(by) != wrong.map(InstanceId) })
                }
                Source::Parity(_) => None,
            };
            let verdicts = comparison.rows[0].iter().filter_map(verdict).collect();
            world.send(Event::Compared(comparison.group, verdicts));
        }
        Step::Cancel(id) => world.send(Event::QueryCancelled(QueryId(id))),
        Step::Done(instance) => world.send(Event::JobCompleted(job_on(world, instance))),
        Step::Fail(instance) => world.send(Event::JobFailed(job_on(world, instance), Failure::Instance)),
        Step::Refuse(instance) => world.send(Event::JobFailed(job_on(world, instance), Failure::Query)),
        Step::Break(instance) => world.send(Event::JobFailed(job_on(world, instance), Failure::Model)),
        Step::Probe(instance, works) => {
            let asked = world.probes.iter().find(|(id, _)| *id == InstanceId(instance));
            let (id, pool) = *asked.expect("a probe was requested");
            world.send(Event::ProbeAnswered(id, pool, works));
        }
        Step::Warm(count) => {
            for id in 1_000_000..1_000_000 + count {
                arrive(world, query(id, world.now + ms(1000)));
                let job = *world.running().next().expect("it runs").0;
                world.advance(ms(20));
                world.send(Event::JobCompleted(job));
            }
        }
        Step::Settings(ref settings) => {
            let settings = PoolSettings { ahead: Duration::ZERO, ..*settings.clone() };
            world.send(Event::settings(POOL, settings));
        }
        Step::Hedged(ref settings) => {
            let in_force = InForce { policy: PolicyKind::Hedge, ..InForce::as_wished(settings) };
            let (settings, in_force) = (settings.clone(), Box::new(in_force));
            world.send(Event::SettingsChanged { pool: POOL, settings, in_force });
        }
        Step::Unload => world.send(Event::PoolRemoved(POOL)),
        Step::Quiet => world.log.clear(),
    }
}

/// The driver reports the requested comparison of a group, for all rows: the parities disagree with this instance.
pub(crate) fn compare_all(world: &mut World, wrong: Option<u32>) {
    let comparison = world.groups.comparisons.values().next().expect("a comparison was requested");
    let verdict = |row: usize, part: &Part| {
        let Source::Slot(slot) = part.source else { return None };
        let by = world.jobs[&part.job].job.instance;
        Some(Verdict { slot, row: row as u32, agrees: Some(by) != wrong.map(InstanceId) })
    };
    let (rows, verdict) = (comparison.rows.iter().enumerate(), &verdict);
    let verdicts = rows.flat_map(|(row, parts)| parts.iter().filter_map(move |part| verdict(row, part)));
    let (group, verdicts) = (comparison.group, verdicts.collect());
    world.send(Event::Compared(group, verdicts));
}

fn arrive(world: &mut World, query: QuerySpec) {
    world.send(Event::QueryArrived(query));
}

fn join(world: &mut World, id: u32, site: Site) {
    let spec = InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site, learns: false };
    world.send(Event::InstanceJoined(InstanceId(id), spec));
}

pub(crate) fn query(id: u64, deadline: Time) -> QuerySpec {
    let (accept, shape) = (Accept::Any, ShapeId(0));
    QuerySpec {
        id: QueryId(id),
        pool: POOL,
        shape,
        deadline,
        priority: 0,
        share: None,
        accept,
        codable: true,
        size: 1,
        padded: false,
    }
}

fn job_on(world: &World, instance: u32) -> JobId {
    let on = |id: &InstanceId| *id == InstanceId(instance);
    let job = world.running().find(|(_, held)| on(&held.job.instance));
    *job.unwrap_or_else(|| panic!("instance {instance} holds no job")).0
}

fn word(world: &World, action: &Action) -> Option<String> {
    let place = |job: &JobId| {
        let held = &world.jobs[job];
        let rows: Vec<_> = held.rows.iter().map(|query| query.0.to_string()).collect();
        format!("{} on {}", rows.join("+"), held.job.instance.0)
    };
    Some(match action {
        Action::Run(job, _) => match job.role {
            Role::Deployed => format!("run {}", place(&job.id)),
            Role::Copy => format!("copy {}", place(&job.id)),
            Role::Parity(_, index) => format!("parity {index} on {}", job.instance.0),
            Role::Backup => format!("backup {}", place(&job.id)),
            Role::StandIn(Urgency::Spare) => format!("stand-in {}", place(&job.id)),
            Role::StandIn(Urgency::Late) => format!("late stand-in {}", place(&job.id)),
        },
        Action::Drop(job) if world.jobs[job].rows.is_empty() => format!("drop parity{}", place(job)),
        Action::Drop(job) => format!("drop {}", place(job)),
        Action::Answer(query, answer) => {
            let how = match answer {
                Answer::Exact { .. } => "exact".to_owned(),
                Answer::Hedged { .. } => "hedged".to_owned(),
                Answer::Reconstructed { .. } => "reconstructed".to_owned(),
                Answer::Backup { .. } => "backup".to_owned(),
                Answer::StandIn { .. } => "stand-in".to_owned(),
                Answer::Default => "default".to_owned(),
                Answer::Rejected(reason) => format!("{reason:?}"),
            };
            format!("answer {} {how}", query.0)
        }
        Action::Probe(instance, _) => format!("probe {}", instance.0),
        Action::Encode(_, slots) => {
            let batch =
                |slot: &Rows| slot.iter().map(|query| query.0.to_string()).collect::<Vec<_>>().join("+");
            format!("encode {}", slots.iter().map(batch).collect::<Vec<_>>().join("|"))
        }
        Action::Decode(recovery) => format!("decode {} from {}", recovery.query.0, recovery.parts.len()),
        Action::Compare(comparison) => {
            let parts: Vec<_> = comparison.rows.iter().map(|row| row.len().to_string()).collect();
            format!("compare {}", parts.join("+"))
        }
        Action::Judge(query, _) => format!("judge {}", query.0),
        Action::Check(pair) => {
            let rows = &world.jobs[&pair.prediction.job].rows;
            format!("check {}", rows[pair.prediction.row as usize].0)
        }
        Action::Suspect(instance, _) => format!("suspect {}", instance.0),
        Action::Tell(instance, order) => format!("tell {} {order:?}", instance.0),
        Action::Ejected(..) | Action::Kept(..) | Action::Readmitted(_) | Action::Trace(..) => return None,
        Action::Forget(_) | Action::Release(_) | Action::WakeAt(_) => return None,
    })
}

/// Judges the approximate answers that wait for it: they are fit.
pub(crate) fn judge(world: &mut World) {
    let judging: Vec<_> = world.twins.judging.iter().copied().collect();
    for (id, output) in judging {
        world.send(Event::Judged(id, output, Judgement::Fit(Some(0.99))));
    }
}
