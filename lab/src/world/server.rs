//! Servers with queues: so many jobs run at a time, the others wait in the order of arrival.

use std::collections::VecDeque;

use parm_dispatcher::Time;
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Error, Schedule};

use crate::world::Plan;

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
