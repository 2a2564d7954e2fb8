//! The simulation: clients, the network, servers with queues, and time.
//!
//! At the same moment runs and messages come first, then what frontends planned, then queries that arrive, as in
//! [`World`](crate::world::World). A query of a closed load arrives when another one ends. A run on a server that crashes never
//! ends, so experiments allow no crashes here. A hung server still answers probes, as one whose engine is frozen
//! does; a server that is cut off does not.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use parm_dispatcher::{ModelSettings, Time};
use parm_grants::{Granter, Order, Told as Grant};
use parm_settings::Cost;
use parm_workload::arrivals::Times;
use parm_workload::{Ending, Error, Outcome, Random, State};
use smallvec::SmallVec;

use super::parm::Parm;
use super::pusher::{Hedge, Pusher};
use super::rules::Latencies;
use super::{Probe, Rival, Simulated, Told};
use crate::world::{Machines, Plan, Server};

/// A run of a rival, or of parm.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The arrivals, the servers, what goes wrong, and the settings of parm. Coding, second models and servers apart are for
    /// [`World`](crate::world::World) only.
    pub plan: Plan,
    /// The rival; without one, parm.
    pub rival: Option<Rival>,
    /// The settings of parm's stand-in, and its cost.
    pub stand_in: (ModelSettings, Cost),
    /// What is between clients and servers.
    pub simulated: Simulated,
    /// Clients or frontends; each gets queries at random.
    pub clients: u32,
    /// Whether servers grant their room to parm's frontends; otherwise each frontend uses what it observes.
    pub grants: bool,
}

/// What became of the queries.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each query, in the order of arrival.
    pub queries: Vec<Ended>,
    /// The first queries, which are not counted.
    pub warm_up: usize,
    /// Runs that began as the first one of their query, in runs of one row.
    pub needed: f64,
    /// Other runs that began.
    pub extra: f64,
    /// Nanoseconds that servers worked.
    pub busy: u64,
    /// The time at the end.
    pub end: Time,
}

/// A query that has its reply.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// When it arrived.
    pub arrived: Time,
    /// Nanoseconds until its reply; at least the deadline if that is no answer.
    pub latency: u64,
    /// How it ended.
    pub outcome: Outcome,
}

impl Report {
    /// The queries that count.
    pub fn counted(&self) -> &[Ended] {
        &self.queries[self.warm_up.min(self.queries.len())..]
    }

    /// A quantile of the latencies, in milliseconds.
    pub fn millis(&self, quantile: f64) -> f64 {
        let mut latencies: Vec<u64> = self.counted().iter().map(|ended| ended.latency).collect();
        latencies.sort_unstable();
        let at = (quantile * latencies.len().saturating_sub(1) as f64).round() as usize;
        latencies.get(at).map_or(0.0, |nanos| *nanos as f64 / 1e6)
    }
}

