//! Reservations at instances whose tokens are elsewhere: what a pool does whose work finds no room.
//!
//! It reserves at a few instances for each job that waits, at more as time passes, and withdraws when nothing waits any more.
//! First it reserves where it runs nothing itself: its own jobs bring tokens of their own accord.
//!
//! Rejected: a reservation for each query by name, fetched by that name. Queries of a pool are alike, so whichever is first
//! takes the token; and a name would have to be withdrawn at every worker whenever a query is answered otherwise.

use smallvec::SmallVec;

use parm_tokens::{Class, Note, Order};

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::instance::Instance;
use super::pool::Pool;
use super::stand_ins::StandInLine;
use super::timers::Timer;
use super::{Action, Payer, Time, Wanted};

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pool: Key<Pool>,
    payer: Payer,
    class: Class,
    since: Time,
    note: Note,
}

/// A pool's reservations.
#[derive(Clone, Debug, Default)]
pub(super) struct Asking {
    reserved: ByPayer,
    /// By how many more it is to reserve than when it began.
    widened: u32,
    /// It is in the list of those that ask.
    listed: bool,
    /// A timer is set to ask for more.
    timed: bool,
}

/// Jobs, by who pays and by class: late, and queries. There is nearly always one who pays.
#[derive(Clone, Debug, Default)]
struct ByPayer(SmallVec<[(Payer, [u32; 2]); 1]>);

impl ByPayer {
    fn of(&self, payer: Payer) -> [u32; 2] {
        self.0.iter().find(|(known, _)| *known == payer).map_or([0, 0], |(_, jobs)| *jobs)
    }

    fn count(&mut self, payer: Payer, class: Class) -> &mut u32 {
        let at = self.0.iter().position(|(known, _)| *known == payer).unwrap_or_else(|| {
            self.0.push((payer, [0, 0]));
            self.0.len() - 1
        });
        &mut self.0[at].1[usize::from(class.byte())]
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, jobs)| *jobs == [0, 0])
    }
}

impl Dispatcher {
    /// An instance that gives tokens takes work (again): what waits in its pools may reserve there.
    pub(super) fn seek_for_all(&mut self, key: Key<Instance>) {
        self.bear_neighbours_of(key);
        if self.givers > 0 {
            let serves = &self.instances[key].serves;
            let pools: SmallVec<[_; 2]> = serves.iter().map(|serves| serves.pool).collect();
            pools.into_iter().for_each(|pool| self.seek(pool));
        }
    }

    /// A pool's work has found no room.
    pub(super) fn seek(&mut self, key: Key<Pool>) {
        self.bear_neighbours(key);
        if self.givers > 0 && !std::mem::replace(&mut self.pools[key].asking.listed, true) {
            self.asking.push(key);
        }
    }

    /// Reserves for the pools that ask, and withdraws for those that want nothing any more.
    pub(super) fn reserve(&mut self) {
        let mut at = 0;
        while let Some(key) = self.asking.get(at).copied() {
            if self.pools.contains(key) && self.reserve_for(key) {
                at += 1;
                continue;
            }
            self.asking.swap_remove(at);
            if let Some(pool) = self.pools.get_mut(key) {
                (pool.asking.listed, pool.asking.widened) = (false, 0);
            }
            self.withdraw_reservations(key);
        }
    }

