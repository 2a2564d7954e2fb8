//! The simulation: clients, the network, servers with queues, and time.
//!
//! At the same moment runs and messages come first, then what frontends planned, then queries that arrive, as in
//! [`World`](crate::World). A query of a closed load arrives when another one ends. A run on a server that crashes never
//! ends, so crashes are no faults for this simulation. A hung server still answers probes, as one whose engine is frozen
//! does; a server that is cut off does not.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use parm_dispatcher::{BudgetSettings, Time};
use parm_workload::arrivals::{Arrivals, Times};
use parm_workload::clock::Moment;
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Error, Faults, Random, Schedule, State};

use super::hedge::Hedge;
use super::parm::Parm;
use super::pusher::Pusher;
use super::server::Server;
use super::{Contender, Probe, Told};

/// A run of a contender.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of arrivals, service times, faults and of what rivals draw.
    pub seed: u64,
    /// Queries that arrive.
    pub queries: u64,
    /// The first queries, which are not counted.
    pub warm_up: u64,
    /// When queries arrive.
    pub load: Load,
    /// What goes wrong.
    pub faults: Faults,
    /// Service times of the model.
    pub service: Service,
    /// The servers.
    pub servers: u32,
    /// Runs of a server at a time.
    pub lanes: u16,
    /// parm's slots at a server: with more than `lanes`, some of its queries wait there too.
    pub slots: u16,
    /// Clients or frontends; each gets queries at random.
    pub clients: u32,
    /// The time of a message from a client to a server, and back.
    pub network: Duration,
    /// How long a query may wait for its answer.
    pub deadline: Duration,
    /// Whether servers stop a cancelled run; otherwise it goes on to its end.
    pub cancels: bool,
    /// parm's budget of copies.
    pub hedges: BudgetSettings,
    /// The time of a stand-in's run as a share of the model's.
    pub stand_in_cost: f64,
}

/// When queries arrive.
#[derive(Clone, Debug)]
pub enum Load {
    /// At their own times.
    Open(Arrivals),
    /// So many at a time: one arrives when another one ends.
    Closed(u32),
}

/// What a contender did.
#[derive(Clone, Debug)]
pub struct Report {
    /// Nanoseconds from arrival to answer, sorted. A query without an answer counts as its deadline.
    pub latencies: Vec<u64>,
    /// The share of queries without an answer.
    pub failed: f64,
    /// The share of approximate answers.
    pub approximate: f64,
    /// Work that began beyond one run for each query, as a share of that.
    pub extra: f64,
}

impl Report {
    /// A quantile of the latencies, in milliseconds.
    pub fn millis(&self, quantile: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (quantile * last as f64).round() as usize;
        self.latencies.get(at).map_or(0.0, |nanos| *nanos as f64 / 1e6)
    }
}

