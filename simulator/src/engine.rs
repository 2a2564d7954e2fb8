//! The driver of the dispatcher in virtual time: an event goes in, actions come out, and time jumps to what is next.
//!
//! Arrivals and the dispatcher's wake-up are not on the heap: there is one of each at a time, and they are half of all
//! events. At one moment jobs end first, then timers fire, then queries arrive; so an instance that becomes free is seen to
//! be free by the query that comes at that moment.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Answer, Dispatcher, Event, Failure, GroupId, InstanceId, InstanceSpec, JobId,
    JobSpec, Judgement, Output, Pair, PolicyKind, PoolId, QueryId, QuerySpec, Role, Served, Settings,
    ShapeId, Time,
};
use parm_workload::Schedule;
use parm_workload::arrivals;
use parm_workload::clock::Moment;

use crate::calendar::Calendar;
use crate::cluster::{Cluster, End, Work};
use crate::comparisons::Comparisons;
use crate::in_flight::{self, InFlight};
use crate::tally::{Ended, Outcome};
use crate::witness::{Answered, Execution, Witness};
use crate::{Error, Progress, Run, Tally};

/// A run under way.
pub(crate) struct Engine<'a> {
    run: &'a Run,
    now: Moment,
    dispatcher: Dispatcher,
    actions: Actions,
    arrivals: arrivals::Times,
    arrived: u64,
    calendar: Calendar<Happening>,
    wake: Moment,
    cluster: Cluster,
    queries: InFlight,
    /// Parity jobs carry no queries: what a group's rows cost is remembered from its encoding.
    groups: BTreeMap<GroupId, Coded>,
    comparisons: Comparisons,
    /// The job that ended at this event, if its answer is wrong.
    wrong: Option<JobId>,
    tally: Tally,
    witness: Option<&'a mut dyn Witness>,
    /// Jobs that instances hold, where somebody watches: with the moment each was given.
    held: BTreeMap<JobId, Execution>,
}

/// A group as it was encoded.
#[derive(Clone, Copy, Debug)]
struct Coded {
    /// Rows of its longest batch.
    rows: usize,
    members: u8,
}

/// What is to happen, but for arrivals and the wake-up.
#[derive(Clone, Copy, Debug)]
enum Happening {
    JobEnds(End),
    /// A job was taken back before it started: that is reported like any end.
    TakenBack(JobId),
    Encoded(GroupId),
    Decoded(GroupId, QueryId),
    Compared(GroupId),
    Judged(QueryId, Output),
    Checked(Pair, bool),
    Probed(InstanceId, Option<PoolId>),
    Crash(u32),
    Restart(u32),
}

/// What a probe takes when all is well.
const PROBE: Duration = Duration::from_millis(1);

/// Arrivals between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;

const POOL: PoolId = PoolId(0);
const SHAPE: ShapeId = ShapeId(0);

impl<'a> Engine<'a> {
    pub(crate) fn new(run: &'a Run) -> Result<Self, Error> {
        run.service.check()?;
        if run.warm_up >= run.queries {
            return Err(Error::AllWarmUp { warm_up: run.warm_up, queries: run.queries });
        }
        let schedule = Schedule::new(&run.faults, run.seed, run.shape.instances)?;
        Ok(Self {
            run,
            now: Moment::START,
            dispatcher: Dispatcher::new(Settings::uniform(run.settings.clone()), run.seed),
            actions: Actions::new(),
            arrivals: run.arrivals.schedule(run.seed)?,
            arrived: 0,
            calendar: Calendar::new(),
            wake: Moment::NEVER,
            cluster: Cluster::new(run.shape.instances, schedule, run.service.clone(), run.seed),
            queries: InFlight::default(),
            groups: Default::default(),
            comparisons: Comparisons::default(),
            wrong: None,
            tally: Tally::new(run.queries - run.warm_up, run.deadline),
            witness: None,
            held: BTreeMap::new(),
        })
    }

    /// The same, watched.
    pub(crate) fn watched(run: &'a Run, witness: &'a mut dyn Witness) -> Result<Self, Error> {
        Ok(Self { witness: Some(witness), ..Self::new(run)? })
    }

