//! Instances that this frontend shares with others: it sends a job where it holds a token, and reserves where it has none.
//!
//! Why so, and the worker's half of it, is told in the crate `tokens`. To the rest of the dispatcher an instance that gives
//! tokens has room exactly as long as one of its tokens is here; so everything that looks for room works across frontends.
//!
//! A token that comes is used for what is most urgent by then; among queries, for the share that had reserved. While others
//! wait for the same instance it is never used for spare work, and one that is of no use goes back at once. What a pool does
//! that finds none is told in `reservations`.

use std::num::NonZeroU16;

use smallvec::SmallVec;

use parm_tokens::{Grant, Order, Token};

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::instance::Instance;
use super::reservations::Asked;
use super::timers::Timer;
use super::{Action, InstanceId, Role, Time};

/// Tokens of one instance that are kept: more than any worker has instances is somebody's mistake.
const MOST_HELD: usize = 256;

/// What is held and wished for of one instance.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Oldest first.
    held: SmallVec<[Leased; 1]>,
    /// What this frontend has reserved there.
    pub(super) asked: SmallVec<[Asked; 1]>,
    /// Frontends that take part, this one included, as was last said.
    sharers: u16,
    /// Nobody else takes part, and the instance runs so many jobs at a time: no token is needed.
    alone: Option<NonZeroU16>,
    /// When the first lease may be over, if somebody watches.
    watched: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Leased {
    token: Token,
    until: Option<Time>,
    /// For queries only.
    reserved: bool,
}

impl Tokens {
    /// Whether a job may be sent.
    pub(super) fn is_there(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a job wants a token.
    pub(super) fn are_needed(&self) -> bool {
        self.alone.is_none()
    }

    /// Whether a job may be sent for which the instance is idle, as far as others go.
    pub(super) fn is_ready(&self) -> bool {
        !self.are_needed() || self.is_there()
    }

    /// Jobs that the instance runs at a time, where that is known.
    pub(super) fn slots(&self) -> u16 {
        self.alone.map_or(0, NonZeroU16::get)
    }

    /// Frontends that share the instance.
    pub(super) fn sharers(&self) -> u16 {
        self.sharers
    }

    /// Whether those that are there are for queries only.
    pub(super) fn are_reserved(&self) -> bool {
        !self.held.is_empty() && self.held.iter().all(|held| held.reserved)
    }

    /// The token for a job.
    pub(super) fn spend(&mut self, role: Role) -> Option<Token> {
        let suits = |held: &Leased| role == Role::Deployed || !held.reserved;
        let at = self.held.iter().position(suits).or((!self.held.is_empty()).then_some(0))?;
        Some(self.held.remove(at).token)
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

    /// Whether others take part in an instance's tokens.
    pub(super) fn tokens_shared(&mut self, id: InstanceId, alone: Option<NonZeroU16>) {
        let Some(key) = self.instance_names.get(id) else { return };
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        tokens.alone = alone;
        if alone.is_some() {
            self.clear_reservations(key);
        }
        self.watch_jobs_of(key);
        self.refresh(key);
        self.feed_instance(key);
        if alone.is_none() {
            self.seek_for_all(key);
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
        let Grant { token, lease, contended, reserved, sharers, met } = grant;
        let Some(key) = self.instance_names.get(id) else { return };
        if self.instances[key].tokens.is_none() {
            return;
        }
        let met = self.reserved_as(key, met);
        // The worker counts every reservation of ours as met by it.
        let late = if reserved { self.asked_late(key) } else { SmallVec::new() };
        self.clear_reservations(key);
        let usable = self.instances[key].usable();
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        tokens.sharers = sharers;
        if sharers > 1 {
            // Should the word have been lost that it is alone no more.
            tokens.alone = None;
        }
        if tokens.held.iter().any(|held| held.token == token) {
            return; // it came twice
        }
        if !usable || tokens.held.len() >= MOST_HELD {
            self.out.push(Action::Tell(id, Order::GiveBack(token)));
            return;
        }
        let until = lease.map(|lease| self.now + lease);
        tokens.held.push(Leased { token, until, reserved });
        // Whoever has instances reserved goes first, as the worker sees it, and who reserved this one before others.
        (self.for_reserved, self.met) = (reserved, met);
        if contended {
            if !self.use_at_once(key, token) {
                // It was no use to what is late. Asked for again at once it would come again at once.
                self.ask_again_later(key, late);
            }
        } else {
            self.hold(key, until);
        }
        (self.for_reserved, self.met) = (false, None);
    }

    /// A token is there until it is used or its time is over.
    fn hold(&mut self, key: Key<Instance>, until: Option<Time>) {
        let Some(tokens) = &mut self.instances[key].tokens else { return };
        if let Some(until) = until
            && tokens.watched.is_none_or(|watched| watched <= self.now)
        {
            tokens.watched = Some(until);
            self.timers.set(until, Timer::Lease(key));
        }
        self.refresh(key);
        self.feed_instance(key);
    }

    /// Others wait for the instance: a token is for work that cannot wait, or goes back. Whether it was used.
    fn use_at_once(&mut self, key: Key<Instance>, token: Token) -> bool {
        let holds = |instance: &Instance| {
            instance.tokens.as_ref().is_some_and(|tokens| tokens.held.iter().any(|held| held.token == token))
        };
        self.refresh(key);
        let mut used = true;
        while holds(&self.instances[key]) {
            if !self.take_what_waits(key) {
                self.give_back(key, |held| held.token == token);
                used = false;
            }
        }
        self.refresh(key);
        used
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
}
