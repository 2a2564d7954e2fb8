//! Servers that take a time of their own for each run, in front of a dispatcher.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Event, InstanceId, InstanceSpec, JobId, PoolId, PoolStatus, QueryId, QuerySpec, Role,
    Served, Settings, ShapeId, Site, Time,
};
use parm_settings::PoolSettings;

use super::world::{Fate, Held, POOL, World};

/// Longer than any run.
const LONG: Duration = Duration::from_secs(10);

/// The dispatcher and its servers.
pub(crate) struct Servers {
    pub(crate) world: World,
    /// The time of a run at each server; none if it hangs.
    takes: BTreeMap<InstanceId, Option<Duration>>,
    ends: BTreeSet<(Time, JobId)>,
    /// The time of a stand-in's run relative to that of another one.
    stand_ins: f64,
    /// The answers that clients of later queries accept.
    pub(crate) accept: Accept,
    /// Actions that were read.
    read: usize,
    next: u64,
}

/// A job that was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) instance: u32,
    pub(crate) role: Role,
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Servers {
    /// Servers from number 1 on with these times in milliseconds, each with one slot.
    pub(crate) fn new(settings: PoolSettings, takes: &[u64]) -> Self {
        let mut servers = Self::without(settings);
        for (number, take) in (1..).zip(takes) {
            servers.join(number, 1, &[POOL], *take);
        }
        servers
    }

    pub(crate) fn without(settings: PoolSettings) -> Self {
        let world = World::new(Settings::uniform(settings), 7);
        Self {
            world,
            takes: BTreeMap::new(),
            ends: BTreeSet::new(),
            stand_ins: 1.0,
            accept: Accept::Any,
            read: 0,
            next: 0,
        }
    }

    pub(crate) fn join(&mut self, number: u32, slots: u16, pools: &[PoolId], takes: u64) {
        self.join_with(number, slots, pools.iter().map(|pool| Served::all(*pool)).collect(), takes);
    }

    /// A server with one slot for such work.
    pub(crate) fn join_serving(&mut self, number: u32, serves: Vec<Served>, takes: u64) {
        self.join_with(number, 1, serves, takes);
    }

    fn join_with(&mut self, number: u32, slots: u16, serves: Vec<Served>, takes: u64) {
        self.takes.insert(InstanceId(number), Some(ms(takes)));
        let spec = InstanceSpec { serves, slots, site: Site::default(), learns: false };
        self.send(Event::InstanceJoined(InstanceId(number), spec));
    }

    /// Sets the time of stand-ins that start from now on, relative to that of other runs.
    pub(crate) fn stand_ins_take(&mut self, share: f64) {
        self.stand_ins = share;
    }

    pub(crate) fn status(&self) -> PoolStatus {
        self.world.dispatcher.status(POOL).expect("it has been used")
    }

    /// Changes the time of runs that start from now on.
    pub(crate) fn takes(&mut self, number: u32, takes: u64) {
        self.takes_so_long(number, ms(takes));
    }

    pub(crate) fn takes_so_long(&mut self, number: u32, takes: Duration) {
        self.takes.insert(InstanceId(number), Some(takes));
    }

    /// Runs that start from now on never end.
    pub(crate) fn hangs(&mut self, number: u32) {
        self.takes.insert(InstanceId(number), None);
    }

    pub(crate) fn send(&mut self, event: Event) {
        self.world.send(event);
        self.read();
    }

    /// A query with a deadline ten seconds away.
    pub(crate) fn query(&mut self) -> QueryId {
        self.query_of(POOL, LONG, 0)
    }

    /// So many queries at once.
    pub(crate) fn queries(&mut self, count: u32) {
        for _ in 0..count {
            self.query();
        }
    }

    pub(crate) fn query_of(&mut self, pool: PoolId, within: Duration, priority: u8) -> QueryId {
        self.next += 1;
        let id = QueryId(self.next);
        self.send(Event::QueryArrived(QuerySpec {
            id,
            pool,
            shape: ShapeId(0),
            deadline: self.world.now + within,
            priority,
            share: None,
            accept: self.accept,
            codable: true,
            size: 1,
            padded: false,
        }));
        id
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.world.now + time;
        loop {
            let end = self.ends.first().copied().filter(|(at, _)| *at <= until);
            let wake = self.world.wake.filter(|at| *at <= until);
            let at = end.map(|(at, _)| at).into_iter().chain(wake).min().unwrap_or(until);
            self.world.advance(at.since(self.world.now));
            self.read();
            match end.filter(|(at, _)| *at <= self.world.now) {
                Some((at, job)) => {
                    self.ends.remove(&(at, job));
                    self.send(Event::JobCompleted(job));
                }
                None if at == until && self.world.wake.is_none_or(|at| at > until) => return,
                None => {}
            }
        }
    }

    /// So many queries at a time, again and again.
    pub(crate) fn load(&mut self, at_a_time: u32, every: Duration, time: Duration) {
        let until = self.world.now + time;
        while self.world.now < until {
            self.queries(at_a_time);
            self.pass(every);
        }
    }

    /// The job that a server runs.
    pub(crate) fn job_at(&self, number: u32) -> Option<JobId> {
        let mut running = self.world.running();
        running.find(|(_, held)| held.job.instance == InstanceId(number)).map(|(id, _)| *id)
    }

    /// The running first job of a query.
    pub(crate) fn first_job_of(&self, query: QueryId) -> JobId {
        let runs = |held: &Held| held.rows.contains(&query) && held.job.role == Role::Deployed;
        *self.world.running().find(|(_, held)| runs(held)).expect("it runs").0
    }

    /// Jobs that were started from a time on.
    pub(crate) fn started(&self, from: Time) -> impl Iterator<Item = Started> {
        self.world.log.iter().filter(move |(at, _)| *at >= from).filter_map(|(_, action)| match action {
            Action::Run(job, _) => Some(Started { instance: job.instance.0, role: job.role }),
            _ => None,
        })
    }

    /// The time at which a query was answered with a prediction.
    pub(crate) fn answered(&self, query: QueryId) -> Option<Time> {
        if let Fate::Answered(answer) = self.world.queries[&query].fate {
            assert!(!matches!(answer, parm_dispatch::Answer::Rejected(_)), "{query:?}: {answer:?}");
        }
        let mut log = self.world.log.iter();
        log.find(|(_, action)| matches!(action, Action::Answer(id, _) if *id == query)).map(|(at, _)| *at)
    }

    /// Plans the end of new jobs. Times vary by a twentieth.
    fn read(&mut self) {
        while let Some((at, action)) = self.world.log.get(self.read) {
            self.read += 1;
            if let Action::Run(job, _) = action
                && let Some(takes) = self.takes[&job.instance]
            {
                let share = if matches!(job.role, Role::StandIn(_)) { self.stand_ins } else { 1.0 };
                let vary = 0.95 + 0.01 * (job.id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33 & 7) as f64;
                self.ends.insert((*at + takes.mul_f64(share * vary), job.id));
            }
        }
    }
}