/// One client or frontend. It replies to each query by its deadline.
pub(super) trait Frontend {
    fn arrives(&mut self, query: u64, deadline: Time, wire: &mut Wire<'_>);
    fn ended(&mut self, end: End, wire: &mut Wire<'_>);
    fn probed(&mut self, _: Probe) {}
    /// A server tells of its room.
    fn granted(&mut self, _server: usize, _: Grant, _: &mut Wire<'_>) {}
    /// A moment that it asked for has come.
    fn wakes(&mut self, token: u64, wire: &mut Wire<'_>);
}

/// The end of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) job: u64,
    /// What came with the answer; `None` if the server gave it up because it was cancelled.
    pub(super) told: Option<Told>,
}

/// What a frontend does.
pub(super) struct Wire<'a> {
    pub(super) now: Time,
    pub(super) draw: &'a mut Random,
    /// When a message that is sent now is there.
    there: Time,
    client: u32,
    jobs: &'a mut Vec<Job>,
    events: &'a mut Events,
}

impl Wire<'_> {
    /// Sends queries to a server; the run takes so many times as long as that of one query. Returns the job's name.
    pub(super) fn send(&mut self, queries: SmallVec<[u64; 1]>, server: usize, times: f64) -> u64 {
        let (client, unknown) = (self.client, Time::ZERO);
        let (met, granted, received, began) = (0, false, unknown, unknown);
        self.jobs.push(Job { queries, client, server, times, granted, met, received, began });
        let job = self.jobs.len() as u64 - 1;
        self.events.note(self.there, Class::Message, move |all| all.receive(job));
        job
    }

    /// Says that nobody needs a job any more.
    pub(super) fn cancel(&mut self, job: u64) {
        self.events.note(self.there, Class::Message, move |all| all.withdraw(job));
    }

    /// Answers a query, or gives it up.
    pub(super) fn reply(&mut self, query: u64, outcome: Outcome) {
        self.events.note(self.now, Class::Message, move |all| all.replied(query, outcome));
    }

    /// Asks a server how it is.
    pub(super) fn probe(&mut self, server: usize) {
        let client = self.client;
        self.events.note(self.there, Class::Message, move |all| all.probed(client, server));
    }

    /// Asks a server for room, or returns a grant.
    pub(super) fn order(&mut self, server: usize, order: Order) {
        let client = self.client;
        self.events.note(self.there, Class::Message, move |all| all.ordered(client, server, order));
    }

    /// Asks to be woken.
    pub(super) fn wake(&mut self, at: Time, token: u64) {
        let client = self.client;
        self.events.note(at.max(self.now), Class::Plan, move |all| {
            all.tell(client, |frontend, wire| frontend.wakes(token, wire));
        });
    }
}

struct Job {
    queries: SmallVec<[u64; 1]>,
    client: u32,
    server: usize,
    times: f64,
    /// Whether it uses a grant.
    granted: bool,
    /// Requests that it met at the server.
    met: usize,
    received: Time,
    began: Time,
}

struct Query {
    arrived: Time,
    /// Whether a run began for it.
    began: bool,
    ended: Option<Ended>,
}

/// What comes earlier at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Message,
    Plan,
    /// The next query of a closed load.
    Arrival,
}

