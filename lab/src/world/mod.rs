//! A virtual world for the dispatcher: servers that work, straggle, hang and crash, clients that arrive, and time.
//!
//! The dispatcher decides, this world executes: it runs jobs on its servers by the service times and faults of
//! `parm_workload`, and jumps from event to event. A [`Plan`] describes a run; [`World`] is one in progress, which tests can step
//! through and disturb.
//!
//! At the same moment jobs end first, then the dispatcher looks at what is due, then queries arrive, so a query finds
//! an instance free that becomes free at that moment.

mod coded;
pub mod rivals;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use parm_dispatcher::{
    Action, Answer, CodingSettings, Dispatcher, End, Failure, InstanceKey, InstanceSpec, JobKey, ModelKey,
    ModelSettings, QueryKey, Reject, Shape, Submission, Time, Why,
};
use parm_workload::arrivals::{Arrivals, Times};
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Error, Faults, Pattern, Scenario, Schedule, State};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub use coded::Coded;

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of arrivals, service times and faults.
    pub seed: u64,
    /// Queries that arrive.
    pub queries: u64,
    /// The first queries, which are not counted.
    pub warm_up: u64,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// What goes wrong.
    pub faults: Faults,
    /// Service times of the model.
    pub service: Service,
    /// The servers.
    pub instances: u32,
    /// Jobs that a server holds at a time. One runs ([`World::lanes`]), the others wait there.
    pub slots: u16,
    /// The settings of the model.
    pub settings: ModelSettings,
    /// The settings of a second model, if the servers run one.
    pub second: Option<ModelSettings>,
    /// The time of the stand-in's run as a share of the model's, if there is one.
    pub stand_in_cost: Option<f64>,
    /// The groups, if queries are coded. A parity model takes the model's own time.
    pub coding: Option<CodingSettings>,
    /// The last so many servers run stand-ins and parities only, and the others none of these; if 0, each runs all.
    pub apart: u32,
    /// How long a query may wait for its answer.
    pub deadline: Duration,
}

impl Plan {
    /// So many queries a second, with a scenario's faults, for twelve servers of 20 ms.
    pub fn new(seed: u64, queries: u64, scenario: &Scenario, per_second: f64) -> Self {
        Self {
            seed,
            queries,
            warm_up: 0,
            arrivals: scenario.at(Pattern::Poisson, per_second),
            faults: scenario.faults.clone(),
            service: Service::default(),
            instances: 12,
            slots: 1,
            settings: ModelSettings::default(),
            second: None,
            stand_in_cost: None,
            coding: None,
            apart: 0,
            deadline: Duration::from_secs(10),
        }
    }
}

/// How batches treat queries of unequal lengths. A batch takes as long as its longest query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lengths {
    /// All share batches: the dispatcher knows no lengths.
    #[default]
    Mixed,
    /// Only equal lengths share a batch.
    Equal,
}

/// The size of a query with factor 1, about the tokens of a sentence.
const USUAL_SIZE: f64 = 16.0;

/// The reply of a query.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The query. Its payload is its number, counted from 0 in the order of arrival.
    pub query: Submission<u64>,
    /// When it arrived.
    pub arrived: Time,
    /// When it had its reply.
    pub at: Time,
    /// The reply. The output is the number of the query that the server saw; a wrong answer is another number.
    pub result: Result<Answer<u64>, Reject>,
    /// Members of the group of its last reconstruction, used or not; 0 if there was none.
    pub members: usize,
}

/// The time of a run by the number of its rows, in runs of the first model for one row.
pub type Cost = Box<dyn Fn(usize) -> f64>;

