//! Frontends that tell each other what they hold at instances that give no tokens.

use std::collections::{BTreeMap, BTreeSet};

use parm_dispatch::{Elsewhere, Event, JobId};
use parm_workload::clock::Moment;

use crate::engine::{Engine, Happening, ToFront};

/// What a frontend has to tell, and what it has heard.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Where its jobs are.
    jobs: BTreeMap<JobId, u32>,
    /// Instances of which it has news.
    changed: BTreeSet<u32>,
    /// It tells next then.
    tells_at: Option<Moment>,
    told_at: Moment,
    /// Jobs that others hold, by instance and neighbour.
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
    /// A frontend gave a job to an instance.
    pub(crate) fn holds(&mut self, front: u32, job: JobId, instance: u32) {
        if self.run.fleet.neighbours.is_some() {
            self.front(front).neighbours.jobs.insert(job, instance);
            self.has_news(front, instance);
        }
    }

    /// It holds it no more.
    pub(crate) fn lets_go(&mut self, front: u32, job: JobId) {
        if let Some(instance) = self.front(front).neighbours.jobs.remove(&job) {
            self.has_news(front, instance);
        }
    }

    /// An instance is gone, and all jobs with it.
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

    /// A frontend tells all others.
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

    /// That arrives.
    pub(crate) fn heard(&mut self, front: u32, from: u32, instance: u32, jobs: u16) {
        self.front(front).neighbours.heard.insert((instance, from), jobs);
        self.minds_neighbours(front, instance);
    }

    /// A frontend's dispatcher learns what others have to do with an instance.
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
