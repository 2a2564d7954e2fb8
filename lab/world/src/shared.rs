//! Several frontends over the same servers, with asks and grants between them.
//!
//! Each frontend has a dispatcher of its own and sees a part of the arrivals. A server runs one job for each slot; it grants its
//! room with a [`Granter`]. Messages take the network's time in each direction.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parm_dispatcher::{
    Action, Counters, Dispatcher, End, InstanceKey, InstanceSpec, JobKey, ModelKey, ModelSettings, QueryKey,
    Submission, Time,
};
use parm_grants::{Granter, Order, Told};
use parm_workload::clock::Moment;
use parm_workload::{Ending, Error, Random, Schedule, service};

use crate::{Outcome, Plan, time};

/// Several frontends.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Their number.
    pub frontends: usize,
    /// The time of a message in one direction.
    pub network: Duration,
    /// Whether the servers grant their room; otherwise each frontend uses what it observes.
    pub grants: bool,
}

#[derive(Debug)]
enum Event {
    Comes { server: usize, job: Job },
    Cancelled { server: usize, from: usize, job: JobKey },
    Ordered { server: usize, from: usize, order: Order },
    Told { frontend: usize, server: usize, told: Told },
    Ended { frontend: usize, job: JobKey, number: Option<u64> },
    Ends { server: usize, job: Job },
}

#[derive(Clone, Copy, Debug)]
struct Job {
    from: usize,
    key: JobKey,
    number: u64,
    is_stand_in: bool,
    /// Whether it uses a grant.
    granted: bool,
}

struct Frontend {
    dispatcher: Dispatcher<u64, u64>,
    model: ModelKey,
    stand_in: Option<ModelKey>,
    servers: Vec<InstanceKey>,
    open: BTreeMap<QueryKey, (u64, Time)>,
}

struct Server {
    granter: Granter<usize>,
    running: u16,
    waiting: VecDeque<Job>,
}

struct Fleet<'a> {
    plan: &'a Plan,
    shared: Shared,
    now: Time,
    frontends: Vec<Frontend>,
    servers: Vec<Server>,
    schedule: Schedule,
    events: BTreeMap<(Time, u64), Event>,
    noted: u64,
    messages: u64,
    latencies: Vec<u64>,
}

impl Shared {
    /// Runs a plan until each query has its reply. Returns also the messages of asks and grants for each query; the outcome has no
    /// counters.
    pub fn run(self, plan: &Plan) -> Result<(Outcome, f64), Error> {
        let mut fleet = Fleet::new(plan, self)?;
        let mut arrivals = plan.arrivals.schedule(plan.seed)?;
        let mut left = plan.queries;
        let mut next = |left: &mut u64| {
            let at = if *left == 0 { None } else { arrivals.next() };
            *left = left.saturating_sub(1);
            at.map_or(Time::MAX, |at| time(Moment::after(at)))
        };
        let (mut arrival, mut arrived) = (next(&mut left), 0);
        loop {
            let event = fleet.events.first_key_value().map_or(Time::MAX, |((at, _), _)| *at);
            let looks = fleet.frontends.iter().map(|own| own.dispatcher.next_tick().unwrap_or(Time::MAX));
            let (at, frontend) = looks.zip(0..).min().unwrap_or((Time::MAX, 0));
            let looks = fleet.servers.iter().map(|own| own.granter.next_look());
            let grants = looks.map(|at| at.map_or(Time::MAX, |at| Time::ZERO + at));
            let (grant, server) = grants.zip(0..).min().unwrap_or((Time::MAX, 0));
            let now = event.min(at).min(grant).min(arrival);
            let is_over = arrival == Time::MAX && fleet.frontends.iter().all(|own| own.open.is_empty());
            if now == Time::MAX || is_over {
                break;
            }
            fleet.now = fleet.now.max(now);
            if event == now {
                fleet.happens();
            } else if at == now {
                fleet.frontends[frontend].dispatcher.tick(fleet.now);
                fleet.execute(frontend);
            } else if grant == now {
                fleet.servers[server].granter.settle(since_start(fleet.now));
                fleet.tell(server);
            } else {
                fleet.arrives(arrived);
                (arrival, arrived) = (next(&mut left), arrived + 1);
            }
        }
        Ok(fleet.outcome())
    }
}

