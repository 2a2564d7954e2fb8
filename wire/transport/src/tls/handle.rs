//! The TLS handle of a process, which always returns the current identity.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use parm_protocol::Error;
use tokio::sync::Semaphore;

use super::files::{Files, Print, is_open};
use super::identity::Identity;
use super::memory::Memory;
use super::{Config, Mode, Spoken, Welcome};

/// A certificate that expires within this time causes a warning.
pub(super) const SOON: Duration = Duration::from_secs(7 * 86_400);

/// TLS of a process; cheap to clone. Off by default.
#[derive(Clone, Default)]
pub struct Tls(pub(super) Option<Arc<Charter>>);

/// State that all TLS connections share.
pub(super) struct Charter {
    pub(super) config: Config,
    identity: RwLock<Arc<Identity>>,
    /// The fingerprint of the identity's files.
    pub(super) print: Print,
    pub(super) handshakes: Semaphore,
    pub(super) memory: Memory,
    pub(super) counts: Counts,
}

/// Counters.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Accepted connections that use TLS.
    pub(super) secured: AtomicU64,
    /// Accepted connections without TLS, if both are allowed.
    pub(super) plain: AtomicU64,
    /// Rejected connections: failed handshakes, and plain text if TLS is required.
    pub(super) refused: AtomicU64,
    /// Connections to workers that fell back to plain text.
    pub(super) fallbacks: AtomicU64,
    /// Changes of the files that were applied.
    pub(super) reloads: AtomicU64,
    /// Why the current files are invalid, if they are.
    pub(super) stale: Mutex<Option<String>>,
    /// When they become valid, if that is all.
    pub(super) awaited: Mutex<Option<SystemTime>>,
}

/// The state of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The mode.
    pub mode: Mode,
    /// The expiry of the current certificate.
    pub not_after: Option<SystemTime>,
}

impl Tls {
    /// Reads and checks the files of a configuration.
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

    /// The state, unless TLS is off.
    pub fn standing(&self) -> Option<Standing> {
        let charter = self.0.as_ref()?;
        Some(Standing { mode: charter.config.mode, not_after: charter.identity().not_after })
    }

    /// Says when the current certificate becomes valid, if it is not valid yet.
    pub fn early(&self) -> Option<String> {
        self.0.as_ref()?.identity().early()
    }

    /// The private key's file, if every user of this machine can read it.
    pub fn exposed(config: &Config) -> Option<&std::path::Path> {
        config.key.as_deref().filter(|path| is_open(path))
    }

    /// The TLS part of a listener for this protocol.
    pub(crate) fn welcome(&self, spoken: Spoken) -> Welcome {
        Welcome::new(self.0.clone().filter(|charter| charter.config.mode > Mode::Off), spoken)
    }
}

impl Charter {
    pub(super) fn identity(&self) -> Arc<Identity> {
        self.identity.read().clone()
    }

    /// Whether refused files have become valid by now.
    pub(super) fn is_due(&self) -> bool {
        self.counts.awaited.lock().is_some_and(|start| start <= SystemTime::now())
    }

    /// Replaces the identity by one from these files, for new connections. Invalid files leave the previous one.
    pub(super) fn take(&self, files: &Files) -> Result<(), String> {
        let identity = Identity::of(&self.config, files)?;
        if identity.is_expired() && !self.identity().is_expired() {
            return Err("tls.certificate: the certificate has expired: issue a new one".into());
        }
        let before = self.identity();
        if let (Some(early), None) = (identity.early(), before.awaited()) {
            *self.counts.awaited.lock() = identity.awaited();
            return Err(format!("tls.certificate: {early}: issue one that is valid now, or wait"));
        }
        warn(&self.config, &identity);
        *self.identity.write() = Arc::new(identity);
        self.counts.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn warn(config: &Config, identity: &Identity) {
    if let Some(path) = Tls::exposed(config) {
        tracing::warn!(key = %path.display(), "every user of this machine can read the private key: run chmod 600");
    }
    if let Some(early) = identity.early() {
        tracing::error!(code = %parm_protocol::StableCode::CertificateExpired, "{early}: peers will reject it until then");
    }
    match identity.not_after.map(|end| end.duration_since(SystemTime::now())) {
        Some(Err(_)) => {
            tracing::error!(code = %parm_protocol::StableCode::CertificateExpired, "the certificate has expired and peers will reject it: issue a new one")
        }
        Some(Ok(left)) if left < SOON => {
            tracing::warn!(code = %parm_protocol::StableCode::CertificateExpired, hours = left.as_secs() / 3600, "the certificate expires soon: issue a new one");
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
