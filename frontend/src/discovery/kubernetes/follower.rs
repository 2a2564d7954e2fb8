//! Follows a Service: a list, a watch from there, and retries with exponential backoff.
//!
//! The module's documentation has the reasons.

use std::sync::Weak;
use std::time::Duration;

use parm_protocol::Absence;
use tokio::time::{Instant, sleep, sleep_until};

use super::api::ApiServer;
use super::census::Census;
use super::error::Trouble;
use super::membership::{Footing, Membership};
use super::service::Service;
use super::watch_line::WatchLine;
use crate::discovery::fleet::Fleet;
use crate::metrics::ServiceMetrics;

/// Consecutive failures after which the known version is dropped and all is listed again.
const DOUBTFUL: u32 = 3;

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// State of following a Service.
struct Following {
    fleet: Weak<Fleet>,
    api: ApiServer,
    service: Service,
    census: Census,
    members: Membership,
    /// Version from which the next watch continues; `None` if a list is needed.
    version: Option<String>,
    /// Time of the next list.
    list_at: Instant,
    /// Members that the last list missed.
    absence: Absence<String>,
    failures: u32,
    /// Jitter of pauses, of 2^64: frontends that lost the same server must not all return at once.
    sooner: u64,
    /// Start of the current period without failures.
    well_since: Option<Instant>,
    /// Last logged failure.
    told: Option<Trouble>,
    footing: Footing,
    problem: Option<String>,
    metrics: ServiceMetrics,
}

/// The fleet is gone.
struct Over;

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
        members: Membership::default(),
        version: None,
        list_at: Instant::now(),
        absence: Absence::default(),
        failures: 0,
        sooner,
        well_since: None,
        told: None,
        footing: Footing::default(),
        problem: None,
        metrics,
    };
    loop {
        match following.step().await {
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
    async fn step(&mut self) -> Result<(), Halt> {
        match self.version.clone().filter(|_| Instant::now() < self.list_at) {
            Some(version) => self.watch(version).await,
            None => self.list().await,
        }
    }

    async fn list(&mut self) -> Result<(), Halt> {
        // A failed list does not prevent a watch from continuing.
        self.list_at = Instant::now() + self.list_interval();
        let (census, version) = self.api.list().await?;
        self.metrics.lists.inc();
        let found = census.found();
        let gone = self.absence.look(self.members.urls(), found.len(), |url| found.contains_key(url));
        if let Some(fleet) = self.fleet.upgrade() {
            self.members.remove(&fleet, &gone);
        }
        if self.absence.is_open() {
            // A watch reports nothing about members that a list missed, so a second list decides soon.
            self.list_at = self.list_at.min(Instant::now() + self.api.config().backoff_min);
        }
        self.census = census;
        self.version = Some(version);
        self.is_well();
        self.apply()?;
        Ok(())
    }

    /// Time until the next list: as configured, less up to a tenth at random. Otherwise frontends that started
    /// together, or lost the API server together, would always list at the same moment.
    fn list_interval(&mut self) -> Duration {
        self.api.config().list.mul_f64(1.0 - self.chance() / 10.0)
    }

    /// The next of evenly spread numbers from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.sooner = self.sooner.wrapping_add(GOLDEN);
        self.sooner as f64 / u64::MAX as f64
    }

    async fn watch(&mut self, version: String) -> Result<(), Halt> {
        let began = Instant::now();
        let mut lines = self.api.watch(&version).await?;
        self.is_well();
        let every = self.api.config().backoff_min;
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line?,
                () = sleep_until(self.list_at) => return Ok(()),
                () = sleep(every), if self.footing.is_open() => {
                    self.apply()?;
                    continue;
                }
            };
            match line {
                Some(line) => self.take(&line)?,
                None => {
                    // A watch that ends at once must not be repeated in a tight loop.
                    sleep_until(began + self.api.config().backoff_min).await;
                    return Ok(());
                }
            }
            self.failures = 0;
        }
    }

    /// Processes a line of a watch.
    fn take(&mut self, line: &[u8]) -> Result<(), Halt> {
        let version = match WatchLine::read(line)? {
            WatchLine::Put(slice) => {
                let version = slice.metadata.resource_version.clone();
                self.census.put(slice)?;
                self.apply()?;
                version
            }
            WatchLine::Gone { name, version } => {
                self.census.remove(&name);
                self.apply()?;
                version
            }
            WatchLine::Bookmark { version } => version,
            WatchLine::Refused { status, message } => return Err(self.api.refused(status, message).into()),
        };
        if !version.is_empty() {
            self.version = Some(version);
        }
        Ok(())
    }

    /// Makes the members match the known endpoints.
    fn apply(&mut self) -> Result<(), Halt> {
        let fleet = self.fleet.upgrade().ok_or(Over)?;
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

    fn is_well(&mut self) {
        self.well_since.get_or_insert_with(Instant::now);
        self.metrics.current.set(1);
        if self.told.take().is_some() {
            tracing::info!(service = %self.service, "following the Service again");
        }
    }

    /// Records a failure; returns the pause before the next try.
    fn failed(&mut self, trouble: Trouble) -> Duration {
        let (least, most) = (self.api.config().backoff_min, self.api.config().backoff_max);
        if self.well_since.take().is_some_and(|since| since.elapsed() >= most) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if trouble.wants_a_list() || self.failures >= DOUBTFUL {
            self.version = None;
        }
        // A server may expire versions, so the first time is not a failure.
        if trouble == Trouble::Expired && self.failures == 1 {
            tracing::debug!(service = %self.service, "listing again: the known version expired");
            return Duration::ZERO;
        }
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

impl From<Over> for Halt {
    fn from(_: Over) -> Self {
        Self::Over
    }
}