impl<'a> Fleet<'a> {
    fn new(plan: &'a Plan, shared: Shared) -> Result<Self, Error> {
        plan.service.check()?;
        let frontend = |_| {
            let mut dispatcher = Dispatcher::new();
            let stand_in = plan.stand_in_cost.map(|_| dispatcher.add_model(ModelSettings::default()));
            let model = dispatcher.add_model(ModelSettings { stand_in, ..plan.settings });
            let models: Vec<ModelKey> = [Some(model), stand_in].into_iter().flatten().collect();
            let spec = InstanceSpec::new(models, plan.slots);
            let servers = (0..plan.instances).map(|_| dispatcher.join(Time::ZERO, &spec)).collect();
            Frontend { dispatcher, model, stand_in, servers, open: BTreeMap::new() }
        };
        let server = |_| {
            let mut granter = Granter::new(plan.slots);
            if shared.grants {
                (0..shared.frontends).for_each(|frontend| granter.join(frontend));
            }
            Server { granter, running: 0, waiting: VecDeque::new() }
        };
        let mut fleet = Self {
            plan,
            shared,
            now: Time::ZERO,
            frontends: (0..shared.frontends).map(frontend).collect(),
            servers: (0..plan.instances).map(server).collect(),
            schedule: Schedule::new(&plan.faults, plan.seed, plan.instances)?,
            events: BTreeMap::new(),
            noted: 0,
            messages: 0,
            latencies: Vec::new(),
        };
        (0..fleet.servers.len()).for_each(|server| fleet.tell(server));
        Ok(fleet)
    }

    fn note(&mut self, at: Time, event: Event) {
        self.noted += 1;
        self.events.insert((at, self.noted), event);
    }

    /// A message arrives after the network's time.
    fn send(&mut self, event: Event) {
        self.note(self.now + self.shared.network, event);
    }

    fn arrives(&mut self, number: u64) {
        let at = Random::of(self.plan.seed, [17, number]).below(self.frontends.len());
        let frontend = &mut self.frontends[at];
        let query = Submission::new(frontend.model, number, self.now + self.plan.deadline);
        let key = frontend.dispatcher.submit(self.now, query);
        frontend.open.insert(key, (number, self.now));
        self.execute(at);
    }

    fn execute(&mut self, at: usize) {
        let actions: Vec<_> = self.frontends[at].dispatcher.actions().collect();
        for action in actions {
            let frontend = &mut self.frontends[at];
            let server =
                |instance| frontend.servers.iter().position(|own| *own == instance).unwrap_or_default();
            match action {
                Action::Run { job, instance, model, rows, .. } => {
                    let is_stand_in = frontend.stand_in == Some(model);
                    let number = rows[0].payload;
                    let job = Job { from: at, key: job, number, is_stand_in, granted: false };
                    let server = server(instance);
                    self.send(Event::Comes { server, job });
                }
                Action::Cancel { job, instance, .. } => {
                    let server = server(instance);
                    self.send(Event::Cancelled { server, from: at, job });
                }
                Action::Ask { instance, ask } => {
                    let server = server(instance);
                    self.messages += 1;
                    self.send(Event::Ordered { server, from: at, order: Order::Ask(ask) });
                }
                Action::Return { instance } => {
                    let server = server(instance);
                    self.messages += 1;
                    self.send(Event::Ordered { server, from: at, order: Order::Return });
                }
                Action::Tell { .. } | Action::Probe { .. } => {}
                Action::Reply { query, result, .. } => {
                    let Some((number, arrived)) = frontend.open.remove(&query) else { continue };
                    if number >= self.plan.warm_up {
                        let nanos = self.now.since(arrived).as_nanos() as u64;
                        let late = result.is_err().then_some(self.plan.deadline.as_nanos() as u64);
                        self.latencies.push(nanos.max(late.unwrap_or_default()));
                    }
                }
            }
        }
    }

