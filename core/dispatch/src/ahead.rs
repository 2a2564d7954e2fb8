//! How much an instance of a fast model is given ahead of time.
//!
//! Problem: one batch at a time is right for a model of milliseconds. What waits can still go to whoever is free first, or be
//! answered otherwise, and an instance that hangs holds one batch. For a model of microseconds the way there and back takes
//! longer than the run: the instance idles between two batches, and each end of the way is woken for every one of them.
//!
//! Choice: an instance may hold what it does in so long (`ahead_us`), sixteen batches for each of its slots at most. So
//! nobody waits at an instance for longer than that while others are free. Where all hold some, it goes to one that has just done something, of
//! two the one with less; behind a batch that takes long nothing is put. What a batch takes is the median of those that began where nothing else was: measured among
//! others it would hold their time too, and the more an instance was given the slower it would seem. Where instances are
//! shared with other frontends that time is shared as well. An instance that serves several models is given ahead of
//! time what the slowest of those in use allows.
//!
//! Rejected: a setting of slots for each fleet (there is one, and nobody knew that it was needed); a depth that grows for as
//! long as throughput does (it must be searched under load, and an instance that hangs is noticed late); what the server says
//! of its model's times (it does not know the way).
//!
//! "A hung instance holds one batch" stays true: where a job is late and its instance has done nothing for as long as all that it
//! holds should take, what waits there behind the jobs that run goes to others, before what is queued and without asking the hedge
//! budget: it was bound to that instance only because the model is fast. Until the instance does something it gets one at a
//! time. Where it was this process that was away nobody counts as silent. One silence is one bad answer, however many of those
//! that were there come late or fail. What is moved runs twice if the instance comes back, so at most `ahead_us` of work is done once more for each time that an
//! instance is silent for at least as long; and nothing is moved in a crowd, where everybody waits. Policies under which nobody looks
//! whether a job is late, or whose groups live by their members' being apart, give nothing ahead; but for `none`, which is asked for by who
//! wants a pass-through.
//!
//! Cold start: one at a time until sixteen were measured.

use std::time::Duration;

use smallvec::SmallVec;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra, Purpose};
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::quantile::Quantiles;
use super::query::Query;
use super::timers::Timer;
use super::tokens::Tokens;
use super::{Role, Time};

/// Batches that an instance may hold for each of its slots: enough to keep both ends busy.
const MOST: u16 = 16;

/// Where fewer fit, what waits behind a batch that takes long loses more than the way there costs.
const FEWEST: u16 = 4;

/// An instance that is to be given more than it runs has done something within so many times what a batch usually takes.
const LIVELY: f64 = 1.5;

/// Silence is looked at again after no less.
const LEAST: Duration = Duration::from_millis(1);

/// What batches of a pool take where they have an instance to themselves.
pub(super) struct Alone {
    times: Quantiles,
    /// Batches that an instance may hold for each of its slots.
    allowed: u16,
}

impl Default for Alone {
    fn default() -> Self {
        Self { times: Quantiles::new(0.5), allowed: 1 }
    }
}

impl Alone {
    fn add(&mut self, took: Duration, ahead: Duration) {
        self.times.add(took);
        self.allow(ahead);
    }

    /// Another limit from now on.
    pub(super) fn allow(&mut self, ahead: Duration) {
        let allowed = |median: Duration| ahead.as_nanos() / median.as_nanos().max(1);
        let allowed = self.times.reading().map_or(1, |reading| allowed(reading.median));
        let allowed = u16::try_from(allowed).unwrap_or(MOST).clamp(1, MOST);
        self.allowed = if allowed < FEWEST { 1 } else { allowed };
    }

    /// The median, where instances are given more than one at a time.
    pub(super) fn median(&self) -> Option<Duration> {
        self.times.reading().filter(|_| self.allowed > 1).map(|reading| reading.median)
    }
}

impl Dispatcher {
    /// Learns from a job that ended what its instance may be given ahead of time.
    pub(super) fn note_alone(&mut self, job: &Job, now: Time) {
        let pool = &mut self.pools[job.pool];
        if job.alone && job.role == Role::Deployed {
            pool.alone.add(now.since(job.started), pool.ahead());
        }
        let allowed = pool.alone.allowed;
        let Some(instance) = self.instances.get_mut(job.instance) else { return };
        if instance.allow(job.pool, allowed) {
            self.refresh(job.instance);
        }
    }
}

