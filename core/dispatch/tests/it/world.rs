//! A world for the dispatcher, which checks every action against the contract of a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Answer, Class, Dispatcher, Event, Failure, InstanceId, InstanceSpec, JobId,
    JobSpec, Judgement, Output, PoolId, QueryId, QuerySpec, Reject, Role, Rows, Settings, Time,
};

use super::groups::Groups;
use super::twins::Twins;

/// Longer than any group may stay open in these schedules.
const OLD: Duration = Duration::from_secs(1);

/// The dispatcher with a driver, instances and clients.
pub(crate) struct World {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) now: Time,
    pub(crate) queries: BTreeMap<QueryId, Tracked>,
    pub(crate) jobs: BTreeMap<JobId, Held>,
    pub(crate) instances: BTreeMap<InstanceId, Present>,
    pub(crate) probes: BTreeSet<(InstanceId, Option<PoolId>)>,
    /// Instances that ended a dropped job without an answer.
    silent: BTreeSet<InstanceId>,
    pub(crate) groups: Groups,
    pub(crate) twins: Twins,
    /// Every action of the dispatcher, with its time.
    pub(crate) log: Vec<(Time, Action)>,
    pub(crate) tally: Tally,
    pub(crate) wake: Option<Time>,
    /// The process was away, so queries may have expired meanwhile.
    pub(crate) paused: bool,
    actions: Actions,
    /// Jobs that an instance may hold for each of its slots.
    most_for_a_slot: usize,
}

/// A query that arrived.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) query: QuerySpec,
    pub(crate) fate: Fate,
    /// It ran at least once.
    pub(crate) tried: bool,
    /// A job of it was withheld.
    withheld: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Waiting,
    Cancelled,
    Answered(Answer),
}

/// A job that was run.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) job: JobSpec,
    pub(crate) rows: Rows,
    pub(crate) state: State,
    pub(crate) dropped: bool,
    pub(crate) released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Completed,
    Failed,
}

/// An instance that joined and has not left.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) spec: InstanceSpec,
    pub(crate) draining: bool,
}

/// Jobs by what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Jobs of queries that had never run.
    pub(crate) fresh: u64,
    /// Jobs of queries that had run and ran nowhere at that time.
    pub(crate) retries: u64,
    /// Jobs of queries that ran elsewhere too.
    pub(crate) copies: u64,
    /// Failed jobs of bad queries except the last of each, of batches that were then split, and of cancelled queries. At most
    /// this many retries are returned to the budget, or are free.
    pub(crate) given_back: u64,
}

