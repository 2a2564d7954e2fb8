//! Supervises one member from its first connection to its removal.
//!
//! A member that cannot be reached is retried with exponential backoff. A connected member is described, joined and
//! health-checked at an interval, or at once after a transport error. A refused connection means that it is gone. A
//! timeout may be a pause, so it takes several in a row. A member that is not ready drains.
//!
//! Its models and place are described concurrently, however long that takes: at an interval, after a load or unload, or
//! when it rejected a job for a model. A model that one description misses stays until the next one misses it too. A
//! model that was rejected, because other instances serve it with another shape, is retried after each description and
//! once the last of those instances is gone.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_dispatcher::Site;
use parm_protocol::client::{BoxFuture, Client};
use parm_protocol::{Code, Error as WireError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::connect::Connect;
use super::description::{self, MissingModels, Offer};
use super::fleet::Fleet;
use super::member::{Member, MemberState, Wish};
use crate::console::{Happening, Kind};
use crate::error::Error;
use crate::serve::{Core, Departure, Instance};
use crate::upstreams::is_upstream;

/// Interval at which a removed member looks whether others have joined.
const REPLACED: Duration = Duration::from_millis(10);

/// Consecutive health checks that must time out before an instance is gone. One may be a pause of its process.
const SILENT_CHECKS: u16 = 3;

/// Longest that the jobs of a removed instance may take.
const DRAIN: Duration = Duration::from_secs(30);

/// Supervises one member.
pub(super) struct Supervisor {
    pub(super) core: Arc<Core>,
    pub(super) connect: Arc<dyn Connect>,
    pub(super) member: Arc<Member>,
    pub(super) wish: watch::Receiver<Wish>,
    pub(super) fleet: Weak<Fleet>,
}

/// A connected instance.
struct Ward {
    instance: Arc<Instance>,
    offer: Offer,
    /// Models that the last description missed.
    missed: MissingModels,
    /// Its location.
    site: Site,
    /// Errors of rejected models.
    refused: Vec<Error>,
    ready: bool,
    /// Consecutive health checks that timed out.
    silent: u16,
}

/// A description in progress.
struct Look {
    number: u64,
    began: Instant,
    /// Models that are gone by other evidence.
    disowned: BTreeSet<String>,
    offer: BoxFuture<'static, Result<Offer, WireError>>,
}

/// Reason to end the supervision of a connected instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lost,
    Ejected,
    Removed,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        loop {
            let Some((client, offer)) = self.reach().await else { break };
            let regrouped = self.core.regrouped.subscribe();
            let mut ward = self.join(client, offer);
            let end = self.watch(&mut ward, regrouped).await;
            match end {
                End::Lost => self.core.leave(&ward.instance, Departure::Lost),
                End::Removed => {
                    self.core.leave(&ward.instance, Departure::Removed);
                    self.tell(Kind::Left, "the instance was removed".to_owned());
                    break;
                }
                End::Ejected => {
                    self.core.leave(&ward.instance, Departure::Lost);
                    self.show(MemberState::Ejected, None, None);
                    while *self.wish.borrow_and_update() == Wish::Eject {
                        if self.wish.changed().await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
        self.core.is_back(self.member.number);
        // The address may have been added again while this member drained.
        let is_back = |fleet: Arc<Fleet>| fleet.members().iter().any(|other| other.name == self.member.name);
        if !self.fleet.upgrade().is_some_and(is_back) {
            self.core.metrics.instances.forget(&self.member.name);
        }
    }

    /// Connects and describes, with pauses between attempts; `None` if the member is removed meanwhile.
    async fn reach(&mut self) -> Option<(Arc<dyn Client>, Offer)> {
        let limits = &self.core.config.instances;
        let mut pause = limits.connect_backoff_min;
        loop {
            let mut wish = self.wish.clone();
            let removed = async { wish.wait_for(|wish| *wish == Wish::Remove).await.map(|_| ()) };
            let problem = tokio::select! {
                biased;
                _ = removed => return None,
                reached = self.try_reach() => match reached {
                    Ok(reached) => return Some(reached),
                    Err(error) => error,
                },
            };
            self.show(MemberState::Connecting, None, Some(problem.to_string()));
            let mut wish = self.wish.clone();
            self.member.tries_in(Some(pause));
            tokio::select! {
                biased;
                _ = wish.wait_for(|wish| *wish == Wish::Remove) => return None,
                () = self.member.refresh.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            self.member.tries_in(None);
            pause = (pause * 2).min(self.core.config.instances.connect_backoff_max);
        }
    }

    async fn try_reach(&self) -> Result<(Arc<dyn Client>, Offer), WireError> {
        let limits = &self.core.config.instances;
        let reach = async {
            let client = match &self.member.embedded {
                Some(client) => client.clone(),
                None => self.connect.connect(&self.member.name).await?,
            };
            if !client.is_ready().await? {
                return Err(WireError::Unavailable { message: format!("{} is not ready", client.peer()) });
            }
            Ok(client)
        };
        let client = timeout(limits.health_timeout, reach).await.unwrap_or_else(|_| Err(self.silence()))?;
        let offer = description::offer(&*client, limits).await?;
        Ok((client, offer))
    }

    fn join(&self, client: Arc<dyn Client>, offer: Offer) -> Ward {
        let metrics = self.core.metrics.instances.of(&self.member.name);
        let name = (self.core.next_instance(), self.member.number);
        let instance = Arc::new(Instance::new(name, self.member.name.clone(), client, metrics));
        let site = Site::default();
        let missed = MissingModels::default();
        let mut ward = Ward { instance, offer, missed, site, refused: Vec::new(), ready: true, silent: 0 };
        self.joined(&mut ward);
        ward
    }

    /// Joins an instance with its present models, unless it should not serve.
    fn joined(&self, ward: &mut Ward) {
        ward.instance.set_absent(ward.offer.absent.clone());
        ward.site = self.member.locate(ward.offer.place.clone());
        let wished = *self.wish.borrow() == Wish::Serve;
        let draining = !wished || !ward.ready;
        let refused = self.core.join(&ward.instance, ward.site, ward.offer.models.clone(), draining);
        if !is_upstream(&self.member.name) {
            self.core.listed.store(true, Ordering::Release);
        }
        // Another server may answer at the address for a while. One that lists no models says nothing about those before.
        if !ward.offer.unlisted {
            self.core.is_back(self.member.number);
        }
        let new = refused.iter().filter(|error| !ward.refused.contains(error)).count();
        self.core.metrics.disagreements.inc_by(new as u64);
        ward.refused = refused;
        let problem = if ward.offer.models.is_empty() {
            Some(ward.offer.problem(&self.core.config.instances))
        } else {
            ward.refused.first().map(ToString::to_string)
        };
        let state = match (ward.instance.pools().is_empty(), draining) {
            (true, _) => MemberState::Refused,
            (false, false) => MemberState::Ready,
            (false, true) => MemberState::Draining,
        };
        self.show(state, Some(ward.instance.clone()), problem);
    }

    async fn watch(&mut self, ward: &mut Ward, mut regrouped: watch::Receiver<u64>) -> End {
        let limits = self.core.config.instances.clone();
        let mut health = ticks(limits.health_interval, self.member.number);
        let mut models = ticks(limits.models_interval, self.member.number);
        let mut look: Option<Look> = None;
        let mut looked = Instant::now();
        loop {
            let wish = *self.wish.borrow_and_update();
            match wish {
                Wish::Remove => return self.finish(ward).await,
                Wish::Eject => return End::Ejected,
                Wish::Drain | Wish::Serve => self.heed(ward, wish),
            }
            // An instance that never knows its own models must not be described in a tight loop.
            let may_look = look.is_none() && looked.elapsed() >= limits.health_interval;
            let lost = tokio::select! {
                biased;
                changed = self.wish.changed() => {
                    if changed.is_err() {
                        return End::Removed;
                    }
                    false
                }
                () = ward.instance.suspect.notified() => self.check(ward).await,
                _ = health.tick() => self.check(ward).await,
                offer = seen(&mut look) => {
                    if let Some(Look { number, began, disowned, .. }) = look.take() {
                        looked = began;
                        self.saw(ward, offer, disowned);
                        self.member.look_ends(number);
                        if ward.missed.is_open() {
                            models.reset_after(limits.health_interval.min(limits.models_interval));
                        }
                    }
                    false
                }
                () = self.core.vacated.notified(), if !ward.refused.is_empty() => {
                    self.try_refused(ward);
                    false
                }
                _ = regrouped.changed() => {
                    self.joined(ward);
                    false
                }
                () = ward.instance.stated.notified() => {
                    self.joined(ward);
                    false
                }
                () = self.member.refresh.notified(), if look.is_none() => {
                    look = Some(self.look(ward));
                    false
                }
                () = ward.instance.outdated.notified(), if may_look => {
                    look = Some(self.look(ward));
                    false
                }
                _ = models.tick(), if look.is_none() => {
                    look = Some(self.look(ward));
                    false
                }
            };
            if lost {
                return End::Lost;
            }
        }
    }

    /// Applies the requested state if it differs.
    fn heed(&self, ward: &mut Ward, wish: Wish) {
        let state = self.member.view().state;
        if wish == Wish::Serve && state == MemberState::Draining && ward.ready {
            self.joined(ward);
        } else if wish == Wish::Drain && state == MemberState::Ready {
            self.core.drain(&ward.instance);
            self.show(MemberState::Draining, Some(ward.instance.clone()), None);
        }
    }

    /// Checks an instance's health; true if it is gone.
    async fn check(&self, ward: &mut Ward) -> bool {
        let limits = &self.core.config.instances;
        let answer = timeout(limits.health_timeout, ward.instance.client.is_ready()).await;
        let (ready, problem) = match answer {
            Ok(Ok(ready)) => (ready, None),
            Ok(Err(error @ WireError::Transport { .. })) => return self.lost(error),
            Ok(Err(error)) if error.code() == Code::DeadlineExceeded => return self.was_silent(ward, error),
            Ok(Err(error)) => (false, Some(error.to_string())),
            Err(_) => return self.was_silent(ward, self.silence()),
        };
        ward.silent = 0;
        if ready != ward.ready {
            ward.ready = ready;
            if ready {
                self.joined(ward);
            } else {
                self.core.drain(&ward.instance);
                let problem = problem.or_else(|| Some("it is not ready".to_owned()));
                self.show(MemberState::Draining, Some(ward.instance.clone()), problem);
            }
        }
        false
    }

    /// Starts a description of an instance's models.
    fn look(&self, ward: &Ward) -> Look {
        let (client, core) = (ward.instance.client.clone(), self.core.clone());
        let offer = Box::pin(async move { description::offer(&*client, &core.config.instances).await });
        let disowned = ward.instance.take_disowned();
        Look { number: self.member.look_begins(), began: Instant::now(), disowned, offer }
    }

    /// Applies a description. Its failure is left to the health check.
    fn saw(&self, ward: &mut Ward, offer: Result<Offer, WireError>, disowned: BTreeSet<String>) {
        let offer = offer.map(|mut offer| {
            ward.missed.look(&ward.offer, &mut offer, &disowned);
            offer
        });
        match offer {
            Ok(offer) if offer != ward.offer || self.member.locate(offer.place.clone()) != ward.site => {
                ward.offer = offer;
                self.joined(ward);
            }
            Ok(_) => self.try_refused(ward),
            Err(error) => {
                disowned.iter().for_each(|name| ward.instance.disowns(name));
                tracing::debug!(instance = %self.member.name, %error, "cannot describe the instance's models");
            }
        }
    }

    /// Retries rejected models, unless the instance should not serve.
    fn try_refused(&self, ward: &mut Ward) {
        let works = ward.ready && *self.wish.borrow() == Wish::Serve;
        if works && !ward.refused.is_empty() {
            self.joined(ward);
        }
    }

    /// Lets a removed instance finish its jobs.
    async fn finish(&self, ward: &Ward) -> End {
        if *self.wish.borrow() == Wish::Remove && ward.ready {
            self.until_replaced().await;
        }
        self.core.drain(&ward.instance);
        self.show(MemberState::Draining, Some(ward.instance.clone()), None);
        if timeout(DRAIN, ward.instance.until_idle()).await.is_err() {
            tracing::warn!(instance = %self.member.name, "removed an instance before it finished its jobs");
        }
        End::Removed
    }

    /// Waits, at most for one health check, while the members that replace it are connecting for the first time and no
    /// other is connected: requests would fail meanwhile.
    async fn until_replaced(&self) {
        let is_needed = || self.fleet.upgrade().is_some_and(|fleet| fleet.is_joining());
        let replaced = async {
            while is_needed() {
                tokio::time::sleep(REPLACED).await;
            }
        };
        let _ = timeout(self.core.config.instances.health_timeout, replaced).await;
    }

    /// Counts a check that timed out, also where no connection was made in time; true if they are too many.
    fn was_silent(&self, ward: &mut Ward, error: WireError) -> bool {
        ward.silent += 1;
        ward.silent >= SILENT_CHECKS && self.lost(error)
    }

    fn lost(&self, error: WireError) -> bool {
        self.show(MemberState::Connecting, None, Some(error.to_string()));
        true
    }

    /// Updates the member's view, and reports a change of state to the event log. Orders are reported by the handler
    /// that received them.
    fn show(&self, state: MemberState, instance: Option<Arc<Instance>>, problem: Option<String>) {
        let text = problem.clone();
        let Some(before) = self.member.show(state, instance, problem) else { return };
        let ordered = *self.wish.borrow() != Wish::Serve;
        let kind = match (state, before.state) {
            (MemberState::Ready, MemberState::Draining) if before.problem.is_none() => return,
            (MemberState::Ready, MemberState::Draining) => Kind::Returned,
            (MemberState::Ready, _) => Kind::Joined,
            (MemberState::Connecting, MemberState::Ready) => Kind::Lost,
            (MemberState::Connecting, MemberState::Draining) => {
                return self.tell(Kind::Left, "the drained instance ended".to_owned());
            }
            (MemberState::Refused, _) => Kind::Refused,
            (MemberState::Draining, _) if !ordered => Kind::Draining,
            _ => return,
        };
        let text = text.unwrap_or_else(|| "the instance is ready".to_owned());
        self.tell(kind, text);
    }

    fn tell(&self, kind: Kind, text: String) {
        let instance = Some(self.member.number);
        self.core.driver.tell(kind, Happening { instance, text, ..Happening::default() });
    }

    fn silence(&self) -> WireError {
        let waited = self.core.config.instances.health_timeout;
        WireError::Transport {
            peer: self.member.name.clone(),
            message: format!("health check timed out after {waited:?}"),
        }
    }
}

/// Awaits the description in progress; never completes without one.
async fn seen(look: &mut Option<Look>) -> Result<Offer, WireError> {
    match look {
        Some(look) => look.offer.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Creates an interval timer with an early first tick, so that a thousand members that joined together are not checked
/// at once. Missed ticks are skipped.
fn ticks(every: Duration, number: u32) -> tokio::time::Interval {
    // Multiples of the golden ratio are spread evenly.
    let part = (f64::from(number) * 0.618_033_988_749_895).fract();
    let mut ticks = interval_at(Instant::now() + every.mul_f64(1.0 - part / 2.0), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
