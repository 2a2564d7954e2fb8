//! Keeps at it: a list, a watch from there, and again, with pauses that grow from failure to failure. See the module for why.

use std::sync::Weak;
use std::time::Duration;

use parm_protocol::Absence;
use tokio::time::{Instant, sleep, sleep_until};

use super::api::ApiServer;
use super::census::Census;
use super::membership::{Footing, Membership};
use super::news::News;
use super::service::Service;
use super::trouble::Trouble;
use crate::discovery::fleet::Fleet;
use crate::metrics::ServiceMetrics;

/// Failures in a row after which what is known is not built upon any more.
const DOUBTFUL: u32 = 3;

/// The fractional part of the golden ratio, of 2^64: its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// How following a Service stands.
struct Following {
    fleet: Weak<Fleet>,
    api: ApiServer,
    service: Service,
    census: Census,
    members: Membership,
    /// Where the next watch goes on; none where only a list helps.
    version: Option<String>,
    /// When all is listed again.
    list_at: Instant,
    /// Members that the last list missed.
    absence: Absence<String>,
    failures: u32,
    /// What pauses are shortened by, of 2^64: frontends that lost one server must not all come back at once.
    sooner: u64,
    /// Since when it works.
    well_since: Option<Instant>,
    /// What was told last of what is wrong.
    told: Option<Trouble>,
    footing: Footing,
    problem: Option<String>,
    metrics: ServiceMetrics,
}

/// The fleet is gone.
struct Over;

/// What ends a step.
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
        // Where it fails and a watch could go on, that is not given up for it.
        self.list_at = Instant::now() + self.list_interval();
        let (census, version) = self.api.list().await?;
        self.metrics.lists.inc();
        let found = census.found();
        let gone = self.absence.look(self.members.urls(), found.len(), |url| found.contains_key(url));
        if let Some(fleet) = self.fleet.upgrade() {
            self.members.remove(&fleet, &gone);
        }
        if self.absence.is_open() {
            // A watch tells nothing of members that a list missed, so a second list must decide, and soon.
            self.list_at = self.list_at.min(Instant::now() + self.api.config().backoff_min);
        }
        self.census = census;
        self.version = Some(version);
        self.is_well();
        self.apply()?;
        Ok(())
    }

    /// How long until the next list: as configured, shortened by up to a tenth by chance. Frontends that started together, or
    /// that lost the API server together, would list at the same moment for ever.
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
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line?,
                () = sleep_until(self.list_at) => return Ok(()),
            };
            match line {
                Some(line) => self.take(&line)?,
                None => {
                    // One that ends at once would be asked for again and again.
                    sleep_until(began + self.api.config().backoff_min).await;
                    return Ok(());
                }
            }
            self.failures = 0;
        }
    }

    /// Takes in a line of a watch.
    fn take(&mut self, line: &[u8]) -> Result<(), Halt> {
        let version = match News::read(line)? {
            News::Put(slice) => {
                let version = slice.metadata.resource_version.clone();
                self.census.put(slice)?;
                self.apply()?;
                version
            }
            News::Gone { name, version } => {
                self.census.remove(&name);
                self.apply()?;
                version
            }
            News::Bookmark { version } => version,
            News::Refused { status, message } => return Err(self.api.refused(status, message).into()),
        };
        if !version.is_empty() {
            self.version = Some(version);
        }
        Ok(())
    }

    /// Makes the fleet what is known.
    fn apply(&mut self) -> Result<(), Halt> {
        let fleet = self.fleet.upgrade().ok_or(Over)?;
        let found = self.census.found();
        self.metrics.endpoints.set(found.len() as i64);
        let footing = self.members.follow(&fleet, &found, |url| self.absence.is_missed(url));
        let service = &self.service;
        if footing != self.footing {
            if footing.kept > 0 {
                let workers = footing.kept;
                tracing::warn!(%service, workers, "the Service names nobody now: nothing changes");
            }
            if let Some(reason) = &footing.reason {
                let endpoints = footing.left_out;
                tracing::warn!(%service, endpoints, %reason, "left out endpoints of the Service");
            }
            self.footing = footing;
        }
        let problem = self.census.problem().map(str::to_owned);
        if problem != self.problem {
            if let Some(problem) = &problem {
                tracing::warn!(%service, %problem, "some endpoints of the Service cannot be used");
            }
            self.problem = problem;
        }
        Ok(())
    }

    fn is_well(&mut self) {
        self.well_since.get_or_insert_with(Instant::now);
        self.metrics.current.set(1);
        if self.told.take().is_some() {
            tracing::info!(service = %self.service, "the Service is followed again");
        }
    }

    /// It failed; returns how long to wait.
    fn failed(&mut self, trouble: Trouble) -> Duration {
        let (least, most) = (self.api.config().backoff_min, self.api.config().backoff_max);
        if self.well_since.take().is_some_and(|since| since.elapsed() >= most) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if trouble.wants_a_list() || self.failures >= DOUBTFUL {
            self.version = None;
        }
        // That a server forgets is its right, and no failure the first time.
        if trouble == Trouble::Expired && self.failures == 1 {
            tracing::debug!(service = %self.service, "listed again: what was known is forgotten");
            return Duration::ZERO;
        }
        self.metrics.failures.inc();
        self.metrics.current.set(0);
        let share = self.chance();
        let pause =
            least.saturating_mul(1 << (self.failures - 1).min(16)).min(most).mul_f64(1.0 - share / 2.0);
        if self.told.as_ref() != Some(&trouble) {
            tracing::warn!(service = %self.service, reason = %trouble, next_try = ?pause, "cannot follow the Service: nothing changes");
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
