//! An instance as the dispatcher knows it: its pools, its jobs, and its health.

use std::num::NonZeroU16;
use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Elsewhere, InstanceId, Site, Time, times};
use crate::measure::concurrency::Concurrency;
use crate::measure::doubt::Doubt;
use crate::measure::health::Health;
use crate::measure::speed::Speed;
use crate::state::idle::Room;
use crate::state::keys::{JobKey, PoolKey};
use crate::state::tokens::Tokens;

/// An instance that joined and has not left.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) site: Site,
    pub(crate) slots: u16,
    /// Evidence for its best number of slots, if that is learned.
    pub(crate) concurrency: Option<Box<Concurrency>>,
    /// Batches that it may hold for each slot.
    pub(crate) ahead: u16,
    /// The time of its last completion, or of a job sent to it when it was empty or as the first to wait.
    pub(crate) heard: Time,
    /// It holds queued batches and has completed nothing for too long.
    pub(crate) silent: bool,
    /// A silence timer is set.
    pub(crate) watched: bool,
    pub(crate) serves: SmallVec<[Serves; 2]>,
    pub(crate) jobs: SmallVec<[JobKey; 2]>,
    /// Those of its jobs that wait behind others, as far as known.
    pub(crate) behind: SmallVec<[JobKey; 2]>,
    pub(crate) draining: bool,
    /// Its record over all models.
    pub(crate) health: Health,
    /// Its tokens, if it gives any. It receives no job without one, except batches queued ahead for a fast model.
    pub(crate) tokens: Option<Tokens>,
    /// Its use by other known frontends.
    pub(crate) elsewhere: Elsewhere,
    /// The time when they last released it.
    pub(crate) released_at: Time,
    /// The end of its slow start.
    pub(crate) warm_at: Option<Time>,
}

/// The work of one pool that an instance may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serves {
    pub(crate) pool: PoolKey,
    pub(crate) deployed: bool,
    pub(crate) parity: bool,
    pub(crate) backup: bool,
    pub(crate) stand_in: bool,
    /// It takes queries of this pool.
    pub(crate) data: bool,
    /// It takes parities and backups of this pool.
    pub(crate) redundancy: bool,
    /// The slots that jobs of this pool may use, if not all.
    pub(crate) at_once: Option<NonZeroU16>,
    /// The jobs of this pool that it holds.
    pub(crate) held: u16,
    /// Batches that this pool lets it hold for each slot; `None` before its first job.
    pub(crate) allowed: Option<u16>,
    /// The evidence for wrong answers.
    pub(crate) doubt: Doubt,
    /// The record of this pool's model on it.
    pub(crate) health: Health,
    /// The speed of the deployed model on it.
    pub(crate) speed: Speed,
    /// The start of the latest run of the deployed model.
    pub(crate) ran_at: Time,
    /// Copies that explored it since it became slow.
    pub(crate) explored: u8,
}

impl Instance {
    /// Whether it takes new work, room aside.
    pub(crate) fn usable(&self) -> bool {
        !self.draining && self.health.in_service()
    }

    /// Whether only slowness keeps it out of service.
    pub(crate) fn slow_only(&self) -> bool {
        !self.draining && self.health.out_for_slowness()
    }

    /// Its room for jobs. During its slow start it never counts as empty, so instances with nothing to do come
    /// first.
    pub(crate) fn room(&self) -> Room {
        let room = match &self.tokens {
            Some(tokens) if tokens.are_needed() => tokens.is_there() || self.has_room_ahead(tokens.sharers()),
            _ => self.jobs.len() + usize::from(self.elsewhere.jobs) < self.most_held(),
        };
        match self.jobs.len() {
            _ if !room || !self.usable() => Room::None,
            0 if self.warm_at.is_none()
                && self.is_ours()
                && self.tokens.as_ref().is_none_or(Tokens::is_ready) =>
            {
                Room::Empty
            }
            _ => Room::Partial,
        }
    }

    pub(crate) fn serves(&self, pool: PoolKey) -> Option<&Serves> {
        self.serves.iter().find(|serves| serves.pool == pool)
    }
}

impl Serves {
    /// Whether it takes queries of this pool, while the instance is usable.
    pub(crate) fn takes_queries(&self) -> bool {
        self.data && self.health.in_service()
    }

    /// Whether it holds the stand-in and not the deployed model: outages of the deployed model spare it.
    pub(crate) fn is_apart(&self) -> bool {
        self.stand_in && !self.deployed
    }

    /// The time that a run which took so long here takes at an instance of usual speed.
    pub(crate) fn at_usual_speed(&self, took: Duration) -> Duration {
        times(took, f64::from(self.speed.factor()).recip())
    }

    /// Whether it takes stand-ins of this pool, while the instance is usable.
    pub(crate) fn takes_stand_ins(&self) -> bool {
        self.stand_in && (self.data || self.is_apart()) && self.health.in_service()
    }

    /// Whether it takes nothing else than parities and backups of this pool, while the instance is usable.
    pub(crate) fn is_kept(&self) -> bool {
        self.takes_redundancy() && !self.data
    }