    /// Runs until every query has arrived and is answered.
    pub(crate) fn run(mut self, progress: &dyn Progress) -> Result<Tally, Error> {
        for instance in 0..self.cluster.len() {
            self.join(instance);
        }
        let mut next_arrival = self.next_arrival();
        while next_arrival < Moment::NEVER || self.queries.len() > 0 {
            let ready = self.calendar.next_at();
            if ready <= self.wake && ready <= next_arrival {
                self.now = ready;
                self.happens();
            } else if self.wake <= next_arrival {
                self.now = self.wake;
                self.wake = Moment::NEVER;
                self.tell(Event::TimerFired);
            } else {
                self.now = next_arrival;
                self.arrives();
                next_arrival = self.next_arrival();
                if self.arrived.is_multiple_of(REPORT_EVERY) {
                    progress.advanced(REPORT_EVERY);
                }
            }
        }
        progress.advanced(self.arrived % REPORT_EVERY);
        let capacity = u64::from(self.run.shape.instances) * self.now.as_nanos();
        self.tally.finish(self.cluster.busy, capacity, self.queries.most());
        Ok(self.tally)
    }

    fn next_arrival(&mut self) -> Moment {
        if self.arrived == self.run.queries {
            return Moment::NEVER;
        }
        self.arrivals.next().map_or(Moment::NEVER, Moment::after)
    }

    fn arrives(&mut self) {
        let id = self.queries.add(in_flight::Query { arrived: self.now, number: self.arrived });
        self.arrived += 1;
        if let Some(witness) = &mut self.witness {
            witness.arrived(self.now);
        }
        self.tell(Event::QueryArrived(QuerySpec {
            id,
            pool: POOL,
            shape: SHAPE,
            deadline: time(self.now + self.run.deadline),
            priority: 0,
            accept: Accept::Any,
            codable: true,
        }));
    }

    fn happens(&mut self) {
        match self.calendar.take() {
            Some(Happening::JobEnds(end)) => self.job_ends(end),
            Some(Happening::TakenBack(job)) => self.tell(Event::JobFailed(job, Failure::Instance)),
            Some(Happening::Encoded(group)) => self.tell(Event::GroupEncoded(group)),
            Some(Happening::Decoded(group, query)) => {
                self.tell(Event::SlotDecoded { group, query, confidence: None });
            }
            Some(Happening::Compared(group)) => {
                let verdicts = self.comparisons.report(group);
                self.tell(Event::Compared(group, verdicts));
            }
            Some(Happening::Judged(query, output)) => {
                self.tell(Event::Judged(query, output, Judgement::Fit(None)));
            }
            Some(Happening::Checked(pair, agrees)) => self.tell(Event::Checked(pair, Some(agrees))),
            Some(Happening::Probed(id, of)) => self.tell(Event::ProbeAnswered(id, of, true)),
            Some(Happening::Crash(instance)) => {
                let id = self.cluster.id(instance);
                let back = self.cluster.crash(instance, self.now);
                self.held.retain(|_, held| held.instance != instance);
                self.note(back, Happening::Restart(instance));
                self.tell(Event::InstanceLeft(id));
            }
            Some(Happening::Restart(instance)) => match self.cluster.down_until(instance, self.now) {
                Some(later) => self.note(later, Happening::Restart(instance)),
                None => self.join(instance),
            },
            None => {}
        }
    }

    fn join(&mut self, instance: u32) {
        let Run { shape, .. } = self.run;
        let parity_only = instance >= shape.instances - shape.parity_only;
        let well = !parity_only;
        let served = Served { deployed: well, backup: well, stand_in: well, ..Served::all(POOL) };
        let spec = InstanceSpec { serves: vec![served], slots: shape.slots, node: None };
        if let Some(at) = self.cluster.next_crash(instance, self.now) {
            self.note(at, Happening::Crash(instance));
        }
        self.tell(Event::InstanceJoined(self.cluster.id(instance), spec));
        if self.run.settings.policy == PolicyKind::StandIn {
            self.tell(Event::StandInCost(POOL, self.run.stand_in.cost));
        }
    }

    fn job_ends(&mut self, end: End) {
        let Some(ended) = self.cluster.end(end) else { return };
        if let Some(next) = ended.next {
            self.note(next.at, Happening::JobEnds(next));
        }
        if let Some(witness) = &mut self.witness
            && let Some(held) = self.held.remove(&ended.job)
        {
            witness.executed(Execution { ended: self.now, ..held });
        }
        self.wrong = ended.wrong.then_some(ended.job);
        if ended.wrong {
            self.comparisons.note_wrong(ended.job);
        }
        self.tell(Event::JobCompleted(ended.job));
        self.wrong = None;
    }

    fn note(&mut self, at: Moment, happening: Happening) {
        if at < Moment::NEVER {
            self.calendar.note(at, happening);
        }
    }

