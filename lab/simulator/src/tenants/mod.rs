//! Several tenants on the same instances, through one frontend of their own or through several that share them.
//!
//! A [`Run`](crate::Run) simulates one model under faults. This simulation has no faults, but models of different
//! lengths, shares of different weights, and clients that send the next query when one is answered.

mod worker;

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Answer, Dispatcher, Event, InstanceId, InstanceSpec, JobId, JobSpec, Order,
    Payer, PoolId, QueryId, QuerySpec, Role, Served, Settings, ShapeId, ShareId, Site, Terms, Time, Wanted,
};
use parm_settings::PoolSettings;
use parm_tokens::{Frontend, Message};
use parm_workload::Random;
use parm_workload::clock::Moment;

use crate::calendar::Calendar;
use worker::{Finished, Job, Worker};

/// Tenants, instances and frontends.
#[derive(Clone, Debug)]
pub struct Tenancy {
    /// The tenants.
    pub tenants: Vec<Tenant>,
    /// Instances, each of which serves every model.
    pub instances: u32,
    /// Frontends. One has the instances to itself; several share them by tokens.
    pub frontends: u32,
    /// Time of a message in one direction, if frontends share the instances.
    pub delay: Duration,
    /// Length of the simulation.
    pub length: Duration,
    /// The dispatch settings of every model.
    pub settings: PoolSettings,
    /// Seed of service times.
    pub seed: u64,
}

/// A tenant.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// The share that is configured for it; `None` for its model's own.
    pub share: Option<Terms>,
    /// The model that it requests.
    pub model: PoolId,
    /// The model's service time, which varies by a tenth.
    pub service: Duration,
    /// How often it sends queries.
    pub demand: Demand,
    /// The only frontend that it uses; `None` if it uses all equally, as through a load balancer.
    pub at: Option<u32>,
}

/// How often a tenant sends queries.
#[derive(Clone, Copy, Debug)]
pub enum Demand {
    /// This many clients, each of which sends its next query when it is answered.
    Clients(u32),
    /// One query per period.
    Every(Duration),
}

/// The usage and latencies of a tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bill {
    /// Time of instances.
    pub used: Duration,
    /// Time of redundancy, which is part of it.
    pub redundancy: Duration,
    /// From each query to its answer, in the order of the answers.
    pub latencies: Vec<Duration>,
}

#[derive(Debug)]
enum Occurrence {
    /// A client of a tenant sends a query.
    Asks(usize, u32),
    Wake(usize),
    /// An event at a frontend.
    Completed(usize, JobId),
    Told(usize, InstanceId, Message),
    /// An event at an instance.
    Given(InstanceId, Job),
    Wished(InstanceId, usize, Order<Wanted>),
    Ends(InstanceId),
    Tick(InstanceId),
}

/// An unanswered query.
#[derive(Clone, Copy, Debug)]
struct Asked {
    tenant: usize,
    client: u32,
    at: Moment,
}

/// A tenancy in progress.
struct House<'a> {
    run: &'a Tenancy,
    now: Moment,
    calendar: Calendar<Occurrence>,
    fronts: Vec<Dispatcher>,
    workers: Vec<Worker>,
    asked: BTreeMap<QueryId, Asked>,
    queries: u64,
    bills: Vec<Bill>,
    draw: Random,
    actions: Actions,
}

/// Long enough that only starvation makes a query miss it.
const DEADLINE: Duration = Duration::from_secs(1000);

impl Tenancy {
    /// Returns the bill of each tenant. Equal tenancies have equal results.
    pub fn simulate(&self) -> Vec<Bill> {
        let mut house = House::new(self);
        house.start();
        house.run();
        house.bills
    }

    fn shares(&self) -> BTreeMap<ShareId, Terms> {
        let named =
            self.tenants.iter().zip(0..).filter_map(|(own, share)| Some((ShareId(share), own.share?)));
        named.collect()
    }
}

