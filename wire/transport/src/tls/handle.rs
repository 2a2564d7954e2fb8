//! TLS as the rest of the process has it: one handle, which always gives what the files said last.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use parm_protocol::Error;
use tokio::sync::Semaphore;

use super::files::{Files, Print, is_open};
use super::identity::Identity;
use super::memory::Memory;
use super::{Config, Mode, Spoken, Welcome};

/// A certificate that ends this soon is worth a warning.
const SOON: Duration = Duration::from_secs(7 * 86_400);

/// TLS of a process; cheap to clone. The default is none.
#[derive(Clone, Default)]
pub struct Tls(pub(super) Option<Arc<Charter>>);

/// What everybody who speaks TLS shares.
pub(super) struct Charter {
    pub(super) config: Config,
    identity: RwLock<Arc<Identity>>,
    /// What the identity was made of.
    pub(super) print: Print,
    pub(super) handshakes: Semaphore,
    pub(super) memory: Memory,
    pub(super) counts: Counts,
}

/// What happened so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Connections to what is listened on that speak TLS.
    pub(super) secured: AtomicU64,
    /// Those that speak plain where both are spoken.
    pub(super) plain: AtomicU64,
    /// Those that were not agreed upon, plain ones where TLS is wanted included.
    pub(super) refused: AtomicU64,
    /// Workers that did not speak TLS and were spoken to in plain.
    pub(super) fallbacks: AtomicU64,
    /// Changes of the files that were taken over.
    pub(super) reloads: AtomicU64,
    /// The files cannot be used as they are now.
    pub(super) stale: AtomicBool,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What is spoken.
    pub mode: Mode,
    /// Until when the certificate in use is valid.
    pub not_after: Option<SystemTime>,
}

impl Tls {
    /// Reads the files of a configuration and makes sure that they can be used.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let wrong = |reason| Error::Tls { reason };
        config.check().map_err(wrong)?;
        if config.is_empty() {
            return Ok(Self(None));
        }
        let files = Files::read(config).map_err(wrong)?;
        let identity = Identity::of(config, &files).map_err(wrong)?;
        warn(config, &identity);
        let handshakes = Semaphore::new(config.max_handshakes.get() as usize);
        Ok(Self(Some(Arc::new(Charter {
            config: config.clone(),
            identity: RwLock::new(Arc::new(identity)),
            print: files.print(),
            handshakes,
            memory: Memory::default(),
            counts: Counts::default(),
        }))))
    }

    /// How it stands, if there is any.
    pub fn standing(&self) -> Option<Standing> {
        let charter = self.0.as_ref()?;
        Some(Standing { mode: charter.config.mode, not_after: charter.identity().not_after })
    }

    /// Files that everybody on this machine can read and nobody else should.
    pub fn exposed(config: &Config) -> Option<&std::path::Path> {
        config.key.as_deref().filter(|path| is_open(path))
    }

    /// What stands before a listener where this is spoken.
    pub(crate) fn welcome(&self, spoken: Spoken) -> Welcome {
        Welcome::new(self.0.clone().filter(|charter| charter.config.mode > Mode::Off), spoken)
    }
}

impl Charter {
    /// What the files said last.
    pub(super) fn identity(&self) -> Arc<Identity> {
        self.identity.read().clone()
    }

    /// Makes an identity of the files, from now on that of new connections. The one before stays where they are broken.
    pub(super) fn take(&self, files: &Files) -> Result<(), String> {
        let identity = Identity::of(&self.config, files)?;
        if identity.is_expired() && !self.identity().is_expired() {
            return Err("tls.certificate: its time is over already: issue another one".into());
        }
        warn(&self.config, &identity);
        *self.identity.write() = Arc::new(identity);
        self.counts.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Says what the operator should know about files that can be used.
fn warn(config: &Config, identity: &Identity) {
    if let Some(path) = Tls::exposed(config) {
        tracing::warn!(key = %path.display(), "everybody on this machine can read the private key: chmod 600");
    }
    match identity.not_after.map(|end| end.duration_since(SystemTime::now())) {
        Some(Err(_)) => {
            tracing::error!("the certificate's time is over: whoever checks it refuses it; issue another one")
        }
        Some(Ok(left)) if left < SOON => {
            tracing::warn!(hours = left.as_secs() / 3600, "the certificate ends soon");
        }
        _ => {}
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(charter) => write!(f, "Tls({})", charter.config.mode.name()),
            None => f.write_str("Tls(none)"),
        }
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Tls {}

impl fmt::Debug for Charter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charter").field("config", &self.config).finish_non_exhaustive()
    }
}
