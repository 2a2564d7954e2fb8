//! Keeps the served models in step with another server: loads the models that it serves and unloads others.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::Absence;
use parm_protocol::Error as Refusal;
use parm_protocol::client::Client;
use tokio::runtime::Handle;

use super::Host;
use super::load::Source;
use super::refresh::retire;
use crate::engine::{Channel, Description};
use crate::{Config, Error, VersionPolicy};

/// The interval of polls while the other server serves nothing.
const SOON: Duration = Duration::from_millis(500);
/// Failed polls after which its models are taken out of service; until then requests fail individually.
const MISSES: u32 = 2;

type Served = BTreeMap<String, BTreeMap<u64, Description>>;

/// The other server.
pub(super) struct Origin {
    channel: Mutex<Channel>,
    /// The client for tasks, if instances are tasks.
    pub(super) client: Option<Arc<dyn Client>>,
    /// The models that it served at the last poll, as far as they were loaded.
    served: Mutex<Served>,
    absence: Mutex<Absence<String>>,
}

impl Origin {
    /// The configured upstream; an error if another source of models is configured too.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Error> {
        let Some(url) = &config.upstream.url else { return Ok(None) };
        let others = [("models", config.models.is_some()), ("emulated", !config.emulated.is_empty())];
        if let Some((field, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Error::UpstreamConflict { url: url.to_string(), field });
        }
        let computes = config.faults || config.batching.max_batch.get() > 1;
        let client =
            if computes || Handle::try_current().is_err() { None } else { Some(config.upstream.client()?) };
        Ok(Some(Self {
            channel: Mutex::new(config.upstream.channel()?),
            client,
            served: Mutex::default(),
            absence: Mutex::default(),
        }))
    }

    /// The runtime of the tasks, if instances are tasks.
    pub(super) fn runtime(&self) -> Option<Handle> {
        self.client.as_ref().and_then(|_| Handle::try_current().ok())
    }

    /// The versions of a model to serve.
    pub(super) fn wanted(&self, name: &str, policy: VersionPolicy) -> Result<BTreeMap<u64, Source>, Error> {
        let described = self.channel.lock().describe(name, policy)?;
        Ok(described.into_iter().map(|(number, version)| (number, Source::Upstream(version))).collect())
    }

    fn survey(&self, config: &Config) -> Result<Served, Error> {
        let channel = self.channel.lock();
        let ready = channel.models(&config.load)?;
        let mut served = Served::new();
        for name in ready {
            match channel.describe(&name, config.versions) {
                Ok(versions) => drop(served.insert(name, versions)),
                Err(error @ Error::Upstream { error: Refusal::Transport { .. }, .. }) => return Err(error),
                // A model without a description hides no other.
                Err(error) => {
                    tracing::debug!(name, %error, "no description from the upstream: model ignored")
                }
            }
        }
        Ok(served)
    }
}

impl Host {
    /// Loads the models of the other server. Waits for a server that does not answer yet, unless polling is off.
    pub(super) fn load_upstream(&self, origin: &Origin) -> Result<(), Error> {
        let first = origin.survey(&self.config).map(|now| self.keep_up(origin, now));
        self.started.store(true, Ordering::Release);
        match first {
            Err(error) if !self.config.reload.is_zero() => {
                tracing::warn!(code = %parm_protocol::StableCode::UpstreamUnreachable, %error, "the upstream does not answer yet: waiting for it");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Follows the other server from a separate thread while the host lives.
    pub(super) fn follow_upstream(self: &Arc<Self>) -> Result<(), Error> {
        let interval = self.config.reload;
        if interval.is_zero() {
            return Ok(());
        }
        let host = Arc::downgrade(self);
        let follow = move || {
            let (mut pause, mut misses) = (SOON.min(interval), 0);
            while host.strong_count() > 0 {
                std::thread::sleep(pause);
                let Some(serves) = look(&host, &mut misses) else { return };
                pause = if serves { interval } else { SOON.min(interval) };
            }
        };
        let thread = std::thread::Builder::new().name("upstream-watch".into()).spawn(follow);
        thread.map(drop).map_err(|error| Error::Thread { message: error.to_string() })
    }

    /// Loads new or changed models, and unloads removed ones.
    fn keep_up(&self, origin: &Origin, mut now: Served) {
        let before = std::mem::take(&mut *origin.served.lock());
        // An empty list is believed, unlike an empty mount, but it must come twice as well.
        let found = now.len().max(1);
        let gone = origin.absence.lock().look(before.keys(), found, |name| now.contains_key(name));
        for name in &gone {
            tracing::info!(name, "removed from the upstream: unloaded");
            let _alone = self.orders.alone();
            self.catalogue.known(name).into_iter().for_each(|version| self.forget(name, version));
        }
        // A failed load is tried again at the next poll; the error is in the log and in the index.
        now.retain(|name, versions| {
            before.get(name) == Some(versions) || self.load_now(name, self.orders.ask()).is_ok()
        });
        // A model that was missed once is served until the next poll decides.
        for (name, versions) in before.into_iter().filter(|(name, _)| !gone.contains(name)) {
            if origin.absence.lock().is_missed(&name) {
                now.insert(name, versions);
            }
        }
        *origin.served.lock() = now;
    }

    /// Takes all models out of service, so that clients choose another worker.
    fn silence(&self, origin: &Origin, reason: &str) {
        let _alone = self.orders.alone();
        for name in std::mem::take(&mut *origin.served.lock()).keys() {
            for version in self.catalogue.known(name) {
                retire(self.catalogue.unload(name, version, reason));
            }
        }
    }
}

/// Polls the other server once; whether it serves anything, while the host lives.
fn look(host: &Weak<Host>, misses: &mut u32) -> Option<bool> {
    let host = host.upgrade()?;
    let origin = host.origin.as_ref()?;
    match origin.survey(&host.config) {
        Ok(now) => {
            *misses = 0;
            host.keep_up(origin, now);
        }
        Err(error) => {
            *misses = misses.saturating_add(1);
            if *misses == MISSES && !origin.served.lock().is_empty() {
                tracing::error!(code = %parm_protocol::StableCode::UpstreamUnreachable, %error, "the upstream does not answer: its models are out of service");
                host.silence(origin, &error.to_string());
            }
        }
    }
    Some(!origin.served.lock().is_empty())
}
