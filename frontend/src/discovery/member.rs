//! Member of the fleet: an address or a thread, its requested state and its actual state.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use parm_dispatcher::Site;
use parm_protocol::client::Client;
use parm_protocol::{Place, StableCode};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::connect;
use crate::serve::reading::{Condition, InstanceId, InstanceReading};
use crate::serve::{Instance, conditions};

/// Source that listed a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// A thread of this process.
    Embedded,
    /// The configuration.
    Static,
    /// The workers file.
    File,
    /// A DNS name.
    Dns,
    /// A Service of Kubernetes.
    Kubernetes,
    /// The admin API.
    Admin,
}

/// Requested state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It should serve.
    Serve,
    /// It should receive no more work.
    Drain,
    /// Its work should be retried elsewhere at once.
    Eject,
    /// It should drain and be removed.
    Remove,
}

/// Actual state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemberState {
    /// Not connected yet, or lost and reconnecting.
    Connecting,
    /// Joined to the dispatcher (which may have ejected it).
    Ready,
    /// Finishing its jobs: by order, or because it is not ready.
    Draining,
    /// Ejected by order.
    Ejected,
    /// Connected, but it serves no usable model.
    Refused,
}

impl MemberState {
    /// The stable code of a problem in this state.
    pub(super) fn code(self) -> StableCode {
        match self {
            Self::Connecting | Self::Draining => StableCode::Unreachable,
            Self::Ready | Self::Refused => StableCode::InstanceRejected,
            Self::Ejected => StableCode::InstanceEjected,
        }
    }
}

/// A member of the fleet.
pub(crate) struct Member {
    /// Number in the admin API; stays the same over reconnects.
    pub(crate) number: u32,
    /// Its address; `embedded:N` for a thread of this process.
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Place that its source states.
    told: Mutex<Place>,
    /// Its place, as far as it is known.
    place: Mutex<Place>,
    /// Client of an embedded member.
    pub(crate) embedded: Option<Arc<dyn Client>>,
    pub(super) wish: watch::Sender<Wish>,
    /// Triggers a description of its models.
    pub(crate) refresh: Notify,
    /// Descriptions started.
    looks: AtomicU64,
    /// Number of the last description that ended.
    looked: watch::Sender<u64>,
    view: Mutex<View>,
    /// Time of the next connection attempt.
    next_try: Mutex<Option<Instant>>,
}

/// Public state of a member.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) state: MemberState,
    pub(crate) instance: Option<Arc<Instance>>,
    /// Last error, if the member is not usable.
    pub(crate) problem: Option<String>,
}

/// A member, and how the dispatcher finds it, at some moment.
pub(crate) struct MemberReading {
    pub(crate) member: Arc<Member>,
    pub(crate) view: View,
    /// The dispatcher knows only members that are connected.
    pub(crate) reading: Option<InstanceReading>,
    /// Finished jobs, and how many of them failed.
    pub(crate) jobs: [u64; 2],
}

impl MemberReading {
    pub(crate) fn new(
        member: Arc<Member>,
        view: View,
        read: impl FnOnce(InstanceId) -> Option<InstanceReading>,
    ) -> Self {
        let instance = view.instance.as_ref();
        let reading = instance.and_then(|instance| read(instance.id));
        let jobs = instance.map_or([0, 0], |instance| instance.ended());
        Self { member, view, reading, jobs }
    }

    /// Its state, in which one that the dispatcher has ejected is ejected too.
    pub(crate) fn state(&self) -> MemberState {
        match self.view.state {
            MemberState::Ready if !self.in_service() => MemberState::Ejected,
            state => state,
        }
    }

    /// Whether it receives work.
    pub(crate) fn in_service(&self) -> bool {
        self.reading.is_some_and(|reading| reading.in_service)
    }

    /// What is wrong with it.
    pub(crate) fn condition(&self) -> Condition {
        match self.view.state {
            MemberState::Connecting => Condition::Unreachable,
            MemberState::Ready => self.reading.map_or(Condition::Well, |reading| reading.condition),
            _ => Condition::Well,
        }
    }

    /// What is wrong with it in words: why it is not usable, or the last error while its jobs fail.
    pub(crate) fn problem(&self) -> Option<String> {
        let fails = self.reading.is_some_and(|reading| conditions::fails(reading.condition));
        let last = || self.view.instance.as_ref().filter(|_| fails)?.last_failure();
        self.view.problem.clone().or_else(last)
    }
}