    /// Reserves for what waits in a pool. False if nothing does.
    fn reserve_for(&mut self, key: Key<Pool>) -> bool {
        let wanted = self.wanted_at_once(key);
        if wanted.is_empty() {
            return false;
        }
        let pool = &mut self.pools[key];
        let each = u32::from(pool.settings.tokens.reservations.get());
        let widen = pool.settings.tokens.widen;
        let asking = &mut pool.asking;
        let widened = asking.widened;
        let goal = |wanted: u32| if wanted == 0 { 0 } else { wanted.saturating_mul(each) + widened };
        if !std::mem::replace(&mut asking.timed, true) {
            self.timers.set(self.now + widen, Timer::Widen(key));
        }
        for (payer, jobs) in &wanted.0 {
            let reserved = self.pools[key].asking.reserved.of(*payer);
            let missing = [0, 1].map(|class| goal(jobs[class]).saturating_sub(reserved[class]));
            for (class, missing) in [Class::Late, Class::Query].into_iter().zip(missing) {
                if missing > 0 {
                    self.reserve_more(key, *payer, class, missing);
                }
            }
        }
        // Who wants nothing any more must not hold a place for others.
        let stale = |(payer, jobs): &(Payer, [u32; 2])| {
            (*jobs != [0, 0] && wanted.of(*payer) == [0, 0]).then_some(*payer)
        };
        let stale: SmallVec<[Payer; 1]> =
            self.pools[key].asking.reserved.0.iter().filter_map(stale).collect();
        if !stale.is_empty() {
            self.withdraw_of(key, |payer| stale.contains(&payer));
        }
        true
    }

    /// Reserves at so many instances more, from a random one on: where frontends begin at the same, they all wait there.
    fn reserve_more(&mut self, key: Key<Pool>, payer: Payer, class: Class, mut missing: u32) {
        let pool = &mut self.pools[key];
        if *pool.asking.reserved.count(payer, class) >= pool.usable {
            return;
        }
        let keys = self.instances.keys();
        let from = (self.random() * keys.len() as f64) as usize;
        for runs_ours in [false, true] {
            for at in 0..keys.len() {
                let at = keys[(from + at) % keys.len()];
                let now = self.now;
                let instance = &mut self.instances[at];
                let suits = instance.usable()
                    && instance.jobs.is_empty() != runs_ours
                    && instance.serves(key).is_some_and(|serves| serves.takes_queries());
                let Some(tokens) = instance.tokens.as_mut().filter(|_| suits) else { continue };
                let known = |asked: &Asked| (asked.pool, asked.payer, asked.class) == (key, payer, class);
                if tokens.is_ready() || tokens.asked.iter().any(known) {
                    continue;
                }
                if missing == 0 {
                    return;
                }
                missing -= 1;
                self.noted = self.noted.wrapping_add(1).max(1);
                let note = Note(self.noted);
                tokens.asked.push(Asked { pool: key, payer, class, since: now, note });
                let (pool, id) = (&mut self.pools[key], instance.id);
                *pool.asking.reserved.count(payer, class) += 1;
                let wanted = Wanted { pool: pool.id, payer };
                self.out.push(Action::Tell(id, Order::Reserve(wanted, class, note)));
            }
        }
    }

