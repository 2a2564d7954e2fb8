//! The simulated instances: each is a queue and a thread, as in the product, under the fault schedule.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parm_dispatch::{Class, InstanceId, JobId, Order, Token};
use parm_tokens::{Arrivals, Desk, Frontend, Message, Settings};
use parm_workload::clock::Moment;
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Schedule, State};

/// The instances and their fault schedule.
#[derive(Debug)]
pub(crate) struct Cluster {
    schedule: Schedule,
    service: Service,
    seed: u64,
    instances: Vec<Instance>,
    follows_queries: bool,
    /// Nanoseconds that instances worked.
    pub(crate) busy: u64,
}

#[derive(Debug)]
struct Instance {
    /// Number of restarts. Ends scheduled before the last one are void.
    restarts: u32,
    running: Option<Running>,
    /// Ordered by urgency, then by arrival.
    waiting: BTreeMap<(Class, u64), Work>,
    /// Jobs that arrived with a token, for which the instance stays idle.
    promised: VecDeque<Work>,
    desk: Desk<()>,
    arrivals: Arrivals,
    /// The next scheduled check of its tokens.
    tick: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    job: Ticket,
    since: Moment,
    wrong: bool,
}

/// A job of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) front: u32,
    pub(crate) job: JobId,
}

/// A job for an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) job: Ticket,
    pub(crate) class: Class,
    pub(crate) token: Option<Token>,
    pub(crate) rows: usize,
    /// Its model's time as a share of the deployed model's.
    pub(crate) share: f64,
    /// The factor of its longest query, if run times follow queries; otherwise 1.
    pub(crate) length: f64,
}

/// A job that will end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) instance: u32,
    restarts: u32,
    pub(crate) at: Moment,
}

/// A job that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedJob {
    pub(crate) job: Ticket,
    /// Its answer is wrong.
    pub(crate) wrong: bool,
    /// The end of the job that the instance does next.
    pub(crate) next: Option<End>,
}

