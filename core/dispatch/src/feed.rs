//! Work finds an instance: the pull queue of a pool, in order of urgency.
//!
//! Between events no instance has room for work that waits. So new work needs only look for an instance, and an
//! instance with room only for work; nobody searches both ways.

use parm_tokens::Class;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{self, Extra, Purpose};
use super::idle::Room;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::query::Aid;
use super::query::{Keys, Query};
use super::queue::LaneId;
use super::stand_ins::StandInLine;
use super::timers::Timer;
use super::{Action, Payer, Role, Rows, payer};

/// A job about to be started.
pub(super) struct Start {
    pub(super) pool: Key<Pool>,
    pub(super) instance: Key<Instance>,
    pub(super) role: Role,
    pub(super) rows: Keys,
    pub(super) class: Class,
    /// Why it runs in addition to another job of its queries, or after one; none for a first job and for a stand-in.
    pub(super) purpose: Option<Purpose>,
}

impl Dispatcher {
    /// Gives a pool's work to whoever has room for it.
    pub(super) fn feed(&mut self, key: Key<Pool>) {
        self.feed_stand_ins(key, StandInLine::Late);
        self.feed_extras(key, extra::Class::Urgent);
        self.feed_queue(key);
    }

    /// Starts a query that just came, if nothing is before it, it is a batch by itself and somebody has room: then it
    /// need not be queued to be taken out again. Most are such where batches have one query.
    pub(super) fn started_at_once(&mut self, key: Key<Pool>, query: Key<Query>) -> bool {
        let pool = &mut self.pools[key];
        let batch = pool.in_force.batch.max_size.get() == 1 || !self.queries[query].codable;
        if !batch || pool.queue.waiting() > 0 {
            return false;
        }
        let Some(instance) = self.next_with_room(key) else { return false };
        let mut rows = Keys::new();
        rows.push(query);
        self.start_batch(key, instance, rows);
        self.feed_spare(key);
        true
    }

    /// Gives queries that wait, and what goes with them, to whoever has room.
    pub(super) fn feed_queue(&mut self, key: Key<Pool>) {
        while let Some((_, lane)) = self.next_lane(key) {
            let Some(instance) = self.next_with_room(key) else {
                self.seek(key);
                self.recall(key);
                return;
            };
            self.start_batch_of(key, instance, lane);
        }
        self.wait_for_company(key);
        self.feed_spare(key);
    }

    /// Gives a pool's spare work to whoever has nothing else to do.
    fn feed_spare(&mut self, key: Key<Pool>) {
        self.feed_extras(key, extra::Class::Spare);
        self.feed_stand_ins(key, StandInLine::Doubtful);
        self.feed_stand_ins(key, StandInLine::Early);
    }

    /// Gives an instance what it has room for.
    pub(super) fn feed_instance(&mut self, key: Key<Instance>) {
        if !self.has_work_for(key) {
            return;
        }
        while self.instances.get(key).is_some_and(|instance| instance.room() != Room::None) {
            let fed = self.take_what_waits(key)
                || self.take_extra(key, extra::Class::Spare)
                || self.take_stand_in(key, StandInLine::Doubtful)
                || self.take_stand_in(key, StandInLine::Early);
            if !fed {
                break;
            }
        }
        // Batches that were started may have brought copies, for which another instance has room.
        let pools: usize = self.instances.get(key).map_or(0, |instance| instance.serves.len());
        for index in 0..pools {
            let pool = self.instances[key].serves[index].pool;
            self.wait_for_company(pool);
            self.feed_spare(pool);
        }
    }

    /// Gives an instance the most urgent job that is not spare.
    pub(super) fn take_what_waits(&mut self, key: Key<Instance>) -> bool {
        (self.reserved_waits(key) && self.take_batch(key))
            || self.take_stand_in(key, StandInLine::Late)
            || self.take_extra(key, extra::Class::Urgent)
            || self.take_batch(key)
    }

    /// Whether anything waits in a pool that an instance serves: mostly nothing does.
    fn has_work_for(&self, key: Key<Instance>) -> bool {
        let Some(instance) = self.instances.get(key) else { return false };
        instance.serves.iter().any(|serves| self.pools[serves.pool].has_work())
    }

    /// Batches that had to wait for company are old enough.
    pub(super) fn batch_is_old(&mut self, key: Key<Pool>) {
        if let Some(pool) = self.pools.get_mut(key) {
            pool.batch_timer = None;
            self.feed_queue(key);
        }
    }

    /// Gives an instance a batch: of the share that has not taken what is reserved for it, then of the one that has had least of
    /// the instances' time for its weight, then the oldest.
    fn take_batch(&mut self, key: Key<Instance>) -> bool {
        let mut best: Option<(_, _, _)> = None;
        for serves in self.instances[key].serves.iter().filter(|serves| serves.takes_queries()) {
            if let Some((rank, lane)) = self.next_lane(serves.pool)
                && best.as_ref().is_none_or(|(first, ..)| rank < *first)
            {
                best = Some((rank, serves.pool, lane));
            }
        }
        let Some((_, pool, lane)) = best else { return false };
        self.start_batch_of(pool, key, lane);
        true
    }

