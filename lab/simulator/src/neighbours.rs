//! Frontends that report to each other what they hold at instances without tokens.

use std::collections::{BTreeMap, BTreeSet};

use parm_dispatch::{Elsewhere, Event, JobId};
use parm_workload::clock::Moment;

use crate::engine::{Engine, Happening, ToFront};

/// The pending reports of a frontend, and those that it received.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The instance of each of its jobs.
    jobs: BTreeMap<JobId, u32>,
    /// Instances whose number of jobs has changed.
    changed: BTreeSet<u32>,
    /// The time of its next report.
    tells_at: Option<Moment>,
    told_at: Moment,
    /// Jobs of other frontends, by instance and frontend.
    heard: BTreeMap<(u32, u32), u16>,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            changed: BTreeSet::new(),
            tells_at: None,
            told_at: Moment::START,
            heard: BTreeMap::new(),
        }
    }
}

impl Engine<'_> {
    /// Records that a frontend gave a job to an instance.
    pub(crate) fn holds(&mut self, front: u32, job: JobId, instance: u32) {
        if self.run.fleet.neighbours.is_some() {
            self.front(front).neighbours.jobs.insert(job, instance);
            self.has_news(front, instance);
        }
    }

    /// Records that the job ended.
    pub(crate) fn lets_go(&mut self, front: u32, job: JobId) {
        if let Some(instance) = self.front(front).neighbours.jobs.remove(&job) {
            self.has_news(front, instance);
        }
    }

    /// Records that an instance crashed with all its jobs.
    pub(crate) fn loses(&mut self, front: u32, instance: u32) {
        let neighbours = &mut self.front(front).neighbours;
        neighbours.jobs.retain(|_, at| *at != instance);
        neighbours.heard.retain(|(at, _), _| *at != instance);
    }

    fn has_news(&mut self, front: u32, instance: u32) {
        let Some(every) = self.run.fleet.neighbours else { return };
        let now = self.now;
        let neighbours = &mut self.front(front).neighbours;
        neighbours.changed.insert(instance);
        if neighbours.tells_at.is_none() {
            let at = (neighbours.told_at + every).max(now);
            neighbours.tells_at = Some(at);
            self.note(at, Happening::Tells(front));
        }
    }

    /// Sends a frontend's report to all others.
    pub(crate) fn tells(&mut self, front: u32) {
        let (now, delay) = (self.now, self.run.fleet.delay);
        let neighbours = &mut self.front(front).neighbours;
        (neighbours.tells_at, neighbours.told_at) = (None, now);
        let changed = std::mem::take(&mut neighbours.changed);
        let held = |instance: &u32| neighbours.jobs.values().filter(|at| *at == instance).count() as u16;
        let news: Vec<_> = changed.iter().map(|instance| (*instance, held(instance))).collect();
        for other in (0..self.run.fleet.frontends).filter(|other| *other != front) {
            self.tally.messages += 1;
            for (instance, jobs) in &news {
                self.later(other, delay, ToFront::Heard { from: front, instance: *instance, jobs: *jobs });
            }
        }
    }

    /// Receives such a report.
    pub(crate) fn heard(&mut self, front: u32, from: u32, instance: u32, jobs: u16) {
        self.front(front).neighbours.heard.insert((instance, from), jobs);
        self.minds_neighbours(front, instance);
    }

    /// Passes the jobs of other frontends at an instance to a frontend's dispatcher.
    pub(crate) fn minds_neighbours(&mut self, front: u32, instance: u32) {
        if self.run.fleet.neighbours.is_none() {
            return;
        }
        let heard = self.front(front).neighbours.heard.range((instance, 0)..=(instance, u32::MAX));
        let jobs = heard.map(|(_, jobs)| jobs).sum();
        let home = instance % self.run.fleet.frontends.max(1) == front;
        let id = self.cluster.id(instance);
        self.tell(front, Event::HeldElsewhere(id, Elsewhere { jobs, home }));
    }
}