impl Dispatcher {
    /// Sets a timer for when an instance that holds more than it runs counts as silent.
    pub(super) fn watch_silence(&mut self, key: Key<Instance>) {
        let Some(instance) = self.instances.get(key) else { return };
        if instance.watched || !instance.holds_more_than_it_runs() {
            return;
        }
        let at = instance.heard + self.longest_ahead(key);
        self.instances[key].watched = true;
        self.timers.set(at, Timer::Silence(key));
    }

    /// An instance may be silent: then what was given it ahead of time goes to others.
    pub(super) fn nothing_heard(&mut self, key: Key<Instance>) {
        let longest = self.longest_ahead(key);
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.watched = false;
        if !instance.holds_more_than_it_runs() {
            return;
        }
        if self.behind > longest / 2 {
            // It was us who were away: answers may be here that nobody has looked at.
            instance.heard = self.now;
        }
        if self.now.since(instance.heard) < longest {
            self.watch_silence(key);
            return;
        }
        instance.silent = true;
        self.refresh(key);
        if self.move_ahead(key) {
            self.instances[key].watched = true;
            self.timers.set(self.now + longest.max(LEAST), Timer::Silence(key));
        }
    }

    /// Gives what waits at a silent instance to others. Whether some of it stays, for now.
    fn move_ahead(&mut self, key: Key<Instance>) -> bool {
        let instance = &self.instances[key];
        let behind: SmallVec<[Key<Job>; 16]> =
            instance.jobs.iter().skip(usize::from(instance.slots_told())).copied().collect();
        let (mut stays, mut pools) = (false, SmallVec::<[Key<Pool>; 2]>::new());
        for job in behind {
            let Some(Job { pool, rows, role: Role::Deployed | Role::Copy, .. }) = self.jobs.get(job) else {
                continue;
            };
            let (pool, mut rows) = (*pool, rows.clone());
            let of = &self.pools[pool];
            if of.removed || !of.policy.hedges() {
                continue;
            }
            // Copies that wait already may by now take an instance that was kept from them.
            if !pools.contains(&pool) {
                pools.push(pool);
            }
            rows.retain(|query| self.queries.get(*query).is_some_and(|query| self.is_stuck(query)));
            if rows.is_empty() {
                continue;
            }
            if of.crowded() || self.usable_without(key, pool) == 0 {
                stays = true;
                continue;
            }
            self.pools[pool].counters.moved += 1;
            self.add_extra(pool, Class::Urgent, Extra { purpose: Purpose::Moved, ..Extra::copy(rows) });
        }
        pools.into_iter().for_each(|pool| self.feed_extras(pool, Class::Urgent));
        stays
    }

    /// Whether what a job says against its instance was said already, when an earlier one ended there that it was given beside. If
    /// not, it is said for all that the instance holds.
    pub(super) fn is_excused(&mut self, job: &Job) -> bool {
        let Some(instance) = self.instances.get(job.instance).filter(|of| of.ahead > 1) else { return false };
        if !job.excused {
            for held in &instance.jobs {
                if let Some(held) = self.jobs.get_mut(*held) {
                    held.excused = true;
                }
            }
        }
        job.excused
    }

    /// All that a query has is at instances that are silent.
    fn is_stuck(&self, query: &Query) -> bool {
        let silent = |job: &Key<Job>| {
            let instance = self.jobs.get(*job).and_then(|job| self.instances.get(job.instance));
            instance.is_some_and(|instance| instance.silent)
        };
        query.extras == 0 && query.jobs.iter().all(silent)
    }

    /// What an instance holds takes no longer than this, however many models it is of.
    pub(super) fn longest_ahead(&self, key: Key<Instance>) -> Duration {
        let Some(instance) = self.instances.get(key) else { return Duration::ZERO };
        let held = instance.jobs.iter().filter_map(|job| self.jobs.get(*job));
        held.map(|job| self.pools[job.pool].settings.ahead).max().unwrap_or_default()
    }
}

