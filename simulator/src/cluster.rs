//! The simulated instances: each a queue and a thread, as in the product, that live through the fault schedule.

use std::collections::VecDeque;

use parm_dispatch::{InstanceId, JobId};
use parm_workload::clock::Moment;
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Schedule, State};

/// The instances and what they go through.
#[derive(Debug)]
pub(crate) struct Cluster {
    schedule: Schedule,
    service: Service,
    seed: u64,
    instances: Vec<Instance>,
    /// Nanoseconds that instances were at work.
    pub(crate) busy: u64,
}

#[derive(Clone, Debug, Default)]
struct Instance {
    /// How often it was restarted. What was noted before is void.
    restarts: u32,
    running: Option<Running>,
    waiting: VecDeque<Work>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    job: JobId,
    since: Moment,
    wrong: bool,
}

/// A job for an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) job: JobId,
    pub(crate) rows: usize,
    /// Its model's time as a share of the deployed model's.
    pub(crate) share: f64,
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
    pub(crate) job: JobId,
    /// Its answer is wrong.
    pub(crate) wrong: bool,
    /// The end of the job that the instance does next.
    pub(crate) next: Option<End>,
}

impl Cluster {
    pub(crate) fn new(instances: u32, schedule: Schedule, service: Service, seed: u64) -> Self {
        let instances = vec![Instance::default(); instances as usize];
        Self { schedule, service, seed, instances, busy: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.instances.len() as u32
    }

    /// The dispatcher's name for an instance: another one after every restart.
    pub(crate) fn id(&self, instance: u32) -> InstanceId {
        InstanceId(self.instances[instance as usize].restarts * self.len() + instance)
    }

    /// The instance of this name.
    pub(crate) fn of(&self, id: InstanceId) -> u32 {
        if id.0 < self.len() { id.0 } else { id.0 % self.len() }
    }

    /// Gives an instance a job. Returns its end, if it starts now and ends at all.
    pub(crate) fn give(&mut self, instance: u32, work: Work, now: Moment) -> Option<End> {
        let here = &mut self.instances[instance as usize];
        if here.running.is_some() {
            here.waiting.push_back(work);
            return None;
        }
        self.start(instance, work, now)
    }

    /// Takes back a job that has not started.
    pub(crate) fn take_back(&mut self, instance: u32, job: JobId) -> bool {
        let waiting = &mut self.instances[instance as usize].waiting;
        let before = waiting.len();
        waiting.retain(|work| work.job != job);
        waiting.len() < before
    }

    /// A noted end has come. `None` if the instance was restarted meanwhile.
    pub(crate) fn end(&mut self, end: End) -> Option<EndedJob> {
        let here = self.instances.get_mut(end.instance as usize)?;
        if here.restarts != end.restarts {
            return None;
        }
        let Running { job, since, wrong } = here.running.take()?;
        self.busy += end.at.nanos_since(since);
        let next = here.waiting.pop_front().and_then(|work| self.start(end.instance, work, end.at));
        Some(EndedJob { job, wrong, next })
    }

    /// An instance goes down with what it holds. Returns when it could be back.
    pub(crate) fn crash(&mut self, instance: u32, now: Moment) -> Moment {
        let here = &mut self.instances[instance as usize];
        if let Some(running) = here.running.take() {
            self.busy += now.nanos_since(running.since);
        }
        here.waiting.clear();
        here.restarts += 1;
        self.schedule.condition(instance, now).until
    }

    /// Whether an instance is down, and until when.
    pub(crate) fn down_until(&mut self, instance: u32, now: Moment) -> Option<Moment> {
        let condition = self.schedule.condition(instance, now);
        (condition.state == State::Down).then_some(condition.until)
    }

    /// When an instance goes down next.
    pub(crate) fn next_crash(&mut self, instance: u32, now: Moment) -> Option<Moment> {
        self.schedule.next_crash(instance, now).map(|(from, _)| from)
    }

    /// When a probe comes back, if it does.
    pub(crate) fn probe(&mut self, instance: u32, now: Moment) -> Option<Moment> {
        self.schedule.probe(instance, now)
    }

    fn start(&mut self, instance: u32, work: Work, now: Moment) -> Option<End> {
        let run = service::Run { seed: self.seed, instance, start: now };
        let nanos = work.share * self.service.nanos(work.rows, run);
        self.schedule.forget(instance, now);
        let ending = self.schedule.run(instance, now, nanos);
        let here = &mut self.instances[instance as usize];
        let wrong = matches!(ending, Ending::Answered { wrong: true, .. });
        here.running = Some(Running { job: work.job, since: now, wrong });
        match ending {
            Ending::Answered { at, .. } => Some(End { instance, restarts: here.restarts, at }),
            // The crash itself is noted, and takes the job with it.
            Ending::Lost { .. } | Ending::Never => None,
        }
    }
}