impl Member {
    pub(crate) fn new(
        number: u32,
        name: String,
        (source, place): (Source, Place),
        embedded: Option<Arc<dyn Client>>,
    ) -> Self {
        Self {
            number,
            name,
            source,
            told: Mutex::new(place),
            place: Mutex::default(),
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

    /// Whether its view fulfils a condition; without a copy, for questions about thousands of members.
    pub(super) fn view_is(&self, condition: impl FnOnce(&View) -> bool) -> bool {
        condition(&self.view.lock())
    }

    /// Its place, if known.
    pub(crate) fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// Requests another state. A removal is final: no list has the member after it, so it could not be repeated.
    pub(crate) fn wishes(&self, wish: Wish) {
        self.wish.send_if_modified(|before| {
            let changes = *before != Wish::Remove;
            *before = if changes { wish } else { Wish::Remove };
            changes
        });
    }

    /// Updates the place that its source states; a change triggers a description.
    pub(super) fn tell_place(&self, place: Place) {
        if std::mem::replace(&mut *self.told.lock(), place.clone()) != place {
            self.refresh.notify_one();
        }
    }

    /// Determines its site: the source's statement precedes the server's own. Without either, the host in its address
    /// is its node.
    pub(super) fn locate(&self, announced: Place) -> Site {
        let told = self.told.lock().clone();
        let host = connect::node(&self.name).map(str::to_owned);
        let place = told.or(announced).or(Place { node: host, ..Place::default() });
        let site = site(&place, self.embedded.is_some());
        *self.place.lock() = place;
        site
    }

    /// Time until the next connection attempt, if one is due.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        self.next_try.lock().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Sets the pause until the next connection attempt; `None` if there is none.
    pub(super) fn tries_in(&self, pause: Option<Duration>) {
        *self.next_try.lock() = pause.map(|pause| Instant::now() + pause);
    }

    /// Starts a description of its models; returns its number.
    pub(super) fn look_begins(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Ends a description whose result is in effect.
    pub(super) fn look_ends(&self, number: u64) {
        self.looked.send_replace(number);
    }

    /// Triggers a description of its models, and waits until one that starts from now on has ended.
    pub(super) async fn look_again(&self) {
        self.looked_after(|| self.refresh.notify_one()).await;
    }

    /// The same for an instance that has rejected jobs for its models: at most one description a second.
    pub(super) async fn look_if_outdated(&self, instance: &Instance) {
        self.looked_after(|| instance.outdated.notify_one()).await;
    }

    async fn looked_after(&self, trigger: impl FnOnce()) {
        let before = self.looks.load(Ordering::Acquire);
        let mut looked = self.looked.subscribe();
        trigger();
        // The member owns the sender, so it cannot be dropped.
        let _ = looked.wait_for(|last| *last > before).await;
    }

    /// Writes a line about a change. An orderly drain is not a problem, nor is the end that follows it.
    fn log(&self, before: MemberState, state: MemberState, problem: Option<&str>) {
        use MemberState::{Connecting, Draining, Ejected, Ready, Refused};
        let (instance, code) = (&self.name, state.code());
        match (before, state, problem) {
            (Draining, Ready, None) => tracing::info!(%instance, "instance returned"),
            (_, Ready, None) => tracing::info!(%instance, "instance joined"),
            (_, Ready, Some(problem)) => {
                tracing::warn!(%code, %instance, %problem, "instance joined without all its models");
            }
            (_, Draining, reason) => tracing::info!(%instance, reason, "instance is draining"),
            (_, Ejected, _) => tracing::info!(%instance, "instance ejected by order"),
            (Draining, Connecting, reason) => tracing::info!(%instance, reason, "drained instance ended"),
            (Ready, Connecting, problem) => tracing::warn!(%code, %instance, problem, "instance lost"),
            (_, Connecting, None) => tracing::info!(%instance, "connecting to instance"),
            (_, Connecting, problem) => tracing::warn!(%code, %instance, problem, "instance not connected"),
            (_, Refused, problem) => tracing::warn!(%code, %instance, problem, "instance refused"),
        }
    }

    /// Updates the member's state, instance and problem, and logs changes of state. Returns the previous view if the
    /// state changed.
    pub(crate) fn show(
        &self,
        state: MemberState,
        instance: Option<Arc<Instance>>,
        problem: Option<String>,
    ) -> Option<View> {
        let mut view = self.view.lock();
        if view.state != state || view.problem != problem {
            self.log(view.state, state, problem.as_deref());
        }
        let before = std::mem::replace(&mut *view, View { state, instance, problem });
        (before.state != state).then_some(before)
    }
}

/// This process, the only one with several instances.
const OWN: u32 = 0;

/// The dispatcher's numbers of a place, within this process or outside. A name is numbered by its hash: with a chance of one in
/// four thousand million two names have one number, and then their servers only count as closer to each other than they are.
fn site(place: &Place, is_own: bool) -> Site {
    let number = |name: &Option<String>| {
        let mut hasher = DefaultHasher::new();
        name.as_ref()?.hash(&mut hasher);
        Some(hasher.finish() as u32)
    };
    Site {
        process: is_own.then_some(OWN),
        card: number(&place.card),
        node: number(&place.node),
        zone: number(&place.zone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_on_one_node_share_its_number() {
        let node = |name: &str| Place { node: Some(name.to_owned()), ..Place::default() };
        assert_eq!(site(&node("a"), false), site(&node("a"), false));
        assert_ne!(site(&node("a"), false), site(&node("b"), false));
        assert_eq!(site(&Place::default(), false), Site::default());
        assert!(site(&Place::default(), true).process.is_some(), "this process is a failure domain");
    }

    #[test]
    fn order_does_not_undo_a_removal() {
        let member = Member::new(1, "test://a".to_owned(), (Source::Admin, Place::default()), None);
        let wish = member.wish.subscribe();
        for wished in [Wish::Drain, Wish::Serve, Wish::Remove] {
            member.wishes(wished);
            assert_eq!(*wish.borrow(), wished);
        }
        // The handler of an order found the member just before it was removed.
        for wished in [Wish::Drain, Wish::Serve, Wish::Eject] {
            member.wishes(wished);
            assert_eq!(*wish.borrow(), Wish::Remove);
        }
    }
}