    fn happens(&mut self) {
        let Some((_, event)) = self.events.pop_first() else { return };
        match event {
            Event::Comes { server, job } => {
                let of = &mut self.servers[server];
                if of.granter.comes(job.from) {
                    of.waiting.push_front(Job { granted: true, ..job });
                } else {
                    of.waiting.push_back(job);
                }
                self.proceed(server);
            }
            Event::Cancelled { server, from, job } => {
                let now = since_start(self.now);
                let of = &mut self.servers[server];
                let waits = |own: &Job| (own.from, own.key) == (from, job);
                if let Some(job) = of.waiting.iter().position(waits).and_then(|at| of.waiting.remove(at)) {
                    if job.granted {
                        of.granter.end(now, None);
                        self.tell(server);
                    }
                    self.send(Event::Ended { frontend: from, job: job.key, number: None });
                }
            }
            Event::Ordered { server, from, order } => {
                self.servers[server].granter.hears(since_start(self.now), from, order);
                self.tell(server);
            }
            Event::Told { frontend, server, told } => {
                let of = &mut self.frontends[frontend];
                let key = of.servers[server];
                match told {
                    Told::Granted => of.dispatcher.granted(self.now, key),
                    Told::Recalled => of.dispatcher.recalled(self.now, key),
                    Told::Shared(shared) => of.dispatcher.shared(self.now, key, shared),
                }
                self.execute(frontend);
            }
            Event::Ended { frontend, job, number } => {
                let end = match number {
                    Some(number) => End::Answered([Some(number)].into_iter().collect()),
                    None => End::Cancelled,
                };
                self.frontends[frontend].dispatcher.ended(self.now, job, end);
                self.execute(frontend);
            }
            Event::Ends { server, job } => {
                let of = &mut self.servers[server];
                of.running -= 1;
                of.granter.end(since_start(self.now), Some(job.from));
                self.tell(server);
                self.send(Event::Ended { frontend: job.from, job: job.key, number: Some(job.number) });
                self.proceed(server);
            }
        }
    }

    /// Sends what a server tells the frontends.
    fn tell(&mut self, server: usize) {
        let told: Vec<_> = self.servers[server].granter.told().collect();
        for (frontend, told) in told {
            // A grant that stays after a job goes with its answer.
            self.messages += 1;
            self.send(Event::Told { frontend, server, told });
        }
    }

    fn proceed(&mut self, server: usize) {
        let of = &mut self.servers[server];
        if of.running >= self.plan.slots {
            return;
        }
        let Some(job) = of.waiting.pop_front() else { return };
        of.running += 1;
        if !job.granted {
            of.granter.begin();
        }
        let start = Moment::from_nanos(self.now.as_nanos());
        let instance = server as u32;
        let run = service::Run { seed: self.plan.seed, instance, start };
        let share = self.plan.stand_in_cost.filter(|_| job.is_stand_in).unwrap_or(1.0);
        let slower = self.schedule.longest(instance, [job.number]);
        let nanos = share * self.plan.service.nanos(1, run) * slower;
        self.schedule.forget(instance, start);
        if let Ending::Answered { at, .. } = self.schedule.run(instance, start, nanos) {
            self.note(time(at), Event::Ends { server, job });
        }
    }

    fn outcome(mut self) -> (Outcome, f64) {
        self.latencies.sort_unstable();
        let all = self.frontends.iter().filter_map(|own| own.dispatcher.counters(own.model));
        let (mut submitted, mut work) = (0.0, 0.0);
        for counters in all {
            submitted += counters.submitted as f64;
            work += (counters.first + counters.hedged + counters.explored + counters.retried) as f64;
            work += counters.stood_in as f64 * self.plan.stand_in_cost.unwrap_or_default();
        }
        let messages = self.messages as f64 / submitted;
        let counters = Counters::default();
        (Outcome { latencies: self.latencies, counters, decoded: 0, extra: work / submitted - 1.0 }, messages)
    }
}

/// The granter's time.
fn since_start(at: Time) -> Duration {
    at.since(Time::ZERO)
}
