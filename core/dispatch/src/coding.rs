//! A coding group's way from its first member to its parities, and its end.
//!
//! A batch joins when it is started, never before: coding must not delay anything. Parities are made when the group is
//! full or old, wait for an instance that holds none of the group, and are dropped once nobody could use them.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra, Purpose};
use super::group::{Code, Decoding, Group, Member, Parity, Place, Slot, Stage, Watch};
use super::job::Job;
use super::policy::Along;
use super::pool::Pool;
use super::query::Keys;
use super::timers::Timer;
use super::{Accept, Action, Role, Rows, Step};

/// Groups of one pool that may be open at a time: one for each shape, and no client should make us keep more.
const OPEN_AT_ONCE: usize = 64;

impl Dispatcher {
    /// A batch that was just started joins its pool's open group.
    pub(super) fn join_group(&mut self, pool_key: Key<Pool>, job: Key<Job>, along: Along) {
        let Some(k) = along.group else { return };
        let first = self.jobs[job].rows.first();
        let Some(first) = first.map(|query| &self.queries[*query]) else { return };
        let (shape, payer) = (first.shape, first.payer);
        if !first.codable {
            return; // served alone, so it is the whole batch
        }
        let open = self.pools[pool_key].open.iter().find(|(of, _)| *of == shape).map(|(_, group)| *group);
        let key = match open {
            Some(key) => key,
            None if self.pools[pool_key].open.len() >= OPEN_AT_ONCE => return,
            None => {
                let pool = &mut self.pools[pool_key];
                let Some(code) = code(pool, k, along) else { return };
                let key = self.groups.insert(Group::new(pool_key, payer, code, self.now));
                pool.open.push((shape, key));
                self.timers.set(self.now + pool.settings.coding.max_age, Timer::Age(key));
                key
            }
        };
        let instance = self.jobs[job].instance;
        let shares = |held: &Key<Job>| self.jobs.get(*held).is_some_and(|held| held.instance == instance);
        if self.groups[key].jobs.iter().any(shares) {
            return; // an instance that dies must not take two members with it
        }
        self.add_member(key, job);
        if self.groups[key].full() {
            self.close(key);
        }
    }

    fn add_member(&mut self, key: Key<Group>, job: Key<Job>) {
        let group = &mut self.groups[key];
        let slot = group.slots.len() as u8;
        group.slots.push(Slot { members: smallvec::SmallVec::new() });
        let Some(Slot { members }) = group.slots.last_mut() else { return };
        for (row, query_key) in self.jobs[job].rows.iter().enumerate() {
            let query = &mut self.queries[*query_key];
            query.place = Some(Place { group: key, slot, row: row as u16 });
            members.push(Member {
                id: query.id,
                query: *query_key,
                open_minded: query.accept == Accept::Any,
                prediction: None,
                by: None,
                decoding: Decoding::No,
                made: None,
            });
        }
        if self.traced {
            let k = group.code.recovery.k as u8;
            for query in self.jobs[job].rows.clone() {
                self.trace(query, Step::Grouped { group: key.id(), k, slot });
            }
        }
        self.note_place(key, job);
    }

