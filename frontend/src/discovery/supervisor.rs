//! Looks after one member from its first connection to its removal.
//!
//! A member that cannot be reached is tried again, ever more slowly. One that can be is described, joined, and checked at
//! an interval, or at once when a job failed in transport. A refused connection means that it is gone; silence may be a
//! pause, so it takes several silent checks. One that says that it is not ready drains: it ends what it holds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::Error;
use parm_protocol::client::Client;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connect::Connect;
use super::describe;
use super::fleet::Fleet;
use super::member::{Member, State, Wish};
use crate::serve::{Core, Departure, Description, Instance};

/// Watches over one member.
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
    models: Vec<Description>,
    /// It says that it is ready.
    ready: bool,
    /// Checks in a row without an answer.
    silent: u16,
}

/// Why a connected instance is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lost,
    Ejected,
    Removed,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        loop {
            let Some((client, models)) = self.reach().await else { break };
            let mut ward = self.join(client, models);
            let end = self.watch(&mut ward).await;
            match end {
                End::Lost => self.core.leave(&ward.instance, Departure::Lost),
                End::Removed => {
                    self.core.leave(&ward.instance, Departure::Removed);
                    break;
                }
                End::Ejected => {
                    self.core.leave(&ward.instance, Departure::Lost);
                    self.member.show(State::Ejected, None, None);
                    while *self.wish.borrow_and_update() == Wish::Eject {
                        if self.wish.changed().await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
        // The same address may have been added again while this one drained.
        let is_back = |fleet: Arc<Fleet>| fleet.members().iter().any(|other| other.name == self.member.name);
        if !self.fleet.upgrade().is_some_and(is_back) {
            self.core.metrics.forget_instance(&self.member.name);
        }
    }

    /// Connects and describes, with pauses between tries; `None` if the member is removed meanwhile.
    async fn reach(&mut self) -> Option<(Arc<dyn Client>, Vec<Description>)> {
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
            self.member.show(State::Connecting, None, Some(problem.to_string()));
            let mut wish = self.wish.clone();
            tokio::select! {
                biased;
                _ = wish.wait_for(|wish| *wish == Wish::Remove) => return None,
                () = self.member.refresh.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(self.core.config.instances.connect_backoff_max);
        }
    }

    async fn try_reach(&self) -> Result<(Arc<dyn Client>, Vec<Description>), Error> {
        let limits = &self.core.config.instances;
        let reach = async {
            let client = match &self.member.embedded {
                Some(client) => client.clone(),
                None => self.connect.connect(&self.member.name).await?,
            };
            if !client.is_ready().await? {
                return Err(Error::Unavailable {
                    message: format!("{} says that it is not ready", client.peer()),
                });
            }
            let models = describe::models(&*client, &limits.models).await?;
            Ok((client, models))
        };
        timeout(limits.health_timeout, reach).await.unwrap_or_else(|_| Err(self.silence()))
    }

    fn join(&self, client: Arc<dyn Client>, models: Vec<Description>) -> Ward {
        let metrics = self.core.metrics.instance(&self.member.name);
        let instance =
            Arc::new(Instance::new(self.core.next_instance(), self.member.name.clone(), client, metrics));
        let ward = Ward { instance, models, ready: true, silent: 0 };
        self.joined(&ward);
        ward
    }

    /// Joins an instance with its models as they are now, unless it should not work.
    fn joined(&self, ward: &Ward) {
        let refused = self.core.join(&ward.instance, self.member.node, ward.models.clone());
        let wished = *self.wish.borrow() == Wish::Serve;
        if !wished || !ward.ready {
            self.core.drain(&ward.instance);
        }
        let problem = if ward.models.is_empty() {
            Some("it serves no model".to_owned())
        } else {
            refused.first().map(ToString::to_string)
        };
        let state = match (ward.instance.pools().is_empty(), wished && ward.ready) {
            (true, _) => State::Refused,
            (false, true) => State::Ready,
            (false, false) => State::Draining,
        };
        self.member.show(state, Some(ward.instance.clone()), problem);
    }

    async fn watch(&mut self, ward: &mut Ward) -> End {
        let limits = self.core.config.instances.clone();
        let mut health = ticks(limits.health_interval);
        let mut models = ticks(limits.models_interval);
        loop {
            let wish = *self.wish.borrow_and_update();
            match wish {
                Wish::Remove => return self.finish(ward).await,
                Wish::Eject => return End::Ejected,
                Wish::Drain | Wish::Serve => self.heed(ward, wish),
            }
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
                () = self.member.refresh.notified() => self.look_again(ward).await,
                _ = models.tick() => self.look_again(ward).await,
            };
            if lost {
                return End::Lost;
            }
        }
    }

    /// Does what is wished, where it is not so already.
    fn heed(&self, ward: &Ward, wish: Wish) {
        let state = self.member.view().state;
        if wish == Wish::Serve && state == State::Draining && ward.ready {
            self.joined(ward);
        } else if wish == Wish::Drain && state == State::Ready {
            self.core.drain(&ward.instance);
            self.member.show(State::Draining, Some(ward.instance.clone()), None);
        }
    }

    /// Looks at an instance's health; true if it is gone.
    async fn check(&self, ward: &mut Ward) -> bool {
        let limits = &self.core.config.instances;
        let answer = timeout(limits.health_timeout, ward.instance.client.is_ready()).await;
        let (ready, problem) = match answer {
            Ok(Ok(ready)) => (ready, None),
            Ok(Err(error @ Error::Transport { .. })) => return self.lost(error),
            Ok(Err(error)) => (false, Some(error.to_string())),
            Err(_) => {
                ward.silent += 1;
                return ward.silent >= limits.health_failures.get() && self.lost(self.silence());
            }
        };
        ward.silent = 0;
        if ready != ward.ready {
            ward.ready = ready;
            if ready {
                self.joined(ward);
            } else {
                self.core.drain(&ward.instance);
                let problem = problem.or_else(|| Some("it says that it is not ready".to_owned()));
                self.member.show(State::Draining, Some(ward.instance.clone()), problem);
            }
        }
        false
    }

    /// Looks at which models an instance serves; true if it is gone. A failure to tell is left to the health check.
    async fn look_again(&self, ward: &mut Ward) -> bool {
        let limits = &self.core.config.instances;
        let described =
            timeout(limits.health_timeout, describe::models(&*ward.instance.client, &limits.models)).await;
        if let Ok(Ok(models)) = described
            && (models != ward.models || self.member.view().state == State::Refused)
        {
            ward.models = models;
            self.joined(ward);
        }
        false
    }

    /// Lets a removed instance end what it holds.
    async fn finish(&self, ward: &Ward) -> End {
        self.core.drain(&ward.instance);
        self.member.show(State::Draining, Some(ward.instance.clone()), None);
        if timeout(self.core.config.instances.drain_timeout, ward.instance.until_idle()).await.is_err() {
            tracing::warn!(instance = %self.member.name, "removed with work that it did not finish");
        }
        End::Removed
    }

    fn lost(&self, error: Error) -> bool {
        self.member.show(State::Connecting, None, Some(error.to_string()));
        true
    }

    fn silence(&self) -> Error {
        let waited = self.core.config.instances.health_timeout;
        Error::Transport { peer: self.member.name.clone(), message: format!("no answer within {waited:?}") }
    }
}

/// Ticks from one interval on; what was missed is not made up for.
fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    ticks
}
