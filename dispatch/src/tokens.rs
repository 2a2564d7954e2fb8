//! Instances that this frontend shares with others: it sends a job where it holds a token, and reserves where it has none.
//!
//! Why so, and the worker's half of it, is told in the crate `tokens`. To the rest of the dispatcher an instance that gives
//! tokens has room exactly as long as one of its tokens is here; so everything that looks for room works across frontends.
//!
//! A pool whose work finds no room *asks*: it reserves at a few instances for each job that waits, at more as time passes, and
//! withdraws when nothing waits any more. First it reserves where it runs nothing itself: its own jobs bring tokens of their
//! own accord. A token that comes is used for what is most urgent by then. While others wait for the same instance it is
//! never used for spare work, and one that is of no use goes back at once.
//!
//! Rejected: a reservation for each query by name, fetched by that name. Queries of a pool are alike, so whichever is first
//! takes the token; and a name would have to be withdrawn at every worker whenever a query is answered otherwise.

use smallvec::SmallVec;

use parm_tokens::{Class, Grant, Order, Token};

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra;
use super::instance::Instance;
use super::pool::Pool;
use super::stand_ins::StandInLine;
use super::timers::Timer;
use super::{Action, InstanceId, Time};

/// Tokens of one instance that are kept: more than any worker has instances is somebody's mistake.
const MOST_HELD: usize = 256;

/// What is held and wished for of one instance.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Oldest first.
    held: SmallVec<[Leased; 1]>,
    asked: SmallVec<[Asked; 1]>,
    /// Frontends that take part, this one included, as was last said.
    sharers: u16,
    /// When the first lease may be over, if somebody watches.
    watched: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Leased {
    token: Token,
    until: Option<Time>,
}

/// A reservation.
#[derive(Clone, Copy, Debug)]
struct Asked {
    pool: Key<Pool>,
    class: Class,
    since: Time,
}

/// A pool's reservations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    /// By class: late, and queries.
    reserved: [u32; 2],
    /// By how many more it is to reserve than when it began.
    widened: u32,
    /// It is in the list of those that ask.
    listed: bool,
    /// A timer is set to ask for more.
    timed: bool,
}

impl Tokens {
    /// Whether a job may be sent.
    pub(super) fn is_there(&self) -> bool {
        !self.held.is_empty()
    }

    /// Frontends that share the instance.
    pub(super) fn sharers(&self) -> u16 {
        self.sharers
    }

    /// The token for a job.
    pub(super) fn spend(&mut self) -> Option<Token> {
        (!self.held.is_empty()).then(|| self.held.remove(0).token)
    }
}

impl Dispatcher {
    /// An instance gives tokens from now on, on a new connection.
    pub(super) fn tokens_offered(&mut self, id: InstanceId) {
        let Some(key) = self.instance_names.get(id) else { return };
        self.forget_tokens(key);
        self.instances[key].tokens = Some(Tokens::default());
        self.givers += 1;
        self.refresh(key);
        self.seek_for_all(key);
    }

    /// An instance that gives tokens takes work (again): what waits in its pools may reserve there.
    pub(super) fn seek_for_all(&mut self, key: Key<Instance>) {
        if self.givers > 0 {
            let serves = &self.instances[key].serves;
            let pools: SmallVec<[_; 2]> = serves.iter().map(|serves| serves.pool).collect();
            pools.into_iter().for_each(|pool| self.seek(pool));
        }
    }

    /// The connection on which an instance gave tokens is gone.
    pub(super) fn tokens_ended(&mut self, id: InstanceId) {
        let Some(key) = self.instance_names.get(id) else { return };
        self.forget_tokens(key);
        self.refresh(key);
        self.feed_instance(key);
    }

    /// What is known of an instance's tokens is void.
    pub(super) fn forget_tokens(&mut self, key: Key<Instance>) {
        self.clear_reservations(key);
        self.givers -= u32::from(self.instances[key].tokens.take().is_some());
    }

    /// An instance is ours for one job.
    pub(super) fn granted(&mut self, id: InstanceId, grant: Grant) {
        let Grant { token, lease, contended, sharers } = grant;
        let Some(key) = self.instance_names.get(id) else { return };
        if self.instances[key].tokens.is_none() {
            return;
        }
        // The worker counts every reservation of ours as met by it.
        self.clear_reservations(key);
        let usable = self.instances[key].usable();
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        tokens.sharers = sharers;
        if tokens.held.iter().any(|held| held.token == token) {
            return; // it came twice
        }
        if !usable || tokens.held.len() >= MOST_HELD {
            self.out.push(Action::Tell(id, Order::GiveBack(token)));
            return;
        }
        let until = lease.map(|lease| self.now + lease);
        tokens.held.push(Leased { token, until });
        if contended {
            self.use_at_once(key, token);
            return;
        }
        if let Some(until) = until
            && tokens.watched.is_none_or(|watched| watched <= self.now)
        {
            tokens.watched = Some(until);
            self.timers.set(until, Timer::Lease(key));
        }
        self.refresh(key);
        self.feed_instance(key);
    }

    /// Others wait for the instance: a token is for work that cannot wait, or goes back.
    fn use_at_once(&mut self, key: Key<Instance>, token: Token) {
        let holds = |instance: &Instance| {
            instance.tokens.as_ref().is_some_and(|tokens| tokens.held.iter().any(|held| held.token == token))
        };
        self.refresh(key);
        while holds(&self.instances[key]) {
            if !self.take_what_waits(key) {
                self.give_back(key, |held| held.token == token);
            }
        }
        self.refresh(key);
    }