impl<'a> House<'a> {
    fn new(run: &'a Tenancy) -> Self {
        let shares = run.shares();
        let settings = Settings { shares: shares.clone(), ..Settings::uniform(run.settings.clone()) };
        let front = |front| Dispatcher::new(settings.clone(), run.seed + u64::from(front));
        // Each instance has one reserved slot, until all reservations are placed.
        let mut left: Vec<(ShareId, Terms)> = shares.into_iter().collect();
        let workers = (0..run.instances).map(|_| {
            let next = left.iter().position(|(_, terms)| terms.reserved > 0);
            let mut here: BTreeMap<_, _> = left.iter().map(|(share, own)| (*share, *own)).collect();
            here.iter_mut().enumerate().for_each(|(at, (_, own))| own.reserved = u32::from(Some(at) == next));
            next.into_iter().for_each(|at| left[at].1.reserved -= 1);
            Worker::new(&here)
        });
        Self {
            run,
            now: Moment::from_nanos(0),
            calendar: Calendar::new(),
            workers: workers.collect(),
            fronts: (0..run.frontends).map(front).collect(),
            asked: BTreeMap::new(),
            queries: 0,
            bills: vec![Bill::default(); run.tenants.len()],
            draw: Random::of(run.seed, [0x7E4A]),
            actions: Actions::new(),
        }
    }

    fn start(&mut self) {
        let mut models: Vec<PoolId> = self.run.tenants.iter().map(|tenant| tenant.model).collect();
        models.sort_unstable();
        models.dedup();
        for (front, id) in (0..self.fronts.len())
            .flat_map(|front| (0..self.run.instances).map(move |instance| (front, InstanceId(instance))))
        {
            let serves = models.iter().map(|model| Served::all(*model)).collect();
            self.tell(
                front,
                Event::InstanceJoined(
                    id,
                    InstanceSpec { serves, slots: 1, site: Site::default(), learns: false },
                ),
            );
            if self.run.frontends > 1 {
                self.workers[id.0 as usize].desk.join(Frontend(front as u64));
                self.tell(front, Event::TokensOffered(id));
            }
        }
        (0..self.run.instances).for_each(|instance| self.proceed(InstanceId(instance), None));
        for (tenant, own) in self.run.tenants.iter().enumerate() {
            let clients = if let Demand::Clients(clients) = own.demand { clients } else { 1 };
            (0..clients).for_each(|client| self.calendar.note(self.now, Occurrence::Asks(tenant, client)));
        }
    }

    fn run(&mut self) {
        let end = self.now + self.run.length;
        while self.calendar.next_at() <= end {
            self.now = self.calendar.next_at();
            match self.calendar.take() {
                Some(Occurrence::Asks(tenant, client)) => self.asks(tenant, client),
                Some(Occurrence::Wake(front)) => self.tell(front, Event::TimerFired),
                Some(Occurrence::Completed(front, job)) => self.tell(front, Event::JobCompleted(job)),
                Some(Occurrence::Told(front, id, Message::Granted(grant))) => {
                    self.tell(front, Event::TokenGranted(id, grant));
                }
                Some(Occurrence::Told(front, id, Message::Recalled(token))) => {
                    self.tell(front, Event::TokenRecalled(id, token));
                }
                Some(Occurrence::Told(front, id, Message::Alone(slots))) => {
                    self.tell(front, Event::TokensShared(id, NonZeroU16::new(slots)));
                }
                Some(Occurrence::Told(front, id, Message::Shared)) => {
                    self.tell(front, Event::TokensShared(id, None));
                }
                Some(Occurrence::Given(id, job)) => {
                    self.workers[id.0 as usize].give(job, self.now);
                    self.proceed(id, None);
                }
                Some(Occurrence::Wished(id, front, order)) => {
                    self.workers[id.0 as usize].told(Frontend(front as u64), order, self.now);
                    self.proceed(id, None);
                }
                Some(Occurrence::Ends(id)) => self.ends(id),
                Some(Occurrence::Tick(id)) => {
                    self.workers[id.0 as usize].ticked();
                    self.proceed(id, None);
                }
                None => return,
            }
        }
    }