type Event = Box<dyn FnOnce(&mut Simulation<'_>)>;

/// What comes, in order.
#[derive(Default)]
struct Events {
    due: BTreeMap<(Time, Class, u64), Event>,
    noted: u64,
}

impl Events {
    fn note(&mut self, at: Time, class: Class, what: impl FnOnce(&mut Simulation<'_>) + 'static) {
        self.noted += 1;
        self.due.insert((at, class, self.noted), Box::new(what));
    }
}

impl Setup {
    /// parm, with one client and messages that take no time.
    pub fn new(plan: Plan) -> Self {
        let of_stand_in = ModelSettings { max_rows: plan.settings.max_rows, ..ModelSettings::default() };
        let stand_in = (of_stand_in, Cost::linear(plan.stand_in_cost.unwrap_or_default()));
        Self { plan, rival: None, stand_in, simulated: Simulated::default(), clients: 1, grants: false }
    }

    /// Runs until each query has its reply.
    pub fn run(&self) -> Result<Report, Error> {
        let mut simulation = Simulation::new(self)?;
        while simulation.advance() {}
        Ok(simulation.report())
    }
}

struct Simulation<'a> {
    setup: &'a Setup,
    now: Time,
    draw: Random,
    machines: Machines,
    servers: Vec<Server<u64>>,
    /// What each server tells probes.
    latencies: Vec<Latencies>,
    /// Who may start jobs at each server, and when it looks at its grants; empty without grants.
    granters: Vec<(Granter<u32>, Time)>,
    frontends: Vec<Box<dyn Frontend>>,
    jobs: Vec<Job>,
    events: Events,
    arrivals: Option<Times>,
    next_arrival: Time,
    /// Queries that have not arrived.
    left: u64,
    queries: Vec<Query>,
    open: usize,
    needed: f64,
    extra: f64,
    busy: u64,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup) -> Result<Self, Error> {
        let plan = &setup.plan;
        let servers = plan.instances as usize;
        let mut draw = Random::of(plan.seed, [RIVALS]);
        let frontends = (0..setup.clients).map(|_| -> Box<dyn Frontend> {
            let Some(Rival { placing, hedge }) = setup.rival else { return Box::new(Parm::new(setup)) };
            let rule = placing.rule(servers, setup.clients as usize, &mut draw);
            Box::new(Pusher::new(rule, hedge.map(Hedge::new), servers))
        });
        let frontends = frontends.collect();
        let grants = setup.grants && setup.rival.is_none();
        let granter = |_| {
            let mut granter = Granter::new(plan.slots);
            (0..setup.clients).for_each(|client| granter.join(client));
            (granter, Time::MAX)
        };
        let closed = setup.simulated.closed.map_or(0, NonZeroU32::get);
        let arrivals = (closed == 0).then(|| plan.arrivals.schedule(plan.seed)).transpose()?;
        let mut simulation = Self {
            setup,
            now: Time::ZERO,
            draw,
            machines: Machines::new(plan)?,
            servers: (0..servers).map(|_| Server::default()).collect(),
            latencies: (0..servers).map(|_| Latencies::default()).collect(),
            granters: if grants { (0..servers).map(granter).collect() } else { Vec::new() },
            frontends,
            jobs: Vec::new(),
            events: Events::default(),
            arrivals,
            next_arrival: Time::MAX,
            left: plan.queries,
            queries: Vec::with_capacity(plan.queries as usize),
            open: 0,
            needed: 0.0,
            extra: 0.0,
            busy: 0,
        };
        (0..simulation.granters.len()).for_each(|server| simulation.grant(server));
        simulation.draw_arrival();
        (0..closed).for_each(|_| simulation.arrive());
        Ok(simulation)
    }

    /// Passes on to the next event. False if all queries are over.
    fn advance(&mut self) -> bool {
        if self.open == 0 && self.next_arrival == Time::MAX && (self.left == 0 || self.arrivals.is_some()) {
            return false;
        }
        let event = self.events.due.first_key_value().map_or(Time::MAX, |((at, ..), _)| *at);
        if event <= self.next_arrival {
            let Some(((at, ..), event)) = self.events.due.pop_first() else { return false };
            self.now = at;
            event(self);
        } else {
            self.now = self.next_arrival;
            self.draw_arrival();
            self.arrive();
        }
        true
    }

    fn draw_arrival(&mut self) {
        let next = self.arrivals.as_mut().filter(|_| self.left > 0).and_then(Iterator::next);
        self.next_arrival = next.map_or(Time::MAX, |at| Time::ZERO + at);
    }

    fn arrive(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.open += 1;
        let client = self.draw.below(self.frontends.len()) as u32;
        let query = self.queries.len() as u64;
        self.queries.push(Query { arrived: self.now, began: false, ended: None });
        let deadline = self.now + self.setup.plan.deadline;
        self.tell(client, |frontend, wire| frontend.arrives(query, deadline, wire));
    }

    /// Lets a frontend react.
    fn tell(&mut self, client: u32, what: impl FnOnce(&mut dyn Frontend, &mut Wire<'_>)) {
        let mut wire = Wire {
            now: self.now,
            draw: &mut self.draw,
            there: self.now + self.setup.simulated.message,
            client,
            jobs: &mut self.jobs,
            events: &mut self.events,
        };
        what(&mut *self.frontends[client as usize], &mut wire);
    }

    /// A message to a client arrives after the network's time.
    fn send(&mut self, message: impl FnOnce(&mut Simulation<'_>) + 'static) {
        self.events.note(self.now + self.setup.simulated.message, Class::Message, message);
    }

    /// A client learns that a job is over.
    fn answer(&mut self, client: u32, end: End) {
        self.send(move |all| all.tell(client, |frontend, wire| frontend.ended(end, wire)));
    }

    fn replied(&mut self, query: u64, outcome: Outcome) {
        let Query { arrived, ended, .. } = &mut self.queries[query as usize];
        if ended.is_some() {
            return;
        }
        let late = if outcome == Outcome::Failed { self.setup.plan.deadline } else { Duration::ZERO };
        let latency = self.now.since(*arrived).max(late).as_nanos() as u64;
        *ended = Some(Ended { arrived: *arrived, latency, outcome });
        self.open -= 1;
        if self.setup.simulated.closed.is_some() {
            self.events.note(self.now, Class::Arrival, |all| all.arrive());
        }
    }

    /// A client asks how a server is.
    fn probed(&mut self, client: u32, server: usize) {
        let state = self.machines.schedule.condition(server as u32, self.now).state;
        if matches!(state, State::Works | State::Hangs) {
            let in_flight = self.servers[server].in_flight() as u32;
            let latency = self.latencies[server].at(in_flight);
            let probe = Probe { server, at: self.now + self.setup.simulated.message, in_flight, latency };
            self.send(move |all| all.frontends[client as usize].probed(probe));
        }
    }

    /// A client asks a server for room, or returns a grant.
    fn ordered(&mut self, client: u32, server: usize, order: Order) {
        if let Some((granter, _)) = self.granters.get_mut(server) {
            granter.hears(since_start(self.now), client, order);
            self.grant(server);
        }
    }

    /// Grants may be recalled or void.
    fn looks(&mut self, server: usize) {
        let (granter, looks) = &mut self.granters[server];
        *looks = Time::MAX;
        granter.settle(since_start(self.now));
        self.grant(server);
    }

    /// Sends what a server tells of its room, and notes when it looks again.
    fn grant(&mut self, server: usize) {
        let (granter, looks) = &mut self.granters[server];
        let there = self.now + self.setup.simulated.message;
        for (client, grant) in granter.told() {
            self.events.note(there, Class::Message, move |all| {
                all.tell(client, |frontend, wire| frontend.granted(server, grant, wire));
            });
        }
        if let Some(at) = granter.next_look().map(|at| Time::ZERO + at).filter(|at| at < looks) {
            *looks = at;
            self.events.note(at.max(self.now), Class::Plan, move |all| all.looks(server));
        }
    }

    /// A job comes to its server.
    fn receive(&mut self, job: u64) {
        let of = &mut self.jobs[job as usize];
        let here = &mut self.servers[of.server];
        (of.met, of.received) = (here.in_flight(), self.now);
        of.granted = self.granters.get_mut(of.server).is_some_and(|(granter, _)| granter.comes(of.client));
        if of.granted {
            here.waiting.push_front(job);
        } else {
            here.waiting.push_back(job);
        }
        let server = of.server;
        self.proceed(server);
    }

    /// Nobody needs a job any more.
    fn withdraw(&mut self, job: u64) {
        let Job { server, granted, client, .. } = self.jobs[job as usize];
        let here = &mut self.servers[server];
        if here.withdraw(|own| *own == job).is_some() {
            if granted {
                self.frees(server, None);
            }
        } else if self.setup.simulated.cancels && here.stop(|own| *own == job).is_some() {
            self.busy += self.worked(job);
            self.frees(server, Some(client));
        } else {
            return;
        }
        self.answer(client, End { job, told: None });
        self.proceed(server);
    }

    fn end(&mut self, job: u64) {
        let of = &self.jobs[job as usize];
        let (server, client) = (of.server, of.client);
        if self.servers[server].stop(|own| *own == job).is_none() {
            return;
        }
        self.latencies[server].add(of.met as u32, self.now.since(of.received).as_nanos() as u64);
        let run = self.worked(job);
        self.busy += run;
        let told = Some(Told { run, in_flight: self.servers[server].in_flight() as u32 });
        self.frees(server, Some(client));
        self.answer(client, End { job, told });
        self.proceed(server);
    }

    /// A job is over, so its server may grant its room. The grant of one that ran may stay with its client.
    fn frees(&mut self, server: usize, client: Option<u32>) {
        if let Some((granter, _)) = self.granters.get_mut(server) {
            granter.end(since_start(self.now), client);
            self.grant(server);
        }
    }

    /// Starts runs while a server has idle lanes.
    fn proceed(&mut self, server: usize) {
        let lanes = self.setup.simulated.lanes.get().into();
        while let Some(job) = self.servers[server].next(lanes) {
            self.servers[server].running.push(job);
            let of = &mut self.jobs[job as usize];
            if let Some((granter, _)) = self.granters.get_mut(server).filter(|_| !of.granted) {
                granter.begin();
            }
            of.began = self.now;
            let each = of.times / of.queries.len() as f64;
            for query in &of.queries {
                let began = std::mem::replace(&mut self.queries[*query as usize].began, true);
                *if began { &mut self.extra } else { &mut self.needed } += each;
            }
            let length = self.machines.schedule.longest(server as u32, of.queries.iter().copied());
            if let Ending::Answered { at, .. } = self.machines.run(server, self.now, of.times * length) {
                self.events.note(at, Class::Message, move |all| all.end(job));
            }
        }
    }

    /// Nanoseconds since a job's run began.
    fn worked(&self, job: u64) -> u64 {
        self.now.since(self.jobs[job as usize].began).as_nanos() as u64
    }

    fn report(self) -> Report {
        Report {
            queries: self.queries.into_iter().filter_map(|query| query.ended).collect(),
            warm_up: self.setup.plan.warm_up as usize,
            needed: self.needed,
            extra: self.extra,
            busy: self.busy,
            end: self.now,
        }
    }
}

/// Separates the draws of rivals from those of faults.
const RIVALS: u64 = 0x0021_7A15;

/// The time of grants.
fn since_start(at: Time) -> Duration {
    at.since(Time::ZERO)
}
