//! A member of the fleet: one address (or thread), what is wanted of it, and how it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use parm_dispatch::Site;
use parm_protocol::Place;
use parm_protocol::client::Client;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::atlas::{Atlas, Stand};
use super::connect;
use crate::serve::Instance;

/// Who named a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// A thread of this process.
    Embedded,
    /// The configuration.
    Static,
    /// The watched file.
    File,
    /// A name that DNS knows.
    Dns,
    /// A Service of Kubernetes.
    Kubernetes,
    /// The admin API.
    Admin,
}

/// What is wanted of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// That it works.
    Serve,
    /// That it gets no more work.
    Drain,
    /// That its work is taken away at once and done elsewhere.
    Eject,
    /// That it drains and is forgotten.
    Remove,
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemberState {
    /// Not reached yet, or lost and sought again.
    Connecting,
    /// In the dispatcher's hands (which may have ejected it).
    Ready,
    /// Finishing what it holds: by wish, or because it says that it is not ready.
    Draining,
    /// Taken out by wish.
    Ejected,
    /// Reached, but it serves nothing that can be used.
    Refused,
}

/// A member of the fleet.
pub(crate) struct Member {
    /// Its number for the admin API; stays over reconnects.
    pub(crate) number: u32,
    /// Its address; `embedded:N` for a thread of this process.
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Where it stands, in the words of whoever named it.
    told: Mutex<Place>,
    stand: Mutex<Stand>,
    /// The client of an embedded member.
    pub(crate) embedded: Option<Arc<dyn Client>>,
    pub(crate) wish: watch::Sender<Wish>,
    /// Told to look again at which models it serves.
    pub(crate) refresh: Notify,
    /// How many looks at its models have begun.
    looks: AtomicU64,
    /// The number of the last look that has ended.
    looked: watch::Sender<u64>,
    view: Mutex<View>,
    /// When it is connected to next.
    next_try: Mutex<Option<Instant>>,
}

/// What others may know of a member.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) state: MemberState,
    pub(crate) instance: Option<Arc<Instance>>,
    /// What is wrong, in the words of the last error.
    pub(crate) problem: Option<String>,
}

/// Who a new member is.
pub(crate) struct Identity {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Where it stands, in the words of whoever named it.
    pub(crate) place: Place,
    pub(crate) embedded: Option<Arc<dyn Client>>,
}

impl Member {
    pub(crate) fn new(identity: Identity) -> Self {
        let Identity { number, name, source, place, embedded } = identity;
        Self {
            number,
            name,
            source,
            told: Mutex::new(place),
            stand: Mutex::default(),
            embedded,
            wish: watch::channel(Wish::Serve).0,
            refresh: Notify::new(),
            looks: AtomicU64::new(0),
            looked: watch::channel(0).0,
            view: Mutex::new(View { state: MemberState::Connecting, instance: None, problem: None }),
            next_try: Mutex::default(),
        }
    }

    pub(crate) fn view(&self) -> View {
        self.view.lock().clone()
    }

    /// Where it stands, as far as is known.
    pub(crate) fn place(&self) -> Place {
        self.stand.lock().place()
    }

    /// Whoever named it says where it stands now; it is looked at again if that is news.
    pub(super) fn tell_place(&self, place: Place) {
        if std::mem::replace(&mut *self.told.lock(), place.clone()) != place {
            self.refresh.notify_one();
        }
    }

    /// Finds out where it stands: who named it is believed before what it says itself, and without either the host in its
    /// address counts as its node.
    pub(super) fn locate(&self, atlas: &Atlas, announced: Place) -> Site {
        let told = self.told.lock().clone();
        let host = connect::node(&self.name).map(str::to_owned);
        let stand = atlas.find(told.or(announced).or(Place { node: host, zone: None }));
        let site = stand.site();
        *self.stand.lock() = stand;
        site
    }

    /// How long until it is connected to again, if that is due.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        self.next_try.lock().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// It is connected to after this pause, or not any more.
    pub(super) fn tries_in(&self, pause: Option<Duration>) {
        *self.next_try.lock() = pause.map(|pause| Instant::now() + pause);
    }

    /// A look at its models begins; returns its number.
    pub(super) fn look_begins(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// That look ended, and what it saw is in force.
    pub(super) fn look_ends(&self, number: u64) {
        self.looked.send_replace(number);
    }

    /// Asks for a look at its models, and waits until one that begins from now on has ended.
    pub(super) async fn look_again(&self) {
        let before = self.looks.load(Ordering::Acquire);
        let mut looked = self.looked.subscribe();
        self.refresh.notify_one();
        // The sender is our own.
        let _ = looked.wait_for(|last| *last > before).await;
    }

    /// The member is in another state, or has another instance or problem; changes of state are logged.
    /// Returns what was shown before, if the state was another.
    pub(crate) fn show(
        &self,
        state: MemberState,
        instance: Option<Arc<Instance>>,
        problem: Option<String>,
    ) -> Option<View> {
        let mut view = self.view.lock();
        if view.state != state || view.problem != problem {
            match &problem {
                Some(problem) => {
                    tracing::warn!(instance = %self.name, ?state, %problem, "an instance is not as it should be");
                }
                None => tracing::info!(instance = %self.name, ?state, "an instance changed"),
            }
        }
        let before = std::mem::replace(&mut *view, View { state, instance, problem });
        (before.state != state).then_some(before)
    }
}
