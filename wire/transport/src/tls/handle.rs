//! The TLS handle of a process, which always returns the current identity.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use parm_protocol::{Error, StableCode};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::files::{Files, Print, is_open};
use super::identity::Identity;
use super::{Config, Mode, Welcome};
use crate::FileFault;
use crate::settling::follow;

/// A certificate that expires within this time causes a warning.
const SOON: Duration = Duration::from_secs(7 * 86_400);

/// TLS of a process; cheap to clone. Off by default.
#[derive(Clone, Default)]
pub struct Tls(pub(super) Option<Arc<Charter>>);

/// State that all TLS connections share.
pub(super) struct Charter {
    pub(super) config: Config,
    identity: RwLock<Arc<Identity>>,
    print: Print,
    pub(super) handshakes: Semaphore,
    pub(super) counts: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Accepted connections that use TLS.
    pub(super) secured: AtomicU64,
    /// Accepted connections without TLS, if both are allowed.
    pub(super) plain: AtomicU64,
    /// Rejected connections: failed handshakes, and plain text if TLS is required.
    pub(super) refused: AtomicU64,
    /// Changes of the files that were applied.
    pub(super) reloads: AtomicU64,
    /// Why the current files are invalid, if they are.
    pub(super) stale: Mutex<Option<String>>,
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
            counts: Counts::default(),
        }))))
    }

    /// How TLS is used, unless it is off.
    pub fn mode(&self) -> Option<Mode> {
        self.0.as_ref().map(|charter| charter.config.mode)
    }

    /// The private key's file, if every user of this machine can read it.
    pub fn exposed(config: &Config) -> Option<&std::path::Path> {
        config.key.as_deref().filter(|path| is_open(path))
    }

    /// Follows the files until `ended`; does nothing without files. Invalid files change nothing: issuers write one file after the
    /// other, and some write them in place.
    pub async fn follow(self, ended: CancellationToken) {
        let Some(charter) = self.0 else { return };
        let config = charter.config.clone();
        let print = |read: &Result<Files, String>| read.as_ref().map(Files::print).map_err(Clone::clone);
        let look = |read, changed| {
            // A refused certificate may have become valid by now.
            if changed || charter.counts.stale.lock().is_some() {
                charter.changed(read);
            }
        };
        follow(Some(Ok(charter.print)), move || Files::read(&config), print, look, ended).await;
    }

    /// Returns the faults of the files now: changed files that are not in use, and a certificate that expires.
    pub fn faults(&self) -> Vec<FileFault> {
        let Some(charter) = &self.0 else { return Vec::new() };
        let stale = charter.counts.stale.lock().clone().map(|reason| FileFault {
            code: StableCode::TlsFiles,
            text: format!("cannot use the files of [tls]: {reason}: the previous ones stay in use"),
            fails: true,
        });
        stale.into_iter().chain(faults(&charter.identity())).collect()
    }

    /// The metrics in the text format of Prometheus; empty if TLS is off. They are few, and need no registry.
    pub fn metrics(&self) -> String {
        let mut page = String::new();
        let Some(charter) = &self.0 else { return page };
        let counts = &charter.counts;
        let mut family = |kind: &str, name: &str, help: &str, series: &[(&str, u64)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "# HELP parm_tls_{name} {help}\n# TYPE parm_tls_{name} {kind}");
            for (labels, value) in series {
                let _ = writeln!(page, "parm_tls_{name}{labels} {value}");
            }
        };
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if let Some(end) = charter.identity().not_after {
            let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let help = "Expiry of the current certificate, in Unix time";
            family("gauge", "certificate_expires_seconds", help, &[("", seconds)]);
        }
        let help = "1 while the files of [tls] are invalid and the previous ones are in use";
        family("gauge", "files_stale", help, &[("", u64::from(counts.stale.lock().is_some()))]);
        let help = "Changes of the files of [tls] that were applied";
        family("counter", "reloads_total", help, &[("", count(&counts.reloads))]);
        let spoken = [
            ("{spoken=\"tls\"}", count(&counts.secured)),
            ("{spoken=\"plain\"}", count(&counts.plain)),
            ("{spoken=\"refused\"}", count(&counts.refused)),
        ];
        let help = "Accepted connections by protocol, and rejected ones";
        family("counter", "connections_total", help, &spoken);
        page
    }

    /// The TLS part of a listener.
    pub(crate) fn welcome(&self) -> Welcome {
        Welcome(self.0.clone().filter(|charter| charter.config.mode > Mode::Off))
    }
}

impl Charter {
    pub(super) fn identity(&self) -> Arc<Identity> {
        self.identity.read().clone()
    }

    fn changed(&self, read: Result<Files, String>) {
        let refused = read.and_then(|files| self.take(&files)).err();
        let before = std::mem::replace(&mut *self.counts.stale.lock(), refused.clone());
        match refused {
            None => tracing::info!("TLS: new connections use the changed files"),
            // It was said already.
            refused if refused == before => {}
            Some(reason) => {
                tracing::warn!(code = %StableCode::TlsFiles, %reason, "cannot use the files of [tls]: the previous ones stay in use")
            }
        }
    }

    /// Replaces the identity by one from these files, for new connections. Invalid files leave the previous one.
    fn take(&self, files: &Files) -> Result<(), String> {
        let identity = Identity::of(&self.config, files)?;
        if identity.is_expired() && !self.identity().is_expired() {
            return Err("tls.certificate: the certificate has expired: issue a new one".into());
        }
        if let (Some(early), None) = (identity.early(), self.identity().early()) {
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
    for FileFault { code, text, fails } in faults(identity) {
        match fails {
            true => tracing::error!(%code, "{text}"),
            false => tracing::warn!(%code, "{text}: issue a new one"),
        }
    }
}

/// What is wrong with a certificate at this time.
fn faults(identity: &Identity) -> impl Iterator<Item = FileFault> {
    let fault = |fails, text| FileFault { code: StableCode::CertificateExpired, text, fails };
    let early =
        identity.early().map(|early| fault(true, format!("{early}: peers will reject it until then")));
    let expiry = match identity.not_after.map(|end| end.duration_since(SystemTime::now())) {
        Some(Err(_)) => Some(fault(true, "the certificate has expired and peers will reject it".to_owned())),
        Some(Ok(left)) if left < SOON => {
            Some(fault(false, format!("the certificate expires in {} hours", left.as_secs() / 3600)))
        }
        _ => None,
    };
    early.into_iter().chain(expiry)
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
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl Eq for Tls {}

impl fmt::Debug for Charter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charter").field("config", &self.config).finish_non_exhaustive()
    }
}