    fn start_batch_of(&mut self, key: Key<Pool>, instance: Key<Instance>, lane: LaneId) {
        self.give_up_hopeless(key, lane);
        let pool = &mut self.pools[key];
        let most = pool.in_force.batch.max_size.get();
        let waits = |query| self.queries.get(query).is_some_and(|query| query.queued);
        let rows = pool.queue.take(lane, most, waits);
        self.book.leave(&lane.payer, rows.len() as u32);
        self.start_batch(key, instance, rows);
    }

    fn start_batch(&mut self, key: Key<Pool>, instance: Key<Instance>, rows: Keys) {
        let pool = &mut self.pools[key];
        let utilisation = pool.utilisation(self.now);
        let along = pool.policy.along(utilisation);
        let job = self.start(Start {
            pool: key,
            instance,
            role: Role::Deployed,
            rows,
            class: Class::Query,
            purpose: None,
        });
        self.join_group(key, job, along);
        self.note_started(key, job);
        for _ in 0..along.copies {
            let pool = &self.pools[key];
            if pool.spare.len() < pool.settings.spare_limit.get() as usize {
                self.add_extra(key, extra::Class::Spare, Extra::copy(self.jobs[job].rows.clone()));
            }
        }
        if along.backup {
            self.add_backup(key, self.jobs[job].rows.clone());
        }
    }

    /// Starts a job.
    pub(super) fn start(&mut self, start: Start) -> Key<Job> {
        let Start { pool: pool_key, instance: instance_key, role, rows, class, purpose } = start;
        let fresh = role == Role::Deployed && purpose.is_none();
        let payer = self.payer(pool_key, role, &rows);
        let charge = self.book.begin(&payer, &self.pools[pool_key].id, payer::work(role));
        let alone = self.instances[instance_key].jobs.is_empty();
        let key = self.jobs.insert(Job {
            alone,
            pool: pool_key,
            instance: instance_key,
            role,
            started: self.now,
            payer,
            charge,
            waiting: rows.len() as u16,
            rows,
            group: None,
            ended: false,
            dropped: false,
            began: self.now,
            excused: false,
            hedge: purpose == Some(Purpose::Hedge),
            late: false,
            look_at: None,
            twins: Vec::new(),
        });
        let rows = &self.jobs[key].rows;
        let mut ids = Rows::new();
        for query in rows {
            let query = &mut self.queries[*query];
            match role {
                Role::Backup => query.backup = Some(key),
                Role::StandIn(_) => (query.aid, query.aids) = (Aid::Runs(key), query.aids + 1),
                _ => {
                    query.queued = false;
                    query.jobs.push(key);
                }
            }
            ids.push(query.id);
        }
        let place = rows.first().and_then(|query| self.queries[*query].place);
        let group = match role {
            Role::Parity(group, _) => Some(Key::from(group)),
            Role::Backup | Role::StandIn(_) => None,
            Role::Deployed | Role::Copy => place.map(|place| place.group),
        };
        if let Some(group) = group {
            self.note_place(group, key);
        }
        let count = ids.len();
        let instance = &mut self.instances[instance_key];
        if alone {
            instance.heard = self.now;
        }
        instance.jobs.push(key);
        instance.allow(pool_key, self.pools[pool_key].allowed_ahead());
        let token = instance.tokens.as_mut().and_then(|tokens| tokens.spend(role));
        if !alone {
            self.watch_silence(instance_key);
        }
        let instance = &mut self.instances[instance_key];
        let (id, pool) = (key.id(), self.pools[pool_key].id);
        let job = super::JobSpec { id, instance: instance.id, pool, role, payer, class, token };
        self.out.push(Action::Run(job, ids));
        self.refresh(instance_key);

        let pool = &mut self.pools[pool_key];
        pool.running += 1;
        pool.counters.jobs += 1;
        if fresh {
            pool.load.note(self.now);
            pool.hedges.earn();
            pool.retries.earn();
            if let Some(stand_ins) = &mut pool.stand_ins {
                (0..count).for_each(|_| stand_ins.work.earn());
            }
        }
        pool.counters.parities += u64::from(matches!(role, Role::Parity(..)));
        // What waits there behind others is late after its turn came.
        match role {
            Role::StandIn(_) => self.watch_stand_in(key),
            _ if self.instances[instance_key].runs(key) => self.begin(key),
            _ => {}
        }
        key
    }

    /// Who pays for a job.
    fn payer(&self, pool: Key<Pool>, role: Role, rows: &Keys) -> Payer {
        let of_group = || match role {
            Role::Parity(group, _) => self.groups.get(Key::from(group)).map(|group| group.payer),
            _ => None,
        };
        let first = rows.first().and_then(|query| self.queries.get(*query)).map(|query| query.payer);
        first.or_else(of_group).unwrap_or(Payer::Model(self.pools[pool].id))
    }

    /// Sets the timer for a batch that waits for company while there is room for it.
    fn wait_for_company(&mut self, key: Key<Pool>) {
        let pool = &mut self.pools[key];
        if pool.queue.waiting() == 0 || (pool.idle.is_empty() && self.givers == 0 && self.crowded == 0) {
            return;
        }
        let Some(at) = pool.queue.ready_at(&pool.in_force.batch) else { return };
        if pool.batch_timer.is_none_or(|set| at < set) {
            pool.batch_timer = Some(at);
            self.timers.set(at, Timer::Batch(key));
        }
    }
}