/// One client or frontend.
pub(super) trait Frontend {
    /// A query arrives.
    fn arrives(&mut self, query: u64, deadline: Time, wire: &mut Wire<'_>);
    /// A job is over.
    fn ended(&mut self, end: End, wire: &mut Wire<'_>);
    /// A probe has its answer.
    fn probed(&mut self, probe: Probe);
    /// A moment that it asked for has come.
    fn wakes(&mut self, token: u64, wire: &mut Wire<'_>);
    /// A query had no answer until its deadline.
    fn expires(&mut self, query: u64, wire: &mut Wire<'_>);
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) job: u64,
    /// What came with the answer; `None` if the server gave it up because it was cancelled.
    pub(super) told: Option<Told>,
}

/// What a frontend does.
pub(super) struct Wire<'a> {
    pub(super) now: Time,
    pub(super) draw: &'a mut Random,
    client: u32,
    jobs: &'a mut Vec<Job>,
    acts: &'a mut Vec<Act>,
}

impl Wire<'_> {
    /// Sends a query to a server; the run takes this share of the model's time. Returns the job's name.
    pub(super) fn send(&mut self, query: u64, server: usize, share: f64) -> u64 {
        let (client, unknown) = (self.client, Time::ZERO);
        let state = Stage::OnTheWay;
        self.jobs.push(Job {
            query,
            client,
            server,
            share,
            state,
            met: 0,
            received: unknown,
            began: unknown,
        });
        let job = self.jobs.len() as u64 - 1;
        self.acts.push(Act::Deliver { job });
        job
    }

    /// Says that nobody needs a job any more.
    pub(super) fn cancel(&mut self, job: u64) {
        self.acts.push(Act::Cancel { job });
    }

    /// Answers a query.
    pub(super) fn reply(&mut self, query: u64, approximate: bool) {
        self.acts.push(Act::Reply { query, approximate });
    }

    /// Asks a server how it is.
    pub(super) fn probe(&mut self, server: usize) {
        self.acts.push(Act::Probe { server });
    }

    /// Asks to be woken.
    pub(super) fn wake(&mut self, at: Time, token: u64) {
        self.acts.push(Act::Wake { at, token });
    }
}

enum Act {
    Deliver { job: u64 },
    Cancel { job: u64 },
    Reply { query: u64, approximate: bool },
    Probe { server: usize },
    Wake { at: Time, token: u64 },
}

struct Job {
    query: u64,
    client: u32,
    server: usize,
    share: f64,
    state: Stage,
    /// Requests that it met at the server.
    met: u32,
    received: Time,
    began: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    OnTheWay,
    Waits,
    Runs,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// At a server.
    Arrives {
        job: u64,
    },
    Cancelled {
        job: u64,
    },
    Ends {
        job: u64,
    },
    Probed {
        client: u32,
        server: usize,
    },
    /// At a client.
    Answers {
        end: End,
    },
    Probes {
        client: u32,
        probe: Probe,
    },
    Wakes {
        client: u32,
        token: u64,
    },
    Expires {
        query: u64,
    },
    /// The next query of a closed load.
    Asks,
}

impl Event {
    /// Earlier at the same moment.
    fn class(self) -> u8 {
        match self {
            Event::Wakes { .. } => 1,
            Event::Expires { .. } | Event::Asks => 2,
            _ => 0,
        }
    }
}

impl Setup {
    /// Runs until each query has its answer or its deadline has passed.
    pub fn run(&self, contender: Contender) -> Result<Report, Error> {
        self.service.check()?;
        let mut simulation = Simulation::new(self, contender)?;
        while simulation.advance() {}
        Ok(simulation.report())
    }
}

struct Simulation<'a> {
    setup: &'a Setup,
    now: Time,
    draw: Random,
    schedule: Schedule,
    servers: Vec<Server>,
    frontends: Vec<Box<dyn Frontend>>,
    jobs: Vec<Job>,
    acts: Vec<Act>,
    events: BinaryHeap<Reverse<(Time, u8, u64, Event)>>,
    noted: u64,
    arrivals: Option<Times>,
    next_arrival: Time,
    /// Queries that have not arrived.
    left: u64,
    /// The client and the arrival of each query, and how long it took.
    queries: Vec<(u32, Time, Option<u64>)>,
    open: u64,
    failed: u64,
    approximate: u64,
    work: f64,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, contender: Contender) -> Result<Self, Error> {
        let servers = setup.servers as usize;
        let mut draw = Random::of(setup.seed, [RIVALS]);
        let frontends = (0..setup.clients).map(|_| -> Box<dyn Frontend> {
            match contender {
                Contender::Rival(placing, delay) => {
                    let rule = placing.rule(servers, setup.clients as usize, &mut draw);
                    Box::new(Pusher::new(rule, delay.map(Hedge::new), servers))
                }
                Contender::Parm(policy) => Box::new(Parm::new(setup, policy)),
            }
        });
        let frontends = frontends.collect();
        let arrivals = match &setup.load {
            Load::Open(arrivals) => Some(arrivals.schedule(setup.seed)?),
            Load::Closed(_) => None,
        };
        let mut simulation = Self {
            setup,
            now: Time::ZERO,
            draw,
            schedule: Schedule::new(&setup.faults, setup.seed, setup.servers)?,
            servers: (0..servers).map(|_| Server::new()).collect(),
            frontends,
            jobs: Vec::new(),
            acts: Vec::new(),
            events: BinaryHeap::new(),
            noted: 0,
            arrivals,
            next_arrival: Time::MAX,
            left: setup.queries,
            queries: Vec::with_capacity(setup.queries as usize),
            open: 0,
            failed: 0,
            approximate: 0,
            work: 0.0,
        };
        simulation.draw_arrival();
        if let Load::Closed(clients) = setup.load {
            (0..clients).for_each(|_| simulation.arrive());
        }
        Ok(simulation)
    }

    /// Passes on to the next event. False if all queries are over.
    fn advance(&mut self) -> bool {
        if self.open == 0 && self.next_arrival == Time::MAX && (self.left == 0 || !self.is_closed()) {
            return false;
        }
        let event = self.events.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
        if event <= self.next_arrival {
            let Some(Reverse((at, _, _, event))) = self.events.pop() else { return false };
            self.now = at;
            self.happens(event);
        } else {
            self.now = self.next_arrival;
            self.draw_arrival();
            self.arrive();
        }
        true
    }

    fn draw_arrival(&mut self) {
        let next = self.arrivals.as_mut().filter(|_| self.left > 0).and_then(Iterator::next);
        self.next_arrival = next.map_or(Time::MAX, |at| time(Moment::after(at)));
    }

    fn arrive(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.open += 1;
        let client = self.draw.below(self.frontends.len());
        let query = self.queries.len() as u64;
        self.queries.push((client as u32, self.now, None));
        let deadline = self.now + self.setup.deadline;
        self.note(deadline, Event::Expires { query });
        self.tell(client as u32, |frontend, wire| frontend.arrives(query, deadline, wire));
    }

    fn note(&mut self, at: Time, event: Event) {
        self.noted += 1;
        self.events.push(Reverse((at.max(self.now), event.class(), self.noted, event)));
    }

    /// Lets a frontend react, and does what it wants.
    fn tell(&mut self, client: u32, what: impl FnOnce(&mut dyn Frontend, &mut Wire<'_>)) {
        let mut acts = std::mem::take(&mut self.acts);
        let (now, draw, jobs) = (self.now, &mut self.draw, &mut self.jobs);
        let mut wire = Wire { now, draw, client, jobs, acts: &mut acts };
        what(&mut *self.frontends[client as usize], &mut wire);
        let there = self.now + self.setup.network;
        for act in acts.drain(..) {
            match act {
                Act::Deliver { job } => self.note(there, Event::Arrives { job }),
                Act::Cancel { job } => self.note(there, Event::Cancelled { job }),
                Act::Probe { server } => self.note(there, Event::Probed { client, server }),
                Act::Wake { at, token } => self.note(at, Event::Wakes { client, token }),
                Act::Reply { query, approximate } => self.reply(query, Some(approximate)),
            }
        }
        self.acts = acts;
    }

    /// A query is over; `None` without an answer.
    fn reply(&mut self, query: u64, approximate: Option<bool>) {
        let (_, arrived, took) = &mut self.queries[query as usize];
        if took.is_some() {
            return;
        }
        *took = Some(self.now.since(*arrived).as_nanos() as u64);
        self.open -= 1;
        if query >= self.setup.warm_up {
            self.failed += u64::from(approximate.is_none());
            self.approximate += u64::from(approximate == Some(true));
        }
        if self.is_closed() {
            self.note(self.now, Event::Asks);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives { job } => self.receive(job),
            Event::Cancelled { job } => self.withdraw(job),
            Event::Ends { job } => self.end(job),
            Event::Probed { client, server } => {
                let state = self.schedule.condition(server as u32, self.moment()).state;
                if matches!(state, State::Works | State::Hangs) {
                    let in_flight = self.servers[server].in_flight();
                    let latency = self.servers[server].latencies.at(in_flight);
                    let at = self.now + self.setup.network;
                    self.note(at, Event::Probes { client, probe: Probe { server, at, in_flight, latency } });
                }
            }
            Event::Answers { end } => {
                let client = self.jobs[end.job as usize].client;
                self.tell(client, |frontend, wire| frontend.ended(end, wire));
            }
            Event::Probes { client, probe } => self.frontends[client as usize].probed(probe),
            Event::Wakes { client, token } => {
                self.tell(client, |frontend, wire| frontend.wakes(token, wire));
            }
            Event::Asks => self.arrive(),
            Event::Expires { query } => {
                let (client, _, took) = self.queries[query as usize];
                if took.is_none() {
                    self.reply(query, None);
                    self.tell(client, |frontend, wire| frontend.expires(query, wire));
                }
            }
        }
    }

    /// A job comes to its server.
    fn receive(&mut self, job: u64) {
        let of = &mut self.jobs[job as usize];
        if of.state == Stage::Over {
            return;
        }
        let server = of.server;
        (of.state, of.met, of.received) = (Stage::Waits, self.servers[server].in_flight(), self.now);
        self.servers[server].waiting.push_back(job);
        self.servers[server].queued += 1;
        self.proceed(server);
    }

    /// Nobody needs a job any more.
    fn withdraw(&mut self, job: u64) {
        let of = &mut self.jobs[job as usize];
        let server = of.server;
        match of.state {
            Stage::Waits => self.servers[server].queued -= 1,
            Stage::Runs if self.setup.cancels => self.servers[server].running -= 1,
            _ => return,
        }
        of.state = Stage::Over;
        let end = End { job, told: None };
        self.note(self.now + self.setup.network, Event::Answers { end });
        self.proceed(server);
    }

    /// A run ends.
    fn end(&mut self, job: u64) {
        let of = &mut self.jobs[job as usize];
        if of.state != Stage::Runs {
            return;
        }
        of.state = Stage::Over;
        let server = &mut self.servers[of.server];
        server.running -= 1;
        server.latencies.add(of.met, self.now.since(of.received).as_nanos() as u64);
        let run = self.now.since(of.began).as_nanos() as u64;
        let end = End { job, told: Some(Told { run, in_flight: server.in_flight() }) };
        let server = of.server;
        self.note(self.now + self.setup.network, Event::Answers { end });
        self.proceed(server);
    }

    /// Starts runs while a server has idle lanes.
    fn proceed(&mut self, server: usize) {
        while self.servers[server].running < u32::from(self.setup.lanes) {
            let Some(job) = self.servers[server].waiting.pop_front() else { return };
            let of = &mut self.jobs[job as usize];
            if of.state != Stage::Waits {
                continue;
            }
            (of.state, of.began) = (Stage::Runs, self.now);
            let (query, share) = (of.query, of.share);
            self.servers[server].queued -= 1;
            self.servers[server].running += 1;
            if query >= self.setup.warm_up {
                self.work += share;
            }
            let (start, instance) = (self.moment(), server as u32);
            let run = service::Run { seed: self.setup.seed, instance, start };
            let nanos = share * self.setup.service.nanos(1, run) * self.schedule.longest(instance, [query]);
            self.schedule.forget(instance, start);
            if let Ending::Answered { at, .. } = self.schedule.run(instance, start, nanos) {
                self.note(time(at), Event::Ends { job });
            }
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.setup.load, Load::Closed(_))
    }

    fn moment(&self) -> Moment {
        Moment::from_nanos(self.now.as_nanos())
    }

    fn report(self) -> Report {
        let counted = &self.queries[(self.setup.warm_up as usize).min(self.queries.len())..];
        let mut latencies: Vec<u64> = counted.iter().filter_map(|(_, _, took)| *took).collect();
        latencies.sort_unstable();
        let count = latencies.len().max(1) as f64;
        Report {
            failed: self.failed as f64 / count,
            approximate: self.approximate as f64 / count,
            extra: self.work / count - 1.0,
            latencies,
        }
    }
}

/// Separates the draws of rivals from those of faults.
const RIVALS: u64 = 0x0021_7A15;

fn time(moment: Moment) -> Time {
    Time::from_nanos(moment.as_nanos())
}