    /// Somebody else needs a token.
    pub(super) fn recalled(&mut self, id: InstanceId, token: Token) {
        if let Some(key) = self.instance_names.get(id) {
            self.give_back(key, |held| held.token == token);
            self.refresh(key);
        }
    }

    /// Tokens that nobody used in time go back.
    pub(super) fn lease_is_over(&mut self, key: Key<Instance>) {
        let now = self.now;
        self.give_back(key, |held| held.until.is_some_and(|until| until <= now));
        let Some(tokens) = self.instances.get_mut(key).and_then(|instance| instance.tokens.as_mut()) else {
            return;
        };
        tokens.watched = tokens.held.iter().filter_map(|held| held.until).min();
        if let Some(until) = tokens.watched {
            self.timers.set(until, Timer::Lease(key));
        }
        self.refresh(key);
    }

    /// An instance that takes no work must not be kept from others.
    pub(super) fn surrender(&mut self, key: Key<Instance>) {
        if self.instances[key].tokens.as_ref().is_some_and(Tokens::is_there) && !self.instances[key].usable()
        {
            self.give_back(key, |_| true);
        }
    }

    fn give_back(&mut self, key: Key<Instance>, which: impl Fn(&Leased) -> bool) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let Some(tokens) = &mut instance.tokens else { return };
        let (id, out) = (instance.id, &mut self.out);
        tokens.held.retain(|held| {
            let goes = which(held);
            if goes {
                out.push(Action::Tell(id, Order::GiveBack(held.token)));
            }
            !goes
        });
    }

    /// A pool's work has found no room.
    pub(super) fn seek(&mut self, key: Key<Pool>) {
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
        let wanted = self.pools[key].wanted(self.now);
        if wanted == [0, 0] {
            return false;
        }
        let pool = &mut self.pools[key];
        let each = u32::from(pool.settings.tokens.reservations.get());
        let widen = pool.settings.tokens.widen;
        let asking = &mut pool.asking;
        let goal = |wanted: u32| if wanted == 0 { 0 } else { wanted.saturating_mul(each) + asking.widened };
        let missing = [0, 1].map(|class| goal(wanted[class]).saturating_sub(asking.reserved[class]));
        if !std::mem::replace(&mut asking.timed, true) {
            self.timers.set(self.now + widen, Timer::Widen(key));
        }
        for (class, missing) in [Class::Late, Class::Query].into_iter().zip(missing) {
            if missing > 0 {
                self.reserve_more(key, class, missing);
            }
        }
        true
    }

    /// Reserves at so many instances more, from a random one on: where frontends begin at the same, they all wait there.
    fn reserve_more(&mut self, key: Key<Pool>, class: Class, mut missing: u32) {
        if self.pools[key].asking.reserved[usize::from(class.byte())] >= self.pools[key].usable {
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
                let known = |asked: &Asked| (asked.pool, asked.class) == (key, class);
                if tokens.is_there() || tokens.asked.iter().any(known) {
                    continue;
                }
                if missing == 0 {
                    return;
                }
                missing -= 1;
                tokens.asked.push(Asked { pool: key, class, since: now });
                let (pool, id) = (&mut self.pools[key], instance.id);
                pool.asking.reserved[usize::from(class.byte())] += 1;
                self.out.push(Action::Tell(id, Order::Reserve(pool.id, class)));
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
                asking.reserved[usize::from(asked.class.byte())] -= u32::from(!stays);
                stays
            });
        }
    }

    /// Takes a pool's reservations back.
    fn withdraw_reservations(&mut self, key: Key<Pool>) {
        let id = self.pools.get(key).map(|pool| pool.id);
        if self.pools.get(key).is_some_and(|pool| pool.asking.reserved == [0, 0]) {
            return;
        }
        for instance in self.instances.keys() {
            let instance = &mut self.instances[instance];
            let Some(tokens) = &mut instance.tokens else { continue };
            let before = tokens.asked.len();
            tokens.asked.retain(|asked| asked.pool != key);
            if let Some(pool) = id.filter(|_| tokens.asked.len() < before) {
                self.out.push(Action::Tell(instance.id, Order::Withdraw(pool)));
            }
        }
        if let Some(pool) = self.pools.get_mut(key) {
            pool.asking.reserved = [0, 0];
        }
    }

    /// An instance's reservations are met, or void.
    fn clear_reservations(&mut self, key: Key<Instance>) {
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        for asked in std::mem::take(&mut tokens.asked) {
            if let Some(pool) = self.pools.get_mut(asked.pool) {
                pool.asking.reserved[usize::from(asked.class.byte())] -= 1;
            }
        }
    }
}

impl Pool {
    /// Jobs that wait for an instance, late ones and queries; spare work waits until an instance is idle.
    fn wanted(&mut self, now: Time) -> [u32; 2] {
        let late = self.extras(extra::Class::Urgent).len();
        let stand_ins = self.stand_ins.as_mut().map_or(0, |own| own.waiting(StandInLine::Late).len());
        let size = u32::from(self.in_force.batch.max_size.get());
        let ready = self.queue.ready(now, &self.in_force.batch).is_some();
        let queries = if ready { self.queue.waiting().div_ceil(size) } else { 0 };
        [(late + stand_ins) as u32, queries]
    }
}