    /// A group has its job on an instance.
    pub(super) fn note_place(&mut self, key: Key<Group>, job_key: Key<Job>) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let job = &mut self.jobs[job_key];
        job.group = Some(key);
        let site = self.instances.get(job.instance).map(|instance| instance.site).unwrap_or_default();
        group.jobs.push(job_key);
        group.places.push((job.instance, site));
    }

    /// An open group is old: it is coded as it is, or not at all.
    pub(super) fn group_is_old(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get(key).filter(|group| group.stage == Stage::Open) else { return };
        let pool = &self.pools[group.pool];
        if group.slots.len() >= 2 && pool.settings.coding.parm_plus.partial_groups && !pool.removed {
            self.close(key);
        } else {
            self.finish(key);
        }
    }

    /// The group takes no more members: its parities are made, if anybody could use them.
    fn close(&mut self, key: Key<Group>) {
        self.watch(key);
        let group = &mut self.groups[key];
        if group.watch == Watch::Off && !group.needed(|query| self.queries.contains(query)) {
            self.finish(key);
            return;
        }
        (group.stage, group.closed) = (Stage::Coded, Some(self.now));
        group.encoded = true;
        group.pending += 1;
        let pool = &mut self.pools[group.pool];
        pool.open.retain(|(_, open)| *open != key);
        pool.counters.groups += 1;
        pool.counters.groups_partial += u64::from(!group.full());
        pool.chronicle.made(group.code.recovery.k as u8);
        let batch = |slot: &Slot| slot.members.iter().map(|member| member.id).collect::<Rows>();
        let mut slots: Vec<Rows> = group.slots.iter().map(batch).collect();
        slots.resize(group.code.recovery.k, Rows::new());
        self.out.push(Action::Encode(key.id(), slots));
    }

    /// The driver has made a group's parity queries.
    pub(super) fn encoded(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.pending > 0) else { return };
        group.pending -= 1;
        if group.stage == Stage::Over {
            self.wrap_up(key);
            return;
        }
        let (pool_key, at_once) = (group.pool, group.code.at_once);
        let parities = group.parities.len() as u8;
        let class = if at_once { Class::Urgent } else { Class::Spare };
        for index in 0..parities {
            let pool = &mut self.pools[pool_key];
            if pool.spare.len() >= pool.settings.spare_limit.get() as usize {
                pool.counters.parities_unsent += 1;
                self.groups[key].parities[usize::from(index)] = Parity::Lost;
                continue;
            }
            let extra = Extra {
                role: Role::Parity(key.id(), index),
                rows: Keys::new(),
                avoid: None,
                purpose: Purpose::Spare,
            };
            self.add_extra(pool_key, class, extra);
        }
        self.compare(key);
        self.feed_extras(pool_key, class);
    }

    /// The driver could not encode a group.
    pub(super) fn not_encoded(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.pending > 0) else { return };
        group.pending -= 1;
        self.finish(key);
        self.wrap_up(key);
    }

    /// Ends a group that can help nobody any more.
    pub(super) fn finish_if_useless(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get(key) else { return };
        // An open group may get members that need it yet, and a watched one is needed to compare its outputs.
        let free = group.stage == Stage::Coded && group.watch == Watch::Off;
        if free && !group.needed(|query| self.queries.contains(query)) {
            self.finish(key);
        }
    }

    /// Ends a group: what runs only for its sake is dropped.
    pub(super) fn finish(&mut self, key: Key<Group>) {
        self.unwatch(key);
        let Some(group) = self.groups.get_mut(key).filter(|group| group.stage != Stage::Over) else { return };
        let was = std::mem::replace(&mut group.stage, Stage::Over);
        group.over = Some(self.now);
        let pool = &mut self.pools[group.pool];
        if was == Stage::Open {
            pool.open.retain(|(_, open)| *open != key);
            pool.counters.groups_dissolved += 1;
        }
        for job_key in &group.jobs {
            let Some(job) = self.jobs.get_mut(*job_key) else { continue };
            if job.waiting == 0 && !job.dropped {
                job.dropped = true;
                pool.counters.dropped += 1;
                self.out.push(Action::Drop(job_key.id()));
            }
        }
        self.wrap_up(key);
    }

    /// Forgets a group that is over, once the driver reads nothing of it any more.
    pub(super) fn wrap_up(&mut self, key: Key<Group>) {
        let done = |group: &Group| group.stage == Stage::Over && group.pending == 0;
        if !self.groups.get(key).is_some_and(done) {
            return;
        }
        let Some(group) = self.groups.remove(key) else { return };
        if group.encoded {
            self.chronicle(&group);
            self.out.push(Action::Forget(key.id()));
        }
        for job in &group.outputs {
            self.out.push(Action::Release(job.id()));
        }
    }
}

/// How groups of `k` are coded now; `None` where there is no code for them.
fn code(pool: &Pool, k: u8, along: Along) -> Option<Code> {
    let (settings, in_force) = (&pool.settings.coding, &pool.in_force.coding);
    let recovery = in_force.code(k)?;
    Some(Code {
        recovery,
        min_confidence: in_force.min_confidence,
        unsure: settings.unsure,
        at_once: along.at_once,
        detect: settings.detection.enabled && recovery.parities_to_compare().is_some(),
    })
}
