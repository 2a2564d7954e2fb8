//! The current keys of a server.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::RwLock;
use parm_protocol::{Error, StableCode};
use tokio_util::sync::CancellationToken;

use super::caller::{Caller, Visit};
use super::limit::Limit;
use super::{Access, Digest, Entry, KeyFile, Role, credential};
use crate::FileFault;
use crate::settling::follow;

/// The keys of a server; cheap to clone. Whether keys are required is decided at the start: no change of the file can
/// open a server.
#[derive(Clone, Default)]
pub struct Keys(Option<Arc<Ring>>);

struct Ring {
    /// Their file, if they come from one.
    file: Option<PathBuf>,
    known: RwLock<Arc<Holders>>,
    /// Why the current file is invalid, if it is.
    stale: RwLock<Option<String>>,
}

/// The holder of each key.
type Holders = HashMap<Digest, Arc<Holder>>;

/// The holder of a key.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) name: Arc<str>,
    pub(super) role: Role,
    pub(super) limit: Arc<Limit>,
}

impl Keys {
    /// No keys: callers need none.
    pub fn none() -> Self {
        Self(None)
    }

    /// The keys of a file, which is followed once a server runs; no keys without a file.
    pub fn open(file: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = file else { return Ok(Self::none()) };
        let read = KeyFile::text(path).and_then(|text| KeyFile::read(&text));
        let file = read.map_err(|reason| Error::KeyFile { path: path.to_owned(), reason })?;
        Ok(Self::with(Some(path.to_owned()), &file.keys))
    }

    /// These keys.
    pub fn of(entries: &[Entry]) -> Self {
        Self::with(None, entries)
    }

    fn with(file: Option<PathBuf>, entries: &[Entry]) -> Self {
        let known = RwLock::new(Arc::new(known(entries, &Holders::new())));
        Self(Some(Arc::new(Ring { file, known, stale: RwLock::default() })))
    }

    /// Whether callers need a key.
    pub fn are_asked_for(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the fault of the file now, if it was changed and cannot be used.
    pub fn fault(&self) -> Option<FileFault> {
        let ring = self.0.as_ref()?;
        let (reason, file) = (ring.stale.read().clone()?, ring.file.as_ref()?);
        let text =
            format!("cannot use the key file {}: {reason}: the previous keys stay valid", file.display());
        Some(FileFault { code: StableCode::KeyFile, text, fails: true })
    }

    /// Follows the file until `ended`; does nothing without a file. An invalid file changes nothing: to lock out all clients, put
    /// one new key into the file.
    pub(crate) async fn follow(self, ended: CancellationToken) {
        let Some(path) = self.0.as_ref().and_then(|ring| ring.file.clone()) else { return };
        let read = {
            let path = path.clone();
            move || KeyFile::text(&path)
        };
        let look = |read, changed| {
            if changed {
                self.take(&path, read);
            }
        };
        follow(None, read, Clone::clone, look, ended).await;
    }

    /// Replaces the keys by those of the file.
    fn take(&self, path: &Path, read: Result<String, String>) {
        let Some(ring) = &self.0 else { return };
        *ring.stale.write() = match read.and_then(|text| KeyFile::read(&text)) {
            Ok(file) => {
                self.replace(&file.keys);
                tracing::info!(file = %path.display(), keys = file.keys.len(), "keys");
                None
            }
            Err(reason) => {
                tracing::warn!(code = %StableCode::KeyFile, file = %path.display(), %reason, "cannot use the key file: the previous keys stay valid");
                Some(reason)
            }
        };
    }

    /// Replaces the keys. Remaining holders keep the usage of their limits.
    pub fn replace(&self, entries: &[Entry]) {
        let Some(ring) = &self.0 else { return };
        let before = ring.known.read().clone();
        *ring.known.write() = Arc::new(known(entries, &before));
    }

    /// The caller of a request, from its headers.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Error> {
        if self.0.is_none() {
            return Ok(Caller::default());
        }
        let digest = credential::given(headers).ok_or(Error::NoKey)?;
        let holder = self.holder(&digest).ok_or(Error::UnknownKey)?;
        Ok(Caller::new(self.clone(), digest, holder))
    }

    /// Admits a request, or returns the reason for its rejection. Routes for everyone need no key and are not counted.
    pub fn admit(&self, headers: &HeaderMap, access: Access) -> Result<Visit, Error> {
        if access == Access::Everyone || self.0.is_none() {
            return Ok(Visit::default());
        }
        self.authenticate(headers)?.first_visit(access)
    }

    pub(super) fn holder(&self, digest: &Digest) -> Option<Arc<Holder>> {
        self.0.as_ref()?.known.read().get(digest).cloned()
    }
}

fn known(entries: &[Entry], before: &Holders) -> Holders {
    // Each name has one holder, whatever the number of its digests.
    let before: HashMap<&str, &Arc<Holder>> = before.values().map(|holder| (&*holder.name, holder)).collect();
    let mut known = Holders::new();
    for entry in entries {
        let allowance = entry.allowance();
        let own = before.get(entry.name.as_str()).filter(|holder| holder.limit.allowance == allowance);
        let limit = own.map_or_else(|| Arc::new(Limit::new(allowance)), |holder| holder.limit.clone());
        let holder = Arc::new(Holder { name: entry.name.as_str().into(), role: entry.role, limit });
        known.extend(entry.digests().iter().map(|digest| (*digest, holder.clone())));
    }
    known
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map(|ring| ring.known.read().len());
        f.debug_tuple("Keys").field(&count).finish()
    }
}