impl Cluster {
    pub(crate) fn new(instances: u32, schedule: Schedule, service: Service, seed: u64) -> Self {
        let instances = (0..instances).map(|_| Instance::new()).collect();
        let follows_queries = schedule.follows_queries();
        Self { schedule, service, seed, instances, follows_queries, busy: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.instances.len() as u32
    }

    /// Whether run times follow queries.
    pub(crate) fn follows_queries(&self) -> bool {
        self.follows_queries
    }

    /// Returns the factor of the longest of these queries on an instance.
    pub(crate) fn longest(&self, instance: u32, queries: impl IntoIterator<Item = u64>) -> f64 {
        self.schedule.longest(instance, queries)
    }

    /// Returns the dispatcher's identifier of an instance, which changes with every restart.
    pub(crate) fn id(&self, instance: u32) -> InstanceId {
        InstanceId(self.instances[instance as usize].restarts * self.len() + instance)
    }

    /// Returns the instance of this identifier.
    pub(crate) fn of(&self, id: InstanceId) -> u32 {
        if id.0 < self.len() { id.0 } else { id.0 % self.len() }
    }

    /// Gives a job to an instance. Returns its end, if it starts now and ends at all.
    pub(crate) fn give(&mut self, instance: u32, work: Work, now: Moment) -> Option<End> {
        let here = &mut self.instances[instance as usize];
        let holder = Frontend(work.job.front.into());
        let redeemed = work.token.is_some_and(|token| here.desk.redeem(holder, token));
        let number = here.arrivals.number(age(now));
        if redeemed && work.class != Class::Spare {
            here.promised.push_back(work);
        } else {
            if redeemed {
                here.desk.let_go();
            }
            here.waiting.insert((work.class, number), work);
        }
        self.proceed(instance, now)
    }

    /// Withdraws a job that has not started.
    pub(crate) fn take_back(&mut self, instance: u32, job: Ticket) -> bool {
        let waiting = &mut self.instances[instance as usize].waiting;
        let before = waiting.len();
        waiting.retain(|_, work| work.job != job);
        waiting.len() < before
    }

    /// Handles a scheduled end. `None` if the instance was restarted meanwhile.
    pub(crate) fn end(&mut self, end: End) -> Option<EndedJob> {
        let here = self.instances.get_mut(end.instance as usize)?;
        if here.restarts != end.restarts {
            return None;
        }
        let Running { job, since, wrong } = here.running.take()?;
        self.busy += end.at.nanos_since(since);
        here.desk.end();
        let next = self.proceed(end.instance, end.at);
        let here = &mut self.instances[end.instance as usize];
        if here.running.is_none() && here.waiting.is_empty() {
            here.desk.stick(Frontend(job.front.into()), age(end.at));
        }
        Some(EndedJob { job, wrong, next })
    }

    /// Registers a frontend for an instance's tokens.
    pub(crate) fn take_part(&mut self, instance: u32, front: u32) {
        self.instances[instance as usize].desk.join(Frontend(front.into()));
    }

    /// Handles a frontend's order about an instance's tokens.
    pub(crate) fn told(&mut self, instance: u32, front: u32, order: Order<()>, now: Moment) -> Option<End> {
        let here = &mut self.instances[instance as usize];
        let number = here.arrivals.number(age(now));
        here.desk.told(Frontend(front.into()), order, number);
        self.proceed(instance, now)
    }

    /// Checks an instance's tokens.
    pub(crate) fn tick(&mut self, instance: u32, now: Moment) -> Option<End> {
        self.instances[instance as usize].tick = None;
        self.proceed(instance, now)
    }

    /// Returns an instance's messages about its tokens, and the time of its next check if that has changed.
    pub(crate) fn mail(&mut self, instance: u32, now: Moment) -> (Vec<(Frontend, Message)>, Option<Moment>) {
        let here = &mut self.instances[instance as usize];
        let mail = here.desk.mail();
        let next = here.desk.tick(age(now)).map(Moment::after);
        let news = next.filter(|at| here.tick.is_none_or(|noted| *at < noted));
        here.tick = news.or(here.tick);
        (mail, news)
    }

    /// Starts the next job of an idle instance.
    fn proceed(&mut self, instance: u32, now: Moment) -> Option<End> {
        let here = &mut self.instances[instance as usize];
        here.desk.tick(age(now));
        let first = here.waiting.keys().next().copied();
        let may = here.desk.settle(age(now), first, |known| (known.class, known.number));
        if here.running.is_some() {
            return None;
        }
        let promised = here.promised.pop_front();
        let redeemed = promised.is_some();
        let next =
            promised.or_else(|| if may { here.waiting.pop_first().map(|(_, work)| work) } else { None });
        let work = next?;
        here.desk.begin(redeemed, age(now));
        self.start(instance, work, now)
    }

    /// Crashes an instance with the jobs that it holds. Returns when it could recover.
    pub(crate) fn crash(&mut self, instance: u32, now: Moment) -> Moment {
        let here = &mut self.instances[instance as usize];
        if let Some(running) = here.running.take() {
            self.busy += now.nanos_since(running.since);
        }
        let restarts = here.restarts + 1;
        *here = Instance { restarts, ..Instance::new() };
        self.schedule.condition(instance, now).until
    }

    /// Returns until when an instance is down, if it is.
    pub(crate) fn down_until(&mut self, instance: u32, now: Moment) -> Option<Moment> {
        let condition = self.schedule.condition(instance, now);
        (condition.state == State::Down).then_some(condition.until)
    }

    /// Returns when an instance crashes next.
    pub(crate) fn next_crash(&mut self, instance: u32, now: Moment) -> Option<Moment> {
        self.schedule.next_crash(instance, now).map(|(from, _)| from)
    }

    /// Returns when a probe is answered, if it is.
    pub(crate) fn probe(&mut self, instance: u32, now: Moment) -> Option<Moment> {
        self.schedule.probe(instance, now)
    }

    fn start(&mut self, instance: u32, work: Work, now: Moment) -> Option<End> {
        let run = service::Run { seed: self.seed, instance, start: now };
        let nanos = work.length * work.share * self.service.nanos(work.rows, run);
        self.schedule.forget(instance, now);
        let ending = self.schedule.run(instance, now, nanos);
        let here = &mut self.instances[instance as usize];
        let wrong = matches!(ending, Ending::Answered { wrong: true, .. });
        here.running = Some(Running { job: work.job, since: now, wrong });
        match ending {
            Ending::Answered { at, .. } => Some(End { instance, restarts: here.restarts, at }),
            // The crash is an event of its own and removes the job.
            Ending::Lost { .. } | Ending::Never => None,
        }
    }
}

impl Instance {
    fn new() -> Self {
        Self {
            restarts: 0,
            running: None,
            waiting: BTreeMap::new(),
            promised: VecDeque::new(),
            desk: Desk::new(1, Settings::default()),
            arrivals: Arrivals::default(),
            tick: None,
        }
    }
}

fn age(now: Moment) -> Duration {
    Duration::from_nanos(now.as_nanos())
}