/// What passes between the dispatcher and its servers and clients.
#[derive(Clone, Debug)]
pub enum Event {
    /// A query arrived, from a client or from a coding group.
    Arrived(QueryKey, Submission<u64>),
    /// A reconstruction of its answer is ready.
    Offered(QueryKey),
    /// Its client left.
    Left(QueryKey),
    /// The dispatcher asks for this.
    Asks(Action<u64, u64>),
    /// A run ended.
    Ended(JobKey, End<u64>),
    /// A server joined.
    Joined(InstanceKey, InstanceSpec),
    /// A server has other models or slots.
    Serves(InstanceKey, InstanceSpec),
    /// A model has other settings.
    Configured(ModelKey, ModelSettings),
    /// A version of a model replaces the one before.
    Replaced(ModelKey, ModelKey, ModelSettings),
    /// A server is held, or gets jobs again.
    Held(InstanceKey, bool),
    /// A model at a server was taken out of service, because its answers are wrong.
    Distrusted(InstanceKey, ModelKey),
    /// A server is gone, with its jobs.
    Gone(InstanceKey),
}

/// A run in progress.
pub struct World {
    /// The dispatcher.
    pub dispatcher: Dispatcher<u64, u64>,
    /// The model that queries ask.
    pub model: ModelKey,
    /// Versions of it that were replaced.
    pub replaced: Vec<ModelKey>,
    /// The current time.
    pub now: Time,
    /// Replies that nobody has taken yet.
    pub replies: Vec<Reply>,
    /// Queries without a reply, and when they arrived.
    pub open: BTreeMap<QueryKey, (Submission<u64>, Time)>,
    /// What the next query that arrives by itself is like, but for its payload and its deadline.
    pub next: Submission<u64>,
    /// What happened since somebody emptied it.
    pub log: Vec<Event>,
    /// Servers that fail each job as soon as it comes.
    pub refusing: BTreeMap<usize, Failure>,
    /// Whether servers stop a cancelled run; otherwise it goes on to its end.
    pub cancels: bool,
    /// Jobs that a server runs side by side.
    pub lanes: usize,
    /// Whether the dispatcher learns how many jobs a server that joins runs best at a time.
    pub learns: bool,
    /// The coding groups, if queries are coded.
    pub coded: Option<Coded>,
    /// The stand-in.
    pub stand_in: Option<ModelKey>,
    /// Whether the dispatcher knows how long the queries are that arrive by themselves.
    pub lengths: Lengths,
    /// How long other models than the first one take.
    pub costs: BTreeMap<ModelKey, Cost>,
    /// Nanoseconds that servers worked.
    pub busy: u64,
    /// A second model that the same servers run, with queries of its own.
    pub second: Option<ModelKey>,
    apart: u32,
    machines: Machines,
    slots: u16,
    /// The name of each server that is there, and its jobs.
    servers: Vec<(Option<InstanceKey>, Server<Work>)>,
    events: BinaryHeap<Reverse<(Time, u64, Due)>>,
    noted: u64,
    arrivals: Times,
    next_arrival: Time,
    left: u64,
    arrived: u64,
    deadline: Duration,
}

/// A job at a server.
#[derive(Debug)]
struct Work {
    job: JobKey,
    model: ModelKey,
    /// The numbers of its queries.
    rows: SmallVec<[u64; 1]>,
    /// How many times as long it takes for its longest query.
    length: f64,
    /// When it was sent, and once it runs, when it began.
    since: Time,
    /// Whether its answer is wrong.
    wrong: bool,
}

