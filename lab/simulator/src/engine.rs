//! The driver of the dispatcher in virtual time: it passes events in, executes actions, and jumps to the next event.
//!
//! Arrivals and the dispatcher's wake-up are not on the heap: there is one of each at a time, and they are half of all
//! events. At the same moment jobs end first, then timers fire, then queries arrive, so a query finds an instance free
//! that becomes free at that moment.

use std::mem;
use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Answer, Event, Failure, GroupId, InstanceId, InstanceSpec, JobId, JobSpec,
    Judgement, Order, Output, Pair, PoolId, QueryId, QuerySpec, Role, Rows, Served, ShapeId, Site, Time,
};
use parm_settings::PolicyKind;
use parm_tokens::Message;
use parm_workload::arrivals;
use parm_workload::clock::Moment;
use parm_workload::{Outcome, Random, Schedule};

use crate::calendar::Calendar;
use crate::cluster::{Cluster, End, Ticket, Work};
use crate::front::{Coded, Front};
use crate::in_flight;
use crate::tally::Ended;
use crate::witness::{Answered, Execution, Witness};
use crate::{Error, Lengths, Progress, Run, Tally};

/// A run in progress.
pub(crate) struct Engine<'a> {
    pub(crate) run: &'a Run,
    pub(crate) now: Moment,
    fronts: Vec<Front>,
    actions: Actions,
    arrivals: arrivals::Times,
    arrived: u64,
    calendar: Calendar<Happening>,
    pub(crate) cluster: Cluster,
    pub(crate) tally: Tally,
    /// Draws the frontend at which a query arrives, and the messages that are lost.
    pub(crate) draw: Random,
    witness: Option<&'a mut dyn Witness>,
    unanswered: usize,
    most_unanswered: usize,
}

/// A future event other than an arrival or a wake-up.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    JobEnds(End),
    /// An event at a frontend.
    At(u32, ToFront),
    /// A job arrives at an instance.
    Given(InstanceId, Work),
    /// A frontend's order arrives at an instance.
    Told(InstanceId, u32, Order<()>),
    /// An instance checks its tokens.
    Tick(InstanceId),
    Crash(u32),
    Restart(u32),
    /// A frontend reports to its neighbours what it holds.
    Tells(u32),
}

/// A future event at a frontend.
#[derive(Clone, Debug)]
pub(crate) enum ToFront {
    Answered {
        job: JobId,
        wrong: bool,
    },
    /// A job was withdrawn before it started, which is reported like any end.
    TakenBack(JobId),
    Encoded(GroupId),
    Decoded(GroupId, QueryId),
    Compared(GroupId),
    Judged(QueryId, Output),
    Checked(Pair, bool),
    Probed(InstanceId, Option<PoolId>),
    Token(InstanceId, Message),
    /// The jobs of another frontend at an instance.
    Heard {
        from: u32,
        instance: u32,
        jobs: u16,
    },
}

/// Time of a probe without faults.
const PROBE: Duration = Duration::from_millis(1);

/// Arrivals between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;

const POOL: PoolId = PoolId(0);
const SHAPE: ShapeId = ShapeId(0);

/// The size of a query with factor 1, about the tokens of a sentence.
const USUAL_SIZE: f64 = 16.0;