    /// Whether it takes parities and backups of this pool, while the instance is usable.
    pub(crate) fn takes_redundancy(&self) -> bool {
        self.redundancy && self.health.in_service()
    }
}

impl Instance {
    /// Sets the limit of one of its pools. Returns whether its own limit changes.
    pub(crate) fn allow(&mut self, pool: PoolKey, allowed: u16) -> bool {
        let Some(serves) = self.serves.iter_mut().find(|serves| serves.pool == pool) else { return false };
        if serves.allowed == Some(allowed) {
            return false;
        }
        serves.allowed = Some(allowed);
        self.limit()
    }

    /// Ends its service of a pool. Returns whether its own limit changes.
    pub(crate) fn leave(&mut self, pool: PoolKey) -> bool {
        self.serves.retain(|serves| serves.pool != pool);
        self.limit()
    }

    /// Adopts the lowest limit of its pools. Returns whether its own limit changes.
    fn limit(&mut self) -> bool {
        let before = self.ahead;
        // Pools without jobs have no limit yet and do not count.
        self.ahead = self.serves.iter().filter_map(|serves| serves.allowed).min().unwrap_or(1);
        self.ahead != before
    }

    /// Batches that it may hold, tokens aside.
    pub(crate) fn most_held(&self) -> usize {
        usize::from(self.slots_told()) * usize::from(if self.silent { 1 } else { self.ahead })
    }

    /// Jobs that it runs at a time, as far as known.
    pub(crate) fn slots_told(&self) -> u16 {
        self.slots.max(self.tokens.as_ref().map_or(0, Tokens::slots))
    }

    /// Whether a pool may use one more of its slots, room aside.
    pub(crate) fn has_place_for(&self, serves: &Serves) -> bool {
        let ahead = if self.silent { 1 } else { self.ahead };
        serves.at_once.is_none_or(|most| serves.held < most.get().saturating_mul(ahead))
    }

    /// Jobs that it runs at a time for all frontends together, as far as known.
    pub(crate) fn capacity(&self) -> u16 {
        self.slots.max(self.tokens.as_ref().map_or(0, |tokens| tokens.told))
    }

    /// The slots among these that jobs of a pool may use.
    pub(crate) fn slots_for(&self, serves: &Serves) -> u16 {
        serves.at_once.map_or(u16::MAX, NonZeroU16::get).min(self.capacity())
    }

    /// Whether it can begin at once or completes jobs at the usual pace. No batch should wait behind a slow one.
    pub(crate) fn is_lively(&self, now: Time, longest: Option<Duration>) -> bool {
        self.can_begin() || longest.is_none_or(|longest| now.since(self.heard) <= longest)
    }

    /// Whether a job that it holds runs instead of waiting behind others.
    pub(crate) fn runs(&self, job: JobKey) -> bool {
        self.jobs.contains(&job) && !self.behind.contains(&job)
    }

    /// Whether a job that is sent now runs at once.
    pub(crate) fn can_begin(&self) -> bool {
        self.tokens.as_ref().is_some_and(Tokens::is_there) || self.has_free_slot()
    }

    fn has_free_slot(&self) -> bool {
        self.jobs.len() - self.behind.len() < usize::from(self.slots_told())
    }

    /// Adds a job. Without a token it waits behind those that use all slots. A worker with several instances gives as many
    /// tokens, and how many it has is not known.
    pub(crate) fn add_job(&mut self, job: JobKey, has_token: bool) {
        if !has_token && !self.has_free_slot() {
            self.behind.push(job);
        }
        self.jobs.push(job);
    }

    /// Removes a job. Returns the waiting job that begins now, if any.
    pub(crate) fn remove_job(&mut self, job: JobKey) -> Option<JobKey> {
        let ran = self.runs(job);
        self.jobs.retain(|held| *held != job);
        self.behind.retain(|held| *held != job);
        (ran && !self.behind.is_empty()).then(|| self.behind.remove(0))
    }

    /// Lets waiting jobs run for which there is a slot by now. Those that run go on if it has fewer.
    pub(crate) fn use_slots(&mut self) {
        while !self.behind.is_empty() && self.has_free_slot() {
            self.behind.remove(0);
        }
    }

    pub(crate) fn holds_more_than_it_runs(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Whether a batch may be queued ahead without a token.
    pub(crate) fn has_room_ahead(&self, sharers: u16) -> bool {
        self.ahead > 1 && !self.silent && self.jobs.len() < self.most_held() / usize::from(sharers.max(1))
    }

    /// Whether this frontend can use it without competing with another. With tokens the worker decides.
    pub(crate) fn is_ours(&self) -> bool {
        self.tokens.is_some() || self.elsewhere.is_idle()
    }

    /// Whether only the jobs of other frontends keep a job away.
    pub(crate) fn others_fill_it(&self) -> bool {
        self.elsewhere.jobs > 0
            && self.jobs.len() < self.most_held()
            && self.usable()
            && self.tokens.as_ref().is_none_or(|tokens| !tokens.are_needed())
    }
}