    /// What waits has waited so long that more instances are asked; and those that may not have heard once more.
    pub(super) fn widen(&mut self, key: Key<Pool>) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        pool.asking.timed = false;
        if !pool.asking.listed {
            return;
        }
        let (each, most) = (u32::from(pool.settings.tokens.reservations.get()), pool.usable);
        pool.asking.widened = (pool.asking.widened + each).min(most);
        let (now, renew) = (self.now, pool.settings.tokens.renew);
        for instance in self.instances.keys() {
            let Some(tokens) = &mut self.instances[instance].tokens else { continue };
            let asking = &mut self.pools[key].asking;
            tokens.asked.retain(|asked| {
                let stays = asked.pool != key || asked.since + renew > now;
                *asking.reserved.count(asked.payer, asked.class) -= u32::from(!stays);
                stays
            });
        }
    }

    /// Takes a pool's reservations back.
    fn withdraw_reservations(&mut self, key: Key<Pool>) {
        if self.pools.get(key).is_some_and(|pool| pool.asking.reserved.is_empty()) {
            return;
        }
        self.withdraw_of(key, |_| true);
        if let Some(pool) = self.pools.get_mut(key) {
            pool.asking.reserved.0.clear();
        }
    }

    /// Takes those reservations of a pool back that these would pay for.
    fn withdraw_of(&mut self, key: Key<Pool>, which: impl Fn(Payer) -> bool) {
        let id = self.pools.get(key).map(|pool| pool.id);
        for instance in self.instances.keys() {
            let instance = &mut self.instances[instance];
            let Some(tokens) = &mut instance.tokens else { continue };
            let mut gone: SmallVec<[Payer; 1]> = SmallVec::new();
            tokens.asked.retain(|asked| {
                let goes = asked.pool == key && which(asked.payer);
                if goes && !gone.contains(&asked.payer) {
                    gone.push(asked.payer);
                }
                !goes
            });
            let orders = gone.into_iter().filter_map(|payer| Some(Wanted { pool: id?, payer }));
            self.out.extend(orders.map(|wanted| Action::Tell(instance.id, Order::Withdraw(wanted))));
        }
        if let Some(pool) = self.pools.get_mut(key) {
            pool.asking.reserved.0.retain(|(payer, _)| !which(*payer));
        }
    }

    /// An instance's reservations are met, or void.
    pub(super) fn clear_reservations(&mut self, key: Key<Instance>) {
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        for asked in std::mem::take(&mut tokens.asked) {
            if let Some(pool) = self.pools.get_mut(asked.pool) {
                *pool.asking.reserved.count(asked.payer, asked.class) -= 1;
            }
        }
    }

    /// The reservation of this note at an instance: its pool, and who pays.
    pub(super) fn reserved_as(&self, key: Key<Instance>, note: Note) -> Option<(Key<Pool>, Payer)> {
        let tokens = self.instances[key].tokens.as_ref()?;
        let met = tokens.asked.iter().find(|asked| asked.note == note)?;
        Some((met.pool, met.payer))
    }

    /// What is late and has reserved at an instance.
    pub(super) fn asked_late(&self, key: Key<Instance>) -> SmallVec<[Asked; 1]> {
        let tokens = self.instances[key].tokens.iter();
        tokens.flat_map(|tokens| &tokens.asked).filter(|asked| asked.class == Class::Late).copied().collect()
    }

    /// Counts as asked for what the instance does not know of: it is asked for again when reservations are renewed.
    pub(super) fn ask_again_later(&mut self, key: Key<Instance>, late: SmallVec<[Asked; 1]>) {
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        for asked in late {
            if let Some(pool) = self.pools.get_mut(asked.pool) {
                *pool.asking.reserved.count(asked.payer, asked.class) += 1;
                tokens.asked.push(Asked { since: self.now, ..asked });
            }
        }
    }

    /// Jobs of a pool that wait for an instance, late ones and queries; spare work waits until an instance is idle.
    fn wanted_at_once(&mut self, key: Key<Pool>) -> ByPayer {
        let (now, mut wanted) = (self.now, ByPayer::default());
        let pool = &mut self.pools[key];
        let size = u32::from(pool.in_force.batch.max_size.get());
        let stand_ins = pool.stand_ins.as_mut().map(|own| &*own.waiting(StandInLine::Late));
        let stand_ins = stand_ins.into_iter().flatten();
        if self.settings.shares.is_empty() {
            // Nobody pays but the pool itself, and nothing need be looked at one by one.
            let payer = Payer::Model(pool.id);
            let ready = pool.queue.ready_lanes(now, &pool.in_force.batch).next().is_some();
            let queries = if ready { pool.queue.waiting().div_ceil(size) } else { 0 };
            let late = stand_ins.count() + pool.urgent.len();
            (*wanted.count(payer, Class::Late), *wanted.count(payer, Class::Query)) = (late as u32, queries);
            return wanted;
        }
        let late = pool.urgent.iter().filter_map(|extra| extra.rows.first()).chain(stand_ins);
        for query in late.filter_map(|query| self.queries.get(*query)) {
            *wanted.count(query.payer, Class::Late) += 1;
        }
        for (lane, _, alive) in pool.queue.ready_lanes(now, &pool.in_force.batch) {
            *wanted.count(lane.payer, Class::Query) += alive.div_ceil(if lane.alone { 1 } else { size });
        }
        wanted
    }
}