impl Pool {
    /// What an instance may be given ahead of time, under this policy.
    pub(super) fn ahead(&self) -> Duration {
        if self.policy.gives_ahead() { self.settings.ahead } else { Duration::ZERO }
    }

    /// How long ago an instance may have done something last that is given work ahead of time.
    pub(super) fn longest_pause(&self) -> Option<Duration> {
        self.alone.median().map(|median| median.mul_f64(LIVELY))
    }

    /// Batches that an instance may hold for each of its slots, as far as this pool goes.
    pub(super) fn allowed_ahead(&self) -> u16 {
        self.alone.allowed
    }
}

impl Instance {
    /// Notes what one of its pools allows. Whether that changes what it may hold.
    pub(super) fn allow(&mut self, pool: Key<Pool>, allowed: u16) -> bool {
        let Some(serves) = self.serves.iter_mut().find(|serves| serves.pool == pool) else { return false };
        if serves.allowed == Some(allowed) {
            return false;
        }
        serves.allowed = Some(allowed);
        let before = self.ahead;
        // Of pools that nobody uses nothing is known, and nothing has to be.
        self.ahead = self.serves.iter().filter_map(|serves| serves.allowed).min().unwrap_or(1);
        self.ahead != before
    }

    /// Batches that it may hold, tokens aside.
    pub(super) fn most_held(&self) -> usize {
        usize::from(self.slots_told()) * usize::from(if self.silent { 1 } else { self.ahead })
    }

    /// Jobs that it runs at a time, as far as is known.
    fn slots_told(&self) -> u16 {
        self.slots.max(self.tokens.as_ref().map_or(0, Tokens::slots))
    }

    /// Whether it can begin at once, or does what it has as fast as usual: nothing is to wait behind a batch that takes long.
    pub(super) fn is_lively(&self, now: Time, longest: Option<Duration>) -> bool {
        self.jobs.len() < usize::from(self.slots_told())
            || longest.is_none_or(|longest| now.since(self.heard) <= longest)
    }

    /// Whether a job that it holds runs, and does not wait there behind others.
    pub(super) fn runs(&self, job: Key<Job>) -> bool {
        self.jobs.iter().take(usize::from(self.slots_told())).any(|held| *held == job)
    }

    /// Takes a job off. Returns the one whose turn that makes it, if any waited.
    pub(super) fn let_go(&mut self, job: Key<Job>) -> Option<Key<Job>> {
        let ran = self.runs(job);
        self.jobs.retain(|held| *held != job);
        self.jobs.get(usize::from(self.slots_told()) - 1).copied().filter(|_| ran)
    }

    fn holds_more_than_it_runs(&self) -> bool {
        self.jobs.len() > usize::from(self.slots_told())
    }

    /// Whether it may be sent a batch ahead of time without a token.
    pub(super) fn has_room_ahead(&self, sharers: u16) -> bool {
        self.ahead > 1 && !self.silent && self.jobs.len() < self.most_held() / usize::from(sharers.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(micros: u64, ahead: u64) -> u16 {
        let mut alone = Alone::default();
        (0..32).for_each(|_| alone.add(Duration::from_micros(micros), Duration::from_micros(ahead)));
        alone.allowed
    }

    #[test]
    fn an_instance_is_given_what_it_does_in_so_long() {
        assert_eq!(allowed(20_000, 1000), 1, "a model of milliseconds has one");
        assert_eq!((allowed(1500, 1000), allowed(300, 1000)), (1, 1));
        assert_eq!(allowed(240, 1000), 4);
        assert_eq!(allowed(10, 1000), MOST);
        assert_eq!(allowed(0, 1000), MOST);
        assert_eq!(allowed(10, 0), 1, "where it is off");
    }

    #[test]
    fn nothing_is_given_ahead_before_times_are_known() {
        let mut alone = Alone::default();
        (0..15).for_each(|_| alone.add(Duration::from_micros(10), Duration::from_millis(1)));
        assert_eq!((alone.allowed, alone.median()), (1, None));
        alone.add(Duration::from_micros(10), Duration::from_millis(1));
        assert_eq!(alone.allowed, MOST);
        alone.allow(Duration::ZERO);
        assert_eq!(alone.allowed, 1);
    }
}