    fn asks(&mut self, tenant: usize, client: u32) {
        let own = self.run.tenants[tenant];
        self.queries += 1;
        let id = QueryId(self.queries);
        self.asked.insert(id, Asked { tenant, client, at: self.now });
        // A periodic tenant uses another frontend each time, as behind a load balancer.
        let turn = if let Demand::Every(pause) = own.demand {
            self.calendar.note(self.now + pause, Occurrence::Asks(tenant, client));
            self.queries
        } else {
            u64::from(client)
        };
        let query = QuerySpec {
            id,
            pool: own.model,
            shape: ShapeId(0),
            deadline: time(self.now + DEADLINE),
            priority: 0,
            share: own.share.map(|_| ShareId(tenant as u32)),
            accept: Accept::Any,
            codable: true,
            size: 1,
            padded: false,
        };
        let turn = own.at.map_or(turn, u64::from);
        self.tell((turn % self.fronts.len() as u64) as usize, Event::QueryArrived(query));
    }

    /// Passes an event to a frontend and executes its actions.
    fn tell(&mut self, front: usize, event: Event) {
        let mut actions = mem::take(&mut self.actions);
        self.fronts[front].on_event(time(self.now), event, &mut actions);
        let delay = if self.run.frontends > 1 { self.run.delay } else { Duration::ZERO };
        for action in actions.drain(..) {
            match action {
                Action::Run(spec, _) => {
                    let job = Job { front, spec, takes: self.takes(&spec) };
                    self.calendar.note(self.now + delay, Occurrence::Given(spec.instance, job));
                }
                Action::Answer(query, answer) => self.answered(query, &answer),
                Action::Tell(id, order) => {
                    self.calendar.note(self.now + delay, Occurrence::Wished(id, front, order));
                }
                Action::WakeAt(at) => {
                    let at = Moment::from_nanos(at.as_nanos()).max(self.now);
                    self.calendar.note(at, Occurrence::Wake(front));
                }
                // A dropped job runs to its end: nothing waits at instances that could be withdrawn.
                _ => {}
            }
        }
        self.actions = actions;
    }

    fn takes(&mut self, spec: &JobSpec) -> Duration {
        let of_model = |tenant: &&Tenant| tenant.model == spec.pool;
        let service = self.run.tenants.iter().find(of_model).map_or(Duration::ZERO, |own| own.service);
        service.mul_f64(0.9 + 0.2 * self.draw.uniform())
    }

    fn answered(&mut self, query: QueryId, answer: &Answer) {
        let Some(asked) = self.asked.remove(&query) else { return };
        if !matches!(answer, Answer::Rejected(_)) {
            let latency = Duration::from_nanos(self.now.nanos_since(asked.at));
            self.bills[asked.tenant].latencies.push(latency);
        }
        if let Demand::Clients(_) = self.run.tenants[asked.tenant].demand {
            self.calendar.note(self.now, Occurrence::Asks(asked.tenant, asked.client));
        }
    }

    fn ends(&mut self, id: InstanceId) {
        let Some(Finished { job, took }) = self.workers[id.0 as usize].end(self.now) else { return };
        let whose = |tenant: &Tenant, number: usize| match job.spec.payer {
            Payer::Share(share) => share.0 as usize == number,
            Payer::Model(model) => tenant.share.is_none() && tenant.model == model,
        };
        if let Some(payer) = (0..self.bills.len()).find(|at| whose(&self.run.tenants[*at], *at)) {
            self.bills[payer].used += took;
            if job.spec.role != Role::Deployed {
                self.bills[payer].redundancy += took;
            }
        }
        // The token travels with the answer and arrives first.
        self.proceed(id, Some(job.front));
        let delay = if self.run.frontends > 1 { self.run.delay } else { Duration::ZERO };
        self.calendar.note(self.now + delay, Occurrence::Completed(job.front, job.spec.id));
    }

    /// Starts the next jobs of an instance and delivers its messages to frontends.
    fn proceed(&mut self, id: InstanceId, ended: Option<usize>) {
        let here = &mut self.workers[id.0 as usize];
        if let Some(at) = here.proceed(self.now, ended.map(|front| Frontend(front as u64))) {
            self.calendar.note(at, Occurrence::Ends(id));
        }
        let (mail, tick) = self.workers[id.0 as usize].mail(self.now);
        for (Frontend(front), message) in mail {
            self.calendar.note(self.now + self.run.delay, Occurrence::Told(front as usize, id, message));
        }
        if let Some(at) = tick {
            self.calendar.note(at, Occurrence::Tick(id));
        }
    }
}

fn time(moment: Moment) -> Time {
    Time::from_nanos(moment.as_nanos())
}