impl World {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        Self {
            dispatcher: Dispatcher::new(settings, seed),
            now: Time::ZERO,
            queries: BTreeMap::new(),
            jobs: BTreeMap::new(),
            instances: BTreeMap::new(),
            probes: BTreeSet::new(),
            silent: BTreeSet::new(),
            groups: Groups::default(),
            twins: Twins::default(),
            log: Vec::new(),
            tally: Tally::default(),
            wake: None,
            paused: false,
            actions: Actions::new(),
            most_for_a_slot: 1,
        }
    }

    /// Allows batches queued ahead at instances of fast models.
    pub(crate) fn given_ahead(mut self) -> Self {
        self.most_for_a_slot = 16;
        self
    }

    /// Sends an event to the dispatcher and performs its actions.
    pub(crate) fn send(&mut self, event: Event) {
        match &event {
            Event::QueryArrived(query) => {
                let (query, fate) = (*query, Fate::Waiting);
                let tracked = Tracked { query, fate, tried: false, withheld: false };
                assert!(self.queries.insert(query.id, tracked).is_none(), "the script reuses {:?}", query.id);
            }
            Event::QueryCancelled(id) => {
                self.tally.given_back += self.failures_of(&[*id]);
                if let Some(tracked) =
                    self.queries.get_mut(id).filter(|tracked| tracked.fate == Fate::Waiting)
                {
                    tracked.fate = Fate::Cancelled;
                }
            }
            Event::JobCompleted(id) => self.end(*id, State::Completed),
            Event::JobFailed(id, failure) => {
                if *failure == Failure::Withheld {
                    self.withhold(*id);
                }
                self.end(*id, State::Failed);
                let batch = self.jobs.get(id).map(|held| held.rows.clone()).filter(|rows| rows.len() > 1);
                let apart = batch.filter(|_| matches!(failure, Failure::Model | Failure::Query));
                self.tally.given_back += apart.map_or(0, |rows| self.failures_of(&rows));
                let given_up = self.jobs.get(id).filter(|held| held.dropped);
                self.silent.extend(given_up.map(|held| held.job.instance));
            }
            Event::InstanceJoined(id, spec) => {
                self.instances.insert(*id, Present { spec: spec.clone(), draining: false });
            }
            Event::InstanceDraining(id) => {
                if let Some(present) = self.instances.get_mut(id) {
                    present.draining = true;
                }
            }
            Event::InstanceLeft(id) => {
                self.instances.remove(id);
                self.probes.retain(|(probed, _)| probed != id);
                for held in self.jobs.values_mut().filter(|held| held.job.instance == *id) {
                    if held.state == State::Running {
                        held.state = State::Failed;
                    }
                }
            }
            Event::ProbeAnswered(id, pool, _) => {
                self.probes.remove(&(*id, *pool));
            }
            Event::PoolRemoved(id) => {
                for present in self.instances.values_mut() {
                    present.spec.serves.retain(|served| served.pool != *id);
                }
            }
            _ => {
                self.groups.note(&event);
                self.twins.note(&event);
            }
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.dispatcher.on_event(self.now, event, &mut actions);
        if let Err(lost) = self.dispatcher.check() {
            panic!("{lost}");
        }
        for (at, action) in actions.iter().enumerate() {
            self.stays_out(action, &actions[at..]);
        }
        for action in actions.drain(..) {
            self.obey(&action);
            self.log.push((self.now, action));
        }
        self.actions = actions;
    }

    /// Lets time pass, with every requested wake.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(at) = self.wake.filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.wake = None;
            self.send(Event::TimerFired);
        }
        self.now = end;
    }

    /// Jobs that instances hold.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&JobId, &Held)> {
        self.jobs.iter().filter(|(_, held)| held.state == State::Running)
    }

    /// Ends every job and lets every deadline pass: nothing may be left.
    pub(crate) fn finish(&mut self) {
        let running: Vec<_> = self.running().map(|(id, _)| *id).collect();
        running.into_iter().for_each(|id| self.send(Event::JobFailed(id, Failure::Instance)));
        let last = self.queries.values().map(|tracked| tracked.query.deadline).max().unwrap_or(self.now);
        self.advance(last.since(self.now) + Duration::from_millis(1));
        // An open group keeps its members' outputs until it is old, even when its policy was changed away meanwhile.
        self.advance(OLD);
        for (id, tracked) in &self.queries {
            assert_ne!(tracked.fate, Fate::Waiting, "{id:?} was never answered");
        }
        let running: Vec<_> = self.running().map(|(id, _)| *id).collect();
        running.into_iter().for_each(|id| self.send(Event::JobCompleted(id)));
        let encodings: Vec<_> = self.groups.encodings.iter().copied().collect();
        encodings.into_iter().for_each(|id| self.send(Event::GroupEncoded(id)));
        let decodings: Vec<_> = self.groups.decodings.keys().copied().collect();
        decodings.into_iter().for_each(|(group, query)| self.send(Event::SlotFailed { group, query }));
        let comparisons: Vec<_> = self.groups.comparisons.keys().copied().collect();
        comparisons.into_iter().for_each(|group| self.send(Event::Compared(group, Vec::new())));
        let judging: Vec<_> = self.twins.judging.iter().copied().collect();
        judging.into_iter().for_each(|(id, output)| self.send(Event::Judged(id, output, Judgement::Unfit)));
        let checking: Vec<_> = self.twins.checking.iter().copied().collect();
        checking.into_iter().for_each(|pair| self.send(Event::Checked(pair, None)));
        self.check_clients_bounds();
        for (id, group) in &self.groups.all {
            assert!(group.forgotten, "{id:?} was never forgotten");
        }
        for (id, held) in &self.jobs {
            assert!(held.released, "{id:?} was never released");
        }
    }

    /// Jobs that failed with any of these queries.
    fn failures_of(&self, rows: &[QueryId]) -> u64 {
        let failed =
            |held: &&Held| held.state == State::Failed && held.rows.iter().any(|row| rows.contains(row));
        self.jobs.values().filter(failed).count() as u64
    }

    /// Notes that the queries of a running job get no further jobs, unless it only explores.
    fn withhold(&mut self, id: JobId) {
        let is_own = |held: &&Held| {
            let role = held.job.role;
            held.state == State::Running
                && (role == Role::Deployed || role == Role::Copy && held.job.class != Class::Spare)
        };
        let rows = self.jobs.get(&id).filter(is_own).map(|held| held.rows.clone()).unwrap_or_default();
        rows.iter().for_each(|row| self.queries.get_mut(row).expect("known").withheld = true);
    }

    fn end(&mut self, id: JobId, state: State) {
        if let Some(held) = self.jobs.get_mut(&id).filter(|held| held.state == State::Running) {
            held.state = state;
        }
    }

    fn obey(&mut self, action: &Action) {
        match action {
            Action::Run(job, rows) => self.run(*job, rows),
            Action::Drop(id) => self.dropped(*id),
            Action::Answer(id, answer) => self.answered(*id, *answer),
            Action::Release(id) => self.released(*id),
            Action::Probe(id, pool) => {
                assert!(self.instances.contains_key(id), "probe of {id:?}, which is gone");
                let serves = match pool {
                    Some(pool) => self.dispatcher.takes(*id, *pool),
                    None => self.dispatcher.in_service(*id) && !self.silent.contains(id),
                };
                assert!(!serves, "probe of {id:?} for {pool:?}, which is in service");
                self.probes.insert((*id, *pool));
            }
            Action::WakeAt(at) => {
                assert_ne!(self.wake, Some(*at), "asked twice for the same wake");
                self.wake = Some(*at);
            }
            Action::Encode(id, slots) => self.encode(*id, slots),
            Action::Decode(recovery) => self.decode(recovery),
            Action::Forget(id) => self.groups.forget(*id),
            Action::Compare(comparison) => self.compare(comparison),
            Action::Judge(query, output) => self.judge(*query, *output),
            Action::Check(pair) => self.check(*pair),
            Action::Tell(id, _) => assert!(self.instances.contains_key(id), "{id:?} is gone"),
            Action::Suspect(instance, _) => {
                assert!(self.instances.contains_key(instance), "{instance:?} is gone")
            }
            Action::Readmitted(id) => assert!(self.instances.contains_key(id), "{id:?} is gone"),
            Action::Ejected(..) | Action::Kept(..) | Action::Trace(..) => {}
        }
    }

    /// An ejected instance takes no work, unless it is readmitted at once: work may wait that no other could do.
    fn stays_out(&self, action: &Action, after: &[Action]) {
        if let Action::Ejected(id, pool, _) = action {
            let readmitted = after.iter().any(|next| matches!(next, Action::Readmitted(of) if of == id));
            assert!(readmitted || !self.dispatcher.takes(*id, *pool), "{id:?} was ejected and takes work");
        }
    }

    fn run(&mut self, job: JobSpec, rows: &Rows) {
        let present = self.instances.get(&job.instance).expect("the instance is there");
        assert!(!present.draining, "{job:?} on a draining instance");
        let holds = self.running().filter(|(_, held)| held.job.instance == job.instance).count();
        // A token shows that the instance has room.
        assert!(
            job.token.is_some() || holds < usize::from(present.spec.slots.max(1)) * self.most_for_a_slot,
            "{job:?}: no slot is free"
        );
        let served = present.spec.serves.iter().find(|served| served.pool == job.pool);
        let served = served.unwrap_or_else(|| panic!("{job:?}: not served there"));
        match job.role {
            Role::Deployed | Role::Copy => assert!(served.deployed && !rows.is_empty()),
            Role::Backup => assert!(served.backup && !rows.is_empty()),
            Role::StandIn(urgency) => {
                assert!(served.stand_in);
                self.stands_in(job, rows, urgency);
            }
            Role::Parity(group, index) => {
                assert!(served.parity && rows.is_empty());
                self.run_parity(job, group, index);
            }
        }
        let distinct: BTreeSet<_> = rows.iter().collect();
        assert_eq!(distinct.len(), rows.len(), "{job:?} has a query twice: {rows:?}");
        let mut shapes = BTreeSet::new();
        for id in rows {
            let tracked = &self.queries[id];
            assert_eq!(tracked.fate, Fate::Waiting, "{job:?}: {id:?} is answered already");
            assert_eq!(tracked.query.pool, job.pool);
            let again = matches!(job.role, Role::Deployed | Role::Copy);
            assert!(!(again && tracked.withheld), "{job:?}: {id:?} gets no further jobs");
            // Stand-ins and backups are other models, which may not take padded rows.
            let other = matches!(job.role, Role::StandIn(_) | Role::Backup) && tracked.query.padded;
            shapes.insert((tracked.query.shape, if other { tracked.query.size } else { 0 }));
            if job.role == Role::Backup {
                assert_eq!(tracked.query.accept, Accept::Any, "{id:?} accepts no backup");
                continue;
            }
            let elsewhere =
                self.running().filter(|(_, held)| held.rows.contains(id) && held.job.role != Role::Backup);
            for (_, held) in elsewhere {
                let either =
                    [job.role, held.job.role].into_iter().any(|role| matches!(role, Role::StandIn(_)));
                if either && job.role != Role::Copy {
                    continue; // `twins.rs` checks stand-ins; a query that waited may start next to its own stand-in
                }
                assert_ne!(held.job.instance, job.instance, "{id:?} twice on one instance");
                // A retry does not wait for a copy that explores.
                let explores = held.job.role == Role::Copy && held.job.class == Class::Spare;
                if either || explores {
                    continue;
                }
                assert_eq!(job.role, Role::Copy, "{id:?} runs elsewhere: this is a copy");
            }
        }
        assert!(shapes.len() <= 1, "{job:?} mixes shapes");
        let tried = rows.iter().any(|id| self.queries[id].tried);
        match job.role {
            Role::Copy => self.tally.copies += 1,
            Role::Backup | Role::Parity(..) | Role::StandIn(_) => {}
            _ if tried => self.tally.retries += 1,
            _ => self.tally.fresh += 1,
        }
        for id in rows.iter().filter(|_| !matches!(job.role, Role::StandIn(_))) {
            self.queries.get_mut(id).expect("known").tried = true;
        }
        let held = Held { job, rows: rows.clone(), state: State::Running, dropped: false, released: false };
        assert!(self.jobs.insert(job.id, held).is_none(), "{job:?}: the id was used before");
    }

    fn dropped(&mut self, id: JobId) {
        let held = self.jobs.get_mut(&id).expect("a job that was run");
        assert_eq!((held.state, held.dropped), (State::Running, false), "{held:?}");
        held.dropped = true;
        for row in &self.jobs[&id].rows {
            assert_ne!(self.queries[row].fate, Fate::Waiting, "{row:?} still waits for {id:?}");
        }
    }

    fn answered(&mut self, id: QueryId, answer: Answer) {
        let tracked = self.queries.get_mut(&id).expect("a query that arrived");
        assert_eq!(tracked.fate, Fate::Waiting, "{id:?}: second answer {answer:?}");
        let in_time = self.now <= tracked.query.deadline.max(Time::ZERO) || self.paused;
        assert!(in_time, "{id:?}: {answer:?} after its deadline");
        tracked.fate = Fate::Answered(answer);
        if answer == Answer::Rejected(Reject::BadQuery) {
            self.tally.given_back += self.failures_of(&[id]).saturating_sub(1);
        } else if matches!(answer, Answer::Default | Answer::Rejected(Reject::Deadline)) {
            self.tally.given_back += self.failures_of(&[id]);
        }

        if let Answer::StandIn { job, row, .. } = answer {
            self.stood_in(id, Output { job, row });
        }
        if let Answer::Exact { job, row }
        | Answer::Hedged { job, row }
        | Answer::Backup { job, row }
        | Answer::StandIn { job, row, .. } = answer
        {
            let held = &self.jobs[&job];
            assert_eq!((held.state, held.released), (State::Completed, false), "{answer:?} from {held:?}");
            assert_eq!(held.rows[row as usize], id, "{answer:?}: another query's row");
            let label = match held.job.role {
                Role::Deployed => Answer::Exact { job, row },
                Role::Copy => Answer::Hedged { job, row },
                Role::Parity(..) | Role::Backup => Answer::Backup { job, row },
                Role::StandIn(_) => answer,
            };
            assert_eq!(answer, label, "{answer:?} from {held:?}");
            let stands_in = matches!(answer, Answer::StandIn { .. });
            assert_eq!(stands_in, matches!(held.job.role, Role::StandIn(_)), "{answer:?} from {held:?}");
        }
        let accept = self.queries[&id].query.accept;
        let coded = matches!(answer, Answer::Reconstructed { .. } | Answer::Backup { .. });
        assert!(!coded || accept == Accept::Any, "{id:?} wants no {answer:?}");
        let stands_in = matches!(answer, Answer::StandIn { .. });
        assert!(!stands_in || accept != Accept::Exact, "{id:?} wants no {answer:?}");
        if let Answer::Reconstructed { group, .. } = answer {
            assert!(self.groups.decoded.contains(&(group, id)), "{answer:?} was never decoded");
            assert!(!self.groups.all[&group].forgotten, "{answer:?} was forgotten");
        }
    }

    fn released(&mut self, id: JobId) {
        let held = self.jobs.get_mut(&id).expect("a job that was run");
        assert!(held.state != State::Running && !held.released, "released too early or twice: {held:?}");
        held.released = true;
        assert!(!self.twins.read(id), "{id:?} is released while it is read");
        let compared =
            self.groups.comparisons.values().flat_map(|comparison| comparison.rows.iter().flatten());
        assert!(compared.into_iter().all(|part| part.job != id), "{id:?} is released while it is compared");
        for recovery in self.groups.decodings.values() {
            assert!(recovery.parts.iter().all(|part| part.job != id), "{id:?} is released while it is read");
        }
    }
}

/// The pool of every script that needs only one.
pub(crate) const POOL: PoolId = PoolId(0);
