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
use super::{Access, Digest, Entry, KeyFile, Role};
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

type Holders = HashMap<Digest, Arc<Holder>>;

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
        let read = KeyFile::open(path);
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
        let digest = Digest::given(headers).ok_or(Error::NoKey)?;
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use http::header::AUTHORIZATION;
    use parm_protocol::Code;

    use super::*;
    use crate::keys::Digests;

    fn entry(name: &str, role: Role, key: &str) -> Entry {
        Entry::new(name, role, Digest::of(key.as_bytes()))
    }

    fn bearer(key: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())])
    }

    #[test]
    fn change_of_keys_affects_known_callers() {
        let keys = Keys::of(&[entry("a", Role::Control, "1"), entry("b", Role::Read, "2")]);
        let (a, b) = (keys.authenticate(&bearer("1")).unwrap(), keys.authenticate(&bearer("2")).unwrap());
        assert_eq!((a.name().as_deref(), a.role()), (Some("a"), Role::Control));
        keys.replace(&[entry("a", Role::Infer, "1"), entry("c", Role::Read, "3")]);
        assert!(a.still_opens(Access::Infer) && !a.still_opens(Access::Control), "its role changed");
        assert!(!b.still_opens(Access::AnyKey), "it was removed");
        assert_eq!(b.visit(Access::Read).unwrap_err(), Error::UnknownKey);
        keys.admit(&bearer("3"), Access::Read).unwrap();
        assert!(Caller::default().still_opens(Access::Control));
    }

    #[test]
    fn two_digests_of_one_name_share_a_holder() {
        let both = Entry {
            sha256: Digests::Several(vec![Digest::of(b"old"), Digest::of(b"new")]),
            concurrency: NonZeroU32::new(1),
            ..entry("a", Role::Infer, "")
        };
        let keys = Keys::of(&[both]);
        let visit = keys.admit(&bearer("old"), Access::Infer).unwrap();
        let over = keys.admit(&bearer("new"), Access::Infer).unwrap_err();
        assert_eq!(over.code(), Code::TooManyRequests);
        drop(visit);
        keys.admit(&bearer("new"), Access::Infer).unwrap();
    }

    #[test]
    fn usage_of_a_limit_survives_a_change_of_the_file() {
        let limited = Entry { concurrency: NonZeroU32::new(1), ..entry("a", Role::Infer, "1") };
        let keys = Keys::of(std::slice::from_ref(&limited));
        let visit = keys.admit(&bearer("1"), Access::Infer).unwrap();
        keys.replace(&[limited.clone(), entry("b", Role::Read, "2")]);
        keys.admit(&bearer("1"), Access::Infer).unwrap_err();
        keys.replace(&[Entry { concurrency: NonZeroU32::new(2), ..limited }]);
        let other = keys.admit(&bearer("1"), Access::Infer).unwrap();
        drop((visit, other));
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_file_keeps_the_previous_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let text = |key: &str| {
            format!("[[key]]\nname = \"a\"\nrole = \"infer\"\nsha256 = \"{}\"\n", Digest::of(key.as_bytes()))
        };
        std::fs::write(&path, text("1")).unwrap();
        let keys = Keys::open(Some(&path)).unwrap();
        let ended = tokio_util::sync::CancellationToken::new();
        let following = tokio::spawn(keys.clone().follow(ended.clone()));
        let opens = |key: &str| keys.admit(&bearer(key), Access::Infer).is_ok();
        let look = async || tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        for (written, known) in [
            (text("2"), "2"),
            (String::new(), "2"),
            ("[[key]]\nname = ".to_owned(), "2"),
            (text("3").replace("infer", "root"), "2"),
            (text("4"), "4"),
        ] {
            std::fs::write(&path, &written).unwrap();
            look().await;
            assert!(opens(known), "{written}");
            assert_eq!(["1", "2", "3", "4"].map(opens).iter().filter(|open| **open).count(), 1, "{written}");
        }
        std::fs::remove_file(&path).unwrap();
        look().await;
        assert!(opens("4"));
        ended.cancel();
        following.await.unwrap();
        let error = Keys::open(Some(&path)).unwrap_err();
        assert!(
            matches!(&error, Error::KeyFile { .. }) && error.to_string().contains("keys.toml"),
            "{error}"
        );
    }
}