    /// Tells the dispatcher what happened, and does what it says.
    fn tell(&mut self, event: Event) {
        let mut actions = mem::take(&mut self.actions);
        self.dispatcher.on_event(time(self.now), event, &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Run(job, rows) => self.start(job, rows.len()),
            Action::Drop(job) => self.drop_waiting(job),
            Action::Answer(query, answer) => self.answered(query, answer),
            Action::Encode(group, slots) => {
                let rows = slots.iter().map(|rows| rows.len()).max().unwrap_or(0);
                self.groups.insert(group, Coded { rows, members: slots.len() as u8 });
                self.note(self.now + self.run.encode, Happening::Encoded(group));
            }
            Action::Decode(recovery) => {
                let decoded = Happening::Decoded(recovery.group, recovery.query);
                self.note(self.now + self.run.decode, decoded);
            }
            Action::Forget(group) => {
                self.groups.remove(&group);
            }
            Action::Probe(id, of) => {
                let instance = self.cluster.of(id);
                if let Some(at) = self.cluster.probe(instance, self.now) {
                    self.note(at + PROBE, Happening::Probed(id, of));
                }
            }
            Action::WakeAt(at) => self.wake = Moment::from_nanos(at.as_nanos()),
            Action::Compare(comparison) => {
                self.comparisons.compare(&comparison, self.run.seed);
                self.note(self.now + self.run.decode, Happening::Compared(comparison.group));
            }
            Action::Judge(query, output) => self.note(self.now, Happening::Judged(query, output)),
            Action::Check(pair) => {
                let agrees = self.comparisons.agree(pair, self.run.stand_in.agreement, self.run.seed);
                self.note(self.now + self.run.decode, Happening::Checked(pair, agrees));
            }
            Action::Suspect(id, _) => self.tally.suspected(self.cluster.of(id)),
            Action::Release(job) => self.comparisons.release(job),
            // The tally knows them by its own means.
            Action::Ejected(..) | Action::Kept(..) | Action::Readmitted(_) | Action::Trace(..) => {}
        }
    }

    fn start(&mut self, job: JobSpec, rows: usize) {
        let (rows, share) = match job.role {
            Role::Parity(group, _) => {
                (self.groups.get(&group).map_or(1, |coded| coded.rows), self.run.parity_share)
            }
            Role::Backup => (rows, self.run.backup_share),
            // Its cost says what its rows come to.
            Role::StandIn(_) => (1, self.run.stand_in.cost.of(rows)),
            Role::Deployed | Role::Copy => (rows, 1.0),
        };
        self.tally.started(job.role == Role::Deployed, share);
        let instance = self.cluster.of(job.instance);
        if self.witness.is_some() {
            let (given, ended) = (self.now, self.now);
            self.held.insert(job.id, Execution { instance, role: job.role, rows, given, ended });
        }
        if let Some(end) = self.cluster.give(instance, Work { job: job.id, rows, share }, self.now) {
            self.note(end.at, Happening::JobEnds(end));
        }
    }

    /// Takes a job back that its instance has not started; one that runs goes on.
    fn drop_waiting(&mut self, job: JobId) {
        let instances = if self.run.shape.slots > 1 { self.cluster.len() } else { 0 };
        if (0..instances).any(|instance| self.cluster.take_back(instance, job)) {
            self.held.remove(&job);
            self.note(self.now, Happening::TakenBack(job));
        }
    }

    fn answered(&mut self, id: QueryId, answer: Answer) {
        let Some(query) = self.queries.remove(id) else { return };
        let (outcome, by) = match answer {
            Answer::Exact { job, .. } => (Outcome::Exact, Some(job)),
            Answer::Hedged { job, .. } => (Outcome::Hedged, Some(job)),
            Answer::Backup { job, .. } => (Outcome::Backup, Some(job)),
            Answer::StandIn { job, .. } => (Outcome::StandIn, Some(job)),
            Answer::Reconstructed { .. } => (Outcome::Reconstructed, None),
            Answer::Default => (Outcome::Default, None),
            Answer::Rejected(_) => (Outcome::Rejected, None),
        };
        let members = match answer {
            Answer::Reconstructed { group, .. } => self.groups.get(&group).map_or(0, |coded| coded.members),
            _ => 0,
        };
        if let Some(number) = query.number.checked_sub(self.run.warm_up) {
            // A stand-in's answer may be given long after its job ended.
            let kept = outcome == Outcome::StandIn && by.is_some_and(|job| self.comparisons.is_wrong(job));
            let wrong = kept || (by.is_some() && by == self.wrong);
            let latency = self.now.nanos_since(query.arrived);
            self.tally.ended(Ended { number, latency, outcome, wrong });
            if let Some(witness) = &mut self.witness {
                witness.answered(Answered { latency, outcome, members, wrong });
            }
        }
    }
}

fn time(moment: Moment) -> Time {
    Time::from_nanos(moment.as_nanos())
}