impl Work {
    /// Each output is the number of the query that the server saw, or another one if it is wrong.
    fn outputs(self) -> End<u64> {
        let wrong = self.wrong;
        End::Answered(
            self.rows.into_iter().map(|number| Some(if wrong { !number } else { number })).collect(),
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ends { server: usize, job: JobKey },
    Codes { number: u64 },
    Crashes { server: usize },
    Restarts { server: usize },
}

impl World {
    /// A world at its beginning, with all servers up.
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        let machines = Machines::new(plan)?;
        let mut dispatcher = Dispatcher::default();
        let of_stand_in = ModelSettings { max_rows: plan.settings.max_rows, ..ModelSettings::default() };
        let stand_in = plan.stand_in_cost.map(|_| dispatcher.add_model(of_stand_in));
        let settings = ModelSettings { stand_in, ..plan.settings };
        let model = dispatcher.add_model(settings);
        let second = plan.second.map(|settings| dispatcher.add_model(settings));
        let coded = plan.coding.as_ref().map(|coding| Coded::new(coding, plan.apart > 0, &mut dispatcher));
        let costs = stand_in.zip(plan.stand_in_cost).map(|(model, share)| {
            let service = plan.service.clone();
            (model, Box::new(move |rows| share * service.rows(rows)) as Cost)
        });
        let mut world = Self {
            dispatcher,
            model,
            replaced: Vec::new(),
            now: Time::ZERO,
            replies: Vec::new(),
            open: BTreeMap::new(),
            next: Submission::new(model, 0, Time::ZERO),
            log: Vec::new(),
            refusing: BTreeMap::new(),
            cancels: false,
            lanes: 1,
            learns: false,
            coded,
            stand_in,
            lengths: Lengths::Mixed,
            costs: costs.into_iter().collect(),
            busy: 0,
            second,
            apart: plan.apart,
            machines,
            slots: plan.slots,
            servers: (0..plan.instances).map(|_| Default::default()).collect(),
            events: BinaryHeap::new(),
            noted: 0,
            arrivals: plan.arrivals.schedule(plan.seed)?,
            next_arrival: Time::MAX,
            left: plan.queries,
            arrived: 0,
            deadline: plan.deadline,
        };
        world.draw_arrival();
        for server in 0..world.servers.len() {
            world.join(server, plan.slots);
        }
        Ok(world)
    }

    /// Passes on to the next event. False if all queries have their reply and all groups have ended.
    pub fn advance(&mut self) -> bool {
        let group = self.coded.as_ref().and_then(|coded| coded.coder.next_tick());
        let is_over = self.next_arrival == Time::MAX && self.open.is_empty() && group.is_none();
        if !is_over {
            self.step();
        }
        !is_over
    }

    /// The same, over or not.
    pub fn step(&mut self) {
        let (event, look) = self.next_events();
        if event <= look && event <= self.next_arrival {
            let Some(Reverse((at, _, event))) = self.events.pop() else { return };
            self.now = self.now.max(at);
            self.happens(event);
        } else if look <= self.next_arrival {
            self.now = self.now.max(look);
            self.dispatcher.tick(self.now);
            if let Some(coded) = &mut self.coded {
                coded.coder.tick(self.now);
            }
        } else {
            self.now = self.now.max(self.next_arrival);
            self.draw_arrival();
            let (deadline, shape) = (self.now + self.deadline, self.next_shape());
            self.submit(Submission { deadline, shape, ..self.next.clone() });
        }
        self.execute();
    }

    /// What the dispatcher is told of the length of the next query.
    fn next_shape(&self) -> Shape {
        let schedule = &self.machines.schedule;
        if self.lengths == Lengths::Mixed || !schedule.follows_queries() {
            return self.next.shape;
        }
        // A fault may leave some servers out.
        let factors = (0..self.servers.len()).map(|server| schedule.length(server as u32, self.arrived));
        let size = (factors.fold(0.0, f64::max) * USUAL_SIZE).ceil().max(1.0) as u32;
        Shape { name: size, size }
    }

    /// When the next event is, apart from an arrival.
    pub fn next_event(&self) -> Time {
        let (event, look) = self.next_events();
        event.min(look)
    }

    /// When a server or a coder is next, and when the dispatcher looks next.
    fn next_events(&self) -> (Time, Time) {
        let event = self.events.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
        let group = self.coded.as_ref().and_then(|coded| coded.coder.next_tick());
        let looks = [self.dispatcher.next_tick(), group];
        (event, looks.into_iter().flatten().min().unwrap_or(Time::MAX))
    }

    /// A query arrives. Its payload becomes its number.
    pub fn submit(&mut self, query: Submission<u64>) {
        let query = Submission { payload: self.arrived, ..query };
        let key = self.dispatcher.submit(self.now, query.clone());
        self.log.push(Event::Arrived(key, query.clone()));
        self.open.insert(key, (query, self.now));
        self.arrived += 1;
        self.execute();
    }

    /// A query's client leaves.
    pub fn cancel(&mut self, query: QueryKey) {
        self.open.remove(&query);
        self.log.push(Event::Left(query));
        if let Some(coded) = &mut self.coded {
            coded.coder.cancelled(self.now, query);
            coded.forget(query);
        }
        self.dispatcher.cancel(self.now, query);
        self.execute();
    }

    /// A reconstruction of a query's answer is ready, whoever made it.
    pub fn offer(&mut self, query: QueryKey) {
        if let Some((of, _)) = self.open.get(&query) {
            self.log.push(Event::Offered(query));
            self.dispatcher.offer(self.now, query, of.payload);
        }
        self.execute();
    }

    /// A server leaves with all its jobs.
    pub fn leave(&mut self, server: usize) {
        let (key, gone) = std::mem::take(&mut self.servers[server]);
        self.busy += gone.running.iter().map(|work| nanos(self.now, work.since)).sum::<u64>();
        if let Some(key) = key {
            self.log.push(Event::Gone(key));
            self.dispatcher.leave(self.now, key);
        }
        self.execute();
    }

    /// A server joins, if it is not there.
    pub fn join(&mut self, server: usize, slots: u16) {
        if self.servers[server].0.is_some() {
            return;
        }
        let spec = InstanceSpec { learns: self.learns, ..InstanceSpec::new(self.models(server), slots) };
        let key = self.dispatcher.join(self.now, &spec);
        self.servers[server].0 = Some(key);
        self.log.push(Event::Joined(key, spec));
        if let Some((from, _)) = self.machines.schedule.next_crash(server as u32, self.now) {
            self.schedule_at(from, Due::Crashes { server });
        }
        self.execute();
    }

    /// The models of a server.
    pub fn models(&self, server: usize) -> Vec<ModelKey> {
        let is_apart = server + self.apart as usize >= self.servers.len();
        let mut models = Vec::new();
        if !is_apart {
            models.push(self.model);
            models.extend(self.second);
        }
        if is_apart || self.apart == 0 {
            models.extend(self.stand_in);
            models.extend(self.coded.iter().flat_map(Coded::models));
        }
        models
    }

    /// A server has other models or slots.
    pub fn serve(&mut self, server: usize, models: Vec<ModelKey>, slots: u16) {
        if let Some(key) = self.servers[server].0 {
            let spec = InstanceSpec { learns: self.learns, ..InstanceSpec::new(models, slots) };
            self.log.push(Event::Serves(key, spec.clone()));
            self.dispatcher.serve(self.now, key, &spec);
        }
        self.execute();
    }

    /// An operator holds a server, or no longer.
    pub fn hold(&mut self, server: usize, held: bool) {
        if let Some(key) = self.servers[server].0 {
            self.log.push(Event::Held(key, held));
            self.dispatcher.hold(self.now, key, held);
        }
        self.execute();
    }

    /// Somebody found that the model's answers of a server are wrong.
    pub fn distrust(&mut self, server: usize) {
        if let Some(key) = self.servers[server].0
            && self.dispatcher.distrust(self.now, key, self.model)
        {
            self.log.push(Event::Distrusted(key, self.model));
        }
        self.execute();
    }

    /// The model has other settings.
    pub fn configure(&mut self, settings: ModelSettings) {
        let settings = ModelSettings { stand_in: self.stand_in, ..settings };
        self.log.push(Event::Configured(self.model, settings));
        self.dispatcher.configure(self.now, self.model, settings);
        self.execute();
    }

    /// A new version of the model replaces it at once.
    pub fn replace(&mut self, settings: ModelSettings) {
        let settings = ModelSettings { stand_in: self.stand_in, ..settings };
        let new = self.dispatcher.add_version(settings, self.model);
        let old = std::mem::replace(&mut self.model, new);
        self.log.push(Event::Replaced(old, new, settings));
        for server in 0..self.servers.len() {
            self.serve(server, self.models(server), self.slots);
        }
        self.dispatcher.remove_model(self.now, old);
        self.replaced.push(old);
        self.next.model = self.model;
        self.execute();
    }

    /// The oldest run at a server ends early, with what `end` says for the numbers of its queries. One that began in this moment
    /// goes on, because a run that takes no time has no speed.
    pub fn stop(&mut self, server: usize, end: impl FnOnce(&[u64]) -> End<u64>) {
        let oldest = self.servers[server].1.running.first().filter(|work| work.since < self.now);
        if let Some(work) = oldest.map(|work| work.job).and_then(|job| self.take(server, job)) {
            let end = end(&work.rows);
            self.end(work.job, end);
            self.proceed(server);
        }
        self.execute();
    }

    /// Takes a job that runs from its server.
    fn take(&mut self, server: usize, job: JobKey) -> Option<Work> {
        let work = self.servers[server].1.stop(|work| work.job == job)?;
        self.busy += nanos(self.now, work.since);
        Some(work)
    }

    fn end(&mut self, job: JobKey, end: End<u64>) {
        self.log.push(Event::Ended(job, end.clone()));
        self.dispatcher.ended(self.now, job, end);
    }

    fn draw_arrival(&mut self) {
        let next = if self.left == 0 { None } else { self.arrivals.next() };
        self.left = self.left.saturating_sub(1);
        self.next_arrival = next.map_or(Time::MAX, |at| Time::ZERO + at);
    }

    fn schedule_at(&mut self, at: Time, event: Due) {
        self.noted += 1;
        self.events.push(Reverse((at, self.noted, event)));
    }

    fn happens(&mut self, event: Due) {
        match event {
            Due::Ends { server, job } => {
                if let Some(work) = self.take(server, job) {
                    self.end(job, work.outputs());
                    self.proceed(server);
                }
            }
            Due::Codes { number } => self.code_later(number),
            Due::Crashes { server } => {
                let until = self.machines.schedule.condition(server as u32, self.now).until;
                self.leave(server);
                self.schedule_at(until, Due::Restarts { server });
            }
            Due::Restarts { server } => self.join(server, self.slots),
        }
    }

    /// Executes the actions of the dispatcher and of the coder.
    fn execute(&mut self) {
        let actions: Vec<_> = self.dispatcher.actions().collect();
        // All of them were asked for before what the first one leads to.
        for action in &actions {
            self.log.push(Event::Asks(action.clone()));
            if let (Action::Run { rows, .. }, Some(coded)) = (action, &mut self.coded) {
                rows.iter().for_each(|row| coded.coder.sent(row.query));
            }
        }
        for action in actions {
            match action {
                Action::Run { job, instance, model, rows, why } => {
                    if model == self.model && why == Why::First {
                        self.group(instance, &rows);
                    }
                    let Some(server) = self.server(instance) else { continue };
                    if let Some(failure) = self.refusing.get(&server).copied() {
                        self.end(job, End::Failed(failure));
                        self.execute();
                        continue;
                    }
                    let members = self.coded.as_ref().and_then(|coded| coded.members.get(&rows[0].query));
                    let rows: SmallVec<[u64; 1]> = rows.into_iter().map(|row| row.payload).collect();
                    let queries = members.map_or(&rows[..], |members| members);
                    let length = self.machines.schedule.longest(server as u32, queries.iter().copied());
                    let work = Work { job, model, rows, length, since: self.now, wrong: false };
                    self.servers[server].1.waiting.push_back(work);
                    self.proceed(server);
                }
                Action::Cancel { job, instance, .. } => {
                    let Some(server) = self.server(instance) else { continue };
                    let was_waiting = self.servers[server].1.withdraw(|work| work.job == job).is_some();
                    if was_waiting || self.cancels && self.take(server, job).is_some() {
                        self.end(job, End::Cancelled);
                        self.proceed(server);
                        self.execute();
                    }
                }
                // One frontend needs no grants, and what it tells is in the log.
                Action::Ask { .. } | Action::Return { .. } | Action::Tell { .. } => {}
                Action::Probe { instance } => {
                    let Some(server) = self.server(instance) else { continue };
                    let state = self.machines.schedule.condition(server as u32, self.now).state;
                    if state == State::Works && !self.refusing.contains_key(&server) {
                        self.dispatcher.probed(self.now, instance);
                        self.execute();
                    }
                }
                Action::Reply { query, result, .. } => {
                    let mut members = 0;
                    if let Some(coded) = &mut self.coded {
                        members = coded.forget(query);
                        if coded.coder.replied(self.now, query, &result) {
                            continue; // a parity's
                        }
                    }
                    let Some((query, arrived)) = self.open.remove(&query) else { continue };
                    self.replies.push(Reply { query, arrived, at: self.now, result, members });
                }
            }
        }
        self.code();
    }

    /// The place of a server that is there.
    pub fn server(&self, key: InstanceKey) -> Option<usize> {
        self.servers.iter().position(|(own, _)| *own == Some(key))
    }

    /// Starts the next job of a server that has room for it.
    fn proceed(&mut self, server: usize) {
        let here = &mut self.servers[server].1;
        let Some(mut work) = here.next(self.lanes) else { return };
        work.since = self.now;
        let rows = work.rows.len();
        let cost = self.costs.get(&work.model).map_or_else(|| self.machines.rows(rows), |cost| cost(rows));
        let ending = self.machines.run(server, self.now, cost * work.length);
        let job = work.job;
        work.wrong = matches!(ending, Ending::Answered { wrong: true, .. });
        here.running.push(work);
        if let Ending::Answered { at, .. } = ending {
            self.schedule_at(at, Due::Ends { server, job });
        }
    }
}

fn nanos(now: Time, since: Time) -> u64 {
    now.since(since).as_nanos() as u64
}

/// A server with a queue: so many jobs run at a time, the others wait in the order of arrival.
#[derive(Debug)]
pub(crate) struct Server<J> {
    pub(crate) running: Vec<J>,
    pub(crate) waiting: VecDeque<J>,
}

impl<J> Default for Server<J> {
    fn default() -> Self {
        Self { running: Vec::new(), waiting: VecDeque::new() }
    }
}

impl<J> Server<J> {
    pub(crate) fn in_flight(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    /// Takes out the job that has waited longest, if fewer than so many run.
    pub(crate) fn next(&mut self, lanes: usize) -> Option<J> {
        if self.running.len() < lanes { self.waiting.pop_front() } else { None }
    }

    pub(crate) fn withdraw(&mut self, is: impl Fn(&J) -> bool) -> Option<J> {
        let at = self.waiting.iter().position(is)?;
        self.waiting.remove(at)
    }

    pub(crate) fn stop(&mut self, is: impl Fn(&J) -> bool) -> Option<J> {
        let at = self.running.iter().position(is)?;
        Some(self.running.remove(at))
    }
}

/// How long runs take at the servers of a plan, and what goes wrong there.
pub(crate) struct Machines {
    pub(crate) schedule: Schedule,
    service: Service,
    seed: u64,
}

impl Machines {
    pub(crate) fn new(plan: &Plan) -> Result<Self, Error> {
        plan.service.check()?;
        let schedule = Schedule::new(&plan.faults, plan.seed, plan.instances)?;
        Ok(Self { schedule, service: plan.service.clone(), seed: plan.seed })
    }

    /// The time of so many rows in runs of one row.
    pub(crate) fn rows(&self, rows: usize) -> f64 {
        self.service.rows(rows)
    }

    /// How a run ends that begins now and takes so many times as long as one row does.
    pub(crate) fn run(&mut self, server: usize, now: Time, times: f64) -> Ending {
        let instance = server as u32;
        let nanos = self.service.nanos(1, service::Run { seed: self.seed, instance, start: now });
        self.schedule.forget(instance, now);
        self.schedule.run(instance, now, times * nanos)
    }
}