/// Separates these draws from all others.
const STREAM: u64 = 0xF1EE7;

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
            fronts: (0..run.fleet.frontends.max(1)).map(|number| Front::new(run, number)).collect(),
            actions: Actions::new(),
            arrivals: run.arrivals.schedule(run.seed)?,
            arrived: 0,
            calendar: Calendar::new(),
            cluster: Cluster::new(run.shape.instances, schedule, run.service.clone(), run.seed),
            tally: Tally::new(run.queries - run.warm_up, run.deadline),
            draw: Random::of(run.seed, [STREAM]),
            witness: None,
            unanswered: 0,
            most_unanswered: 0,
        })
    }

    /// The same, with a witness.
    pub(crate) fn watched(run: &'a Run, witness: &'a mut dyn Witness) -> Result<Self, Error> {
        Ok(Self { witness: Some(witness), ..Self::new(run)? })
    }

    /// Runs until every query has arrived and is answered.
    pub(crate) fn run(mut self, progress: &dyn Progress) -> Result<Tally, Error> {
        for instance in 0..self.cluster.len() {
            self.join(instance);
        }
        let mut next_arrival = self.next_arrival();
        while next_arrival < Moment::NEVER || self.unanswered > 0 {
            let ready = self.calendar.next_at();
            let (wake, front) = self.next_wake();
            if ready <= wake && ready <= next_arrival {
                self.now = ready;
                self.happens();
            } else if wake <= next_arrival {
                self.now = wake;
                self.fronts[front as usize].wake = Moment::NEVER;
                self.tell(front, Event::TimerFired);
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
        self.tally.finish(self.cluster.busy, capacity, self.most_unanswered);
        Ok(self.tally)
    }

    fn next_wake(&self) -> (Moment, u32) {
        let wakes = self.fronts.iter().zip(0..).map(|(front, number)| (front.wake, number));
        wakes.min().unwrap_or((Moment::NEVER, 0))
    }

    fn next_arrival(&mut self) -> Moment {
        if self.arrived == self.run.queries {
            return Moment::NEVER;
        }
        self.arrivals.next().map_or(Moment::NEVER, Moment::after)
    }

    fn arrives(&mut self) {
        // A single frontend needs no draw, so its runs stay the same.
        let front = if self.fronts.len() > 1 { self.draw.below(self.fronts.len()) } else { 0 };
        let query = in_flight::Query { arrived: self.now, number: self.arrived };
        let id = self.fronts[front].queries.add(query);
        self.arrived += 1;
        self.unanswered += 1;
        self.most_unanswered = self.most_unanswered.max(self.unanswered);
        if let Some(witness) = &mut self.witness {
            witness.arrived(self.now);
        }
        let size = self.size(query.number);
        let query = QuerySpec {
            id,
            pool: POOL,
            shape: if self.run.lengths == Lengths::Equal { ShapeId(size) } else { SHAPE },
            deadline: time(self.now + self.run.deadline),
            priority: 0,
            share: None,
            accept: Accept::Any,
            codable: true,
            size,
            padded: self.run.lengths == Lengths::Padded,
        };
        self.tell(front as u32, Event::QueryArrived(query));
    }

    /// Returns the size of a query that the dispatcher learns.
    fn size(&self, number: u64) -> u32 {
        if self.run.lengths == Lengths::Mixed || !self.cluster.follows_queries() {
            return 1;
        }
        // A fault may leave some instances out.
        let factors = (0..self.cluster.len()).map(|instance| self.cluster.longest(instance, [number]));
        (factors.fold(0.0, f64::max) * USUAL_SIZE).ceil().max(1.0) as u32
    }

    fn happens(&mut self) {
        match self.calendar.take() {
            Some(Happening::JobEnds(end)) => self.job_ends(end),
            Some(Happening::At(front, what)) => self.happens_at(front, what),
            Some(Happening::Given(id, work)) => self.given(id, work),
            Some(Happening::Told(id, front, order)) => self.told(id, front, order),
            Some(Happening::Tick(id)) => self.tick(id),
            Some(Happening::Tells(front)) => self.tells(front),
            Some(Happening::Crash(instance)) => {
                let id = self.cluster.id(instance);
                let back = self.cluster.crash(instance, self.now);
                self.note(back, Happening::Restart(instance));
                for front in 0..self.fronts.len() {
                    self.fronts[front].held.retain(|_, held| held.instance != instance);
                    self.loses(front as u32, instance);
                    self.tell(front as u32, Event::InstanceLeft(id));
                }
            }
            Some(Happening::Restart(instance)) => match self.cluster.down_until(instance, self.now) {
                Some(later) => self.note(later, Happening::Restart(instance)),
                None => self.join(instance),
            },
            None => {}
        }
    }

    fn happens_at(&mut self, number: u32, what: ToFront) {
        let front = &mut self.fronts[number as usize];
        let event = match what {
            ToFront::Answered { job, wrong } => {
                self.answered_by(number, job, wrong);
                return;
            }
            ToFront::Heard { from, instance, jobs } => {
                self.heard(number, from, instance, jobs);
                return;
            }
            ToFront::TakenBack(job) => {
                self.lets_go(number, job);
                Event::JobFailed(job, Failure::Instance)
            }
            ToFront::Encoded(group) => Event::GroupEncoded(group),
            ToFront::Decoded(group, query) => Event::SlotDecoded { group, query, confidence: None },
            ToFront::Compared(group) => Event::Compared(group, front.comparisons.report(group)),
            ToFront::Judged(query, output) => Event::Judged(query, output, Judgement::Fit(None)),
            ToFront::Checked(pair, agrees) => Event::Checked(pair, Some(agrees)),
            ToFront::Probed(id, of) => Event::ProbeAnswered(id, of, true),
            ToFront::Token(id, Message::Granted(grant)) => Event::TokenGranted(id, grant),
            ToFront::Token(id, Message::Recalled(token)) => Event::TokenRecalled(id, token),
            ToFront::Token(id, Message::Alone(slots)) => Event::TokensShared(id, NonZeroU16::new(slots)),
            ToFront::Token(id, Message::Shared) => Event::TokensShared(id, None),
        };
        self.tell(number, event);
    }

    fn join(&mut self, instance: u32) {
        let Run { shape, .. } = self.run;
        let parity_only = instance >= shape.instances - shape.parity_only;
        let well = !parity_only;
        let served = Served { deployed: well, backup: well, stand_in: well, ..Served::all(POOL) };
        let spec =
            InstanceSpec { serves: vec![served], slots: shape.slots, site: Site::default(), learns: false };
        if let Some(at) = self.cluster.next_crash(instance, self.now) {
            self.note(at, Happening::Crash(instance));
        }
        let id = self.cluster.id(instance);
        for front in 0..self.fronts.len() as u32 {
            self.tell(front, Event::InstanceJoined(id, spec.clone()));
            if self.run.fleet.tokens {
                self.cluster.take_part(instance, front);
                self.tell(front, Event::TokensOffered(id));
            } else {
                self.minds_neighbours(front, instance);
            }
            if self.run.settings.policy == PolicyKind::StandIn {
                self.tell(front, Event::StandInCost(POOL, self.run.stand_in.cost));
            }
        }
    }

    fn job_ends(&mut self, end: End) {
        let Some(ended) = self.cluster.end(end) else { return };
        self.begins(ended.next);
        let Ticket { front, job } = ended.job;
        // The token travels with the answer and arrives first.
        self.deliver(end.instance, Some(front));
        let wrong = ended.wrong;
        if self.run.fleet.delay.is_zero() {
            self.answered_by(front, job, wrong);
        } else {
            self.later(front, self.run.fleet.delay, ToFront::Answered { job, wrong });
        }
    }

    fn answered_by(&mut self, number: u32, job: JobId, wrong: bool) {
        let front = &mut self.fronts[number as usize];
        if let Some(witness) = &mut self.witness
            && let Some(held) = front.held.remove(&job)
        {
            witness.executed(Execution { ended: self.now, ..held });
        }
        front.wrong = wrong.then_some(job);
        if wrong {
            front.comparisons.note_wrong(job);
        }
        self.lets_go(number, job);
        self.tell(number, Event::JobCompleted(job));
        self.fronts[number as usize].wrong = None;
    }

    pub(crate) fn front(&mut self, number: u32) -> &mut Front {
        &mut self.fronts[number as usize]
    }

    /// Schedules the end of a job that starts.
    pub(crate) fn begins(&mut self, end: Option<End>) {
        if let Some(end) = end {
            self.note(end.at, Happening::JobEnds(end));
        }
    }

    pub(crate) fn later(&mut self, front: u32, delay: Duration, what: ToFront) {
        self.note(self.now + delay, Happening::At(front, what));
    }

    pub(crate) fn note(&mut self, at: Moment, happening: Happening) {
        if at < Moment::NEVER {
            self.calendar.note(at, happening);
        }
    }

    /// Passes an event to a dispatcher and executes its actions.
    pub(crate) fn tell(&mut self, front: u32, event: Event) {
        let mut actions = mem::take(&mut self.actions);
        self.fronts[front as usize].dispatcher.on_event(time(self.now), event, &mut actions);
        for action in actions.drain(..) {
            self.act(front, action);
        }
        self.actions = actions;
    }

    fn act(&mut self, number: u32, action: Action) {
        let Run { seed, encode, decode, .. } = *self.run;
        let front = &mut self.fronts[number as usize];
        match action {
            Action::Run(job, rows) => self.start(number, job, &rows),
            Action::Drop(job) => self.drop_waiting(number, job),
            Action::Answer(query, answer) => self.answered(number, query, answer),
            Action::Encode(group, slots) => {
                let rows = slots.iter().map(|rows| rows.len()).max().unwrap_or(0);
                let numbers = slots.iter().flatten().map(|query| in_flight::number(*query));
                let queries = if self.cluster.follows_queries() { numbers.collect() } else { Vec::new() };
                front.groups.insert(group, Coded { rows, members: slots.len() as u8, queries });
                self.later(number, encode, ToFront::Encoded(group));
            }
            Action::Decode(recovery) => {
                self.later(number, decode, ToFront::Decoded(recovery.group, recovery.query));
            }
            Action::Forget(group) => {
                front.groups.remove(&group);
            }
            Action::Probe(id, of) => {
                let instance = self.cluster.of(id);
                if let Some(at) = self.cluster.probe(instance, self.now) {
                    self.note(at + PROBE, Happening::At(number, ToFront::Probed(id, of)));
                }
            }
            Action::WakeAt(at) => front.wake = Moment::from_nanos(at.as_nanos()),
            Action::Compare(comparison) => {
                front.comparisons.compare(&comparison, seed);
                self.later(number, decode, ToFront::Compared(comparison.group));
            }
            Action::Judge(query, output) => {
                self.later(number, Duration::ZERO, ToFront::Judged(query, output))
            }
            Action::Check(pair) => {
                let agrees = front.comparisons.agree(pair, self.run.stand_in.agreement, seed);
                self.later(number, decode, ToFront::Checked(pair, agrees));
            }
            Action::Tell(id, order) => self.send(number, id, order),
            Action::Suspect(id, _) => self.tally.suspected(self.cluster.of(id)),
            Action::Release(job) => front.comparisons.release(job),
            // The tally measures these itself.
            Action::Ejected(..) | Action::Kept(..) | Action::Readmitted(_) | Action::Trace(..) => {}
        }
    }

    fn start(&mut self, number: u32, job: JobSpec, queries: &Rows) {
        let length = self.length(number, job, queries);
        let rows = queries.len();
        let front = &mut self.fronts[number as usize];
        let (rows, share) = match job.role {
            Role::Parity(group, _) => {
                (front.groups.get(&group).map_or(1, |coded| coded.rows), self.run.parity_share)
            }
            Role::Backup => (rows, self.run.backup_share),
            // The stand-in's cost accounts for its rows.
            Role::StandIn(_) => (1, self.run.stand_in.cost.of(rows)),
            Role::Deployed | Role::Copy => (rows, 1.0),
        };
        self.tally.started(job.role == Role::Deployed, share);
        let instance = self.cluster.of(job.instance);
        if self.witness.is_some() {
            let (given, ended) = (self.now, self.now);
            let arrived = queries.first().and_then(|query| front.queries.arrived(*query));
            front.held.insert(job.id, Execution { instance, role: job.role, rows, given, ended, arrived });
        }
        self.holds(number, job.id, instance);
        let ticket = Ticket { front: number, job: job.id };
        let work = Work { job: ticket, class: job.class, token: job.token, rows, share, length };
        if self.run.fleet.delay.is_zero() {
            self.given(job.instance, work);
        } else {
            self.note(self.now + self.run.fleet.delay, Happening::Given(job.instance, work));
        }
    }

    /// Returns the factor of a job's longest query; that of a parity is the longest of its group.
    fn length(&self, number: u32, job: JobSpec, queries: &Rows) -> f64 {
        if !self.cluster.follows_queries() {
            return 1.0;
        }
        let instance = self.cluster.of(job.instance);
        match job.role {
            Role::Parity(group, _) => {
                let coded = self.fronts[number as usize].groups.get(&group);
                let members = coded.map_or(&[][..], |coded| &coded.queries);
                self.cluster.longest(instance, members.iter().copied())
            }
            _ => self.cluster.longest(instance, queries.iter().map(|query| in_flight::number(*query))),
        }
    }

    /// Withdraws a job that its instance has not started; a running job continues.
    fn drop_waiting(&mut self, number: u32, job: JobId) {
        let waits = self.run.shape.slots > 1 || self.fronts.len() > 1;
        let instances = if waits { self.cluster.len() } else { 0 };
        let ticket = Ticket { front: number, job };
        if (0..instances).any(|instance| self.cluster.take_back(instance, ticket)) {
            self.fronts[number as usize].held.remove(&job);
            self.later(number, Duration::ZERO, ToFront::TakenBack(job));
        }
    }

    fn answered(&mut self, number: u32, id: QueryId, answer: Answer) {
        let front = &mut self.fronts[number as usize];
        let Some(query) = front.queries.remove(id) else { return };
        self.unanswered -= 1;
        let (outcome, by) = match answer {
            Answer::Exact { job, .. } => (Outcome::Exact, Some(job)),
            Answer::Hedged { job, .. } => (Outcome::Hedged, Some(job)),
            Answer::Backup { job, .. } => (Outcome::Backup, Some(job)),
            Answer::StandIn { job, .. } => (Outcome::StandIn, Some(job)),
            Answer::Reconstructed { .. } => (Outcome::Reconstructed, None),
            Answer::Default => (Outcome::Default, None),
            Answer::Rejected(_) => (Outcome::Failed, None),
        };
        let members = match answer {
            Answer::Reconstructed { group, .. } => front.groups.get(&group).map_or(0, |coded| coded.members),
            _ => 0,
        };
        // A stand-in's answer can be used long after its job ended.
        let kept = outcome == Outcome::StandIn && by.is_some_and(|job| front.comparisons.is_wrong(job));
        let wrong = kept || (by.is_some() && by == front.wrong);
        let latency = self.now.nanos_since(query.arrived);
        let in_flight::Query { number, arrived } = query;
        let counted = number.checked_sub(self.run.warm_up);
        if let Some(number) = counted {
            self.tally.ended(Ended { number, latency, outcome, wrong });
        }
        if let Some(witness) = &mut self.witness {
            let answered = Answered { number, arrived, latency, outcome, members, wrong };
            match counted {
                Some(_) => witness.answered(answered),
                None => witness.warmed_up(answered),
            }
        }
    }
}

fn time(moment: Moment) -> Time {
    Time::from_nanos(moment.as_nanos())
}
