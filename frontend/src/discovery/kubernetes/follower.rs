//! Follows a Service: a list and a watch from there, again and again, with exponential backoff after failures.
//!
//! The module's documentation has the reasons.

use std::sync::Weak;
use std::time::Duration;

use parm_protocol::Absence;
use tokio::time::{Instant, sleep, sleep_until};

use super::api::{ApiServer, Trouble};
use super::census::{Census, WatchLine};
use super::service::Service;
use crate::discovery::fleet::Fleet;
use crate::discovery::member::Source;
use crate::discovery::membership::{Footing, Membership};
use crate::metrics::ServiceMetrics;

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// State of following a Service.
struct Following {
    fleet: Weak<Fleet>,
    api: ApiServer,
    service: Service,
    census: Census,
    members: Membership,
    /// Members that the last list missed.
    absence: Absence<String>,
    failures: u32,
    /// Jitter of pauses, of 2^64: frontends that lost the same server must not all return at once.
    sooner: u64,
    /// Last logged failure.
    told: Option<Trouble>,
    footing: Footing,
    problem: Option<String>,
    metrics: ServiceMetrics,
}

/// Reason to end a step.
enum Halt {
    Over,
    Trouble(Trouble),
}

/// Follows a Service until the fleet is gone.
pub(in crate::discovery) async fn follow(fleet: Weak<Fleet>, api: ApiServer, service: Service) {
    let known = fleet
        .upgrade()
        .map(|fleet| (fleet.core.metrics.service(&service.to_string()), fleet.core.driver.timers.seed()));
    let Some((metrics, sooner)) = known else { return };
    let mut following = Following {
        fleet,
        api,
        census: Census::new(service.clone()),
        service,
        members: Membership::of(Source::Kubernetes),
        absence: Absence::default(),
        failures: 0,
        sooner,
        told: None,
        footing: Footing::default(),
        problem: None,
        metrics,
    };
    loop {
        match following.round().await {
            Ok(()) => {}
            Err(Halt::Over) => return,
            Err(Halt::Trouble(trouble)) => {
                let pause = following.failed(trouble);
                sleep(pause).await;
            }
        }
        if following.fleet.strong_count() == 0 {
            return;
        }
    }
}

impl Following {
    async fn round(&mut self) -> Result<(), Halt> {
        let version = self.list().await?;
        let began = Instant::now();
        let watched = self.watch(&version).await;
        let least = self.api.config().backoff_min;
        if began.elapsed() >= self.api.config().backoff_max {
            self.failures = 0;
        }
        if watched.is_ok() {
            // A watch that ends at once must not be repeated in a tight loop.
            sleep_until(began + least).await;
        }
        watched
    }

    /// Takes over a list. Returns the version from which a watch continues.
    async fn list(&mut self) -> Result<String, Halt> {
        let (census, version) = self.api.list().await?;
        let found = census.found();
        let gone = self.absence.look(self.members.urls(), found.len(), |url| found.contains_key(url));
        if let Some(fleet) = self.fleet.upgrade() {
            self.members.remove(&fleet, &gone);
        }
        self.census = census;
        self.apply()?;
        Ok(version)
    }

    /// The next of evenly spread numbers from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.sooner = self.sooner.wrapping_add(GOLDEN);
        self.sooner as f64 / u64::MAX as f64
    }

    async fn watch(&mut self, version: &str) -> Result<(), Halt> {
        // Frontends that started together, or lost the API server together, must not always list at the same moment.
        let length = self.api.config().watch.mul_f64(1.0 - self.chance() / 10.0);
        let mut lines = self.api.watch(version, length).await?;
        self.metrics.current.set(1);
        if self.told.take().is_some() {
            tracing::info!(service = %self.service, "following the Service again");
        }
        let every = self.api.config().backoff_min;
        // A watch reports nothing about members that the list missed, so a second list decides soon.
        let until = Instant::now() + if self.absence.is_open() { every } else { length };
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line?,
                () = sleep_until(until) => return Ok(()),
                () = sleep(every), if self.footing.is_open() => {
                    self.apply()?;
                    continue;
                }
            };
            match line.as_deref().map(WatchLine::read).transpose()? {
                Some(WatchLine::Put(slice)) => self.census.put(slice)?,
                Some(WatchLine::Gone(name)) => self.census.remove(&name),
                Some(WatchLine::Refused { status, message }) => {
                    return Err(self.api.refused(status, message).into());
                }
                None => return Ok(()),
            }
            self.failures = 0;
            self.apply()?;
        }
    }

    /// Makes the members match the known endpoints.
    fn apply(&mut self) -> Result<(), Halt> {
        let fleet = self.fleet.upgrade().ok_or(Halt::Over)?;
        let found = self.census.found();
        self.metrics.endpoints.set(found.len() as i64);
        let footing = self.members.follow(&fleet, &found, |url| self.absence.is_missed(url));
        let service = &self.service;
        if footing != self.footing {
            if footing.kept > 0 {
                let workers = footing.kept;
                tracing::warn!(code = %parm_protocol::StableCode::ServiceNotFollowed, %service, workers, "the Service has no endpoints: keeping known workers");
            }
            if let Some(reason) = &footing.reason {
                let endpoints = footing.left_out;
                tracing::warn!(code = %parm_protocol::StableCode::ServiceNotFollowed, %service, endpoints, %reason, "skipped endpoints of the Service");
            }
            self.footing = footing;
        }
        let problem = self.census.problem().map(str::to_owned);
        if problem != self.problem {
            if let Some(problem) = &problem {
                tracing::warn!(code = %parm_protocol::StableCode::ServiceNotFollowed, %service, %problem, "some endpoints of the Service are unusable");
            }
            self.problem = problem;
        }
        Ok(())
    }

    /// Records a failure; returns the pause before the next try.
    fn failed(&mut self, trouble: Trouble) -> Duration {
        let (least, most) = (self.api.config().backoff_min, self.api.config().backoff_max);
        self.failures = self.failures.saturating_add(1);
        self.metrics.failures.inc();
        self.metrics.current.set(0);
        let share = self.chance();
        let pause =
            least.saturating_mul(1 << (self.failures - 1).min(16)).min(most).mul_f64(1.0 - share / 2.0);
        if self.told.as_ref() != Some(&trouble) {
            tracing::warn!(code = %parm_protocol::StableCode::ServiceNotFollowed, service = %self.service, reason = %trouble, next_try = ?pause, "cannot follow the Service: keeping known workers");
            self.told = Some(trouble);
        }
        pause
    }
}

impl From<Trouble> for Halt {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}
