//! The TLS files, which are read together: a certificate is useless without its key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use super::Config;
use crate::settling::read_regular;

const MAX_BYTES: u64 = 1 << 20;

/// Permissions for users other than the owner and the group.
const OTHERS: u32 = 0o007;

pub(super) struct Files {
    certificate: Option<Content>,
    key: Option<Content>,
    client_ca: Option<Content>,
    ca: Option<Content>,
}

struct Content {
    field: &'static str,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A fingerprint of the files' bytes, to detect changes without keeping them.
pub(super) type Print = [u8; 32];

/// A certificate with its intermediates, and its key.
pub(super) struct Certified {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// For messages.
    pub(super) paths: [PathBuf; 2],
}

impl Files {
    pub(super) fn read(config: &Config) -> Result<Self, String> {
        Ok(Self {
            certificate: read("tls.certificate", config.certificate.as_deref())?,
            key: read("tls.key", config.key.as_deref())?,
            client_ca: read("tls.client_ca", config.client_ca.as_deref())?,
            ca: read("tls.ca", config.ca.as_deref())?,
        })
    }

    pub(super) fn print(&self) -> Print {
        let mut hash = Sha256::new();
        for content in [&self.certificate, &self.key, &self.client_ca, &self.ca].into_iter().flatten() {
            hash.update(content.field.as_bytes());
            hash.update((content.bytes.len() as u64).to_le_bytes());
            hash.update(&content.bytes);
        }
        hash.finalize().into()
    }

    /// The certificate of this process, if it has one.
    pub(super) fn certified(&self) -> Result<Option<Certified>, String> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else { return Ok(None) };
        let chain = certificate.certificates()?;
        let paths = [certificate.path.clone(), key.path.clone()];
        let key = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|_| {
            format!("{key} holds no private key: it must be PEM, PKCS#8, PKCS#1 or SEC1, and not encrypted")
        })?;
        Ok(Some(Certified { chain, key, paths }))
    }

    pub(super) fn client_ca(&self) -> Result<Option<RootCertStore>, String> {
        self.client_ca.as_ref().map(Content::authorities).transpose()
    }

    pub(super) fn ca(&self) -> Result<Option<RootCertStore>, String> {
        self.ca.as_ref().map(Content::authorities).transpose()
    }
}

impl Content {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(format!("{self} holds no certificate: it must be PEM, with BEGIN CERTIFICATE")),
            Err(error) => Err(format!("{self} is not a PEM file: {error}")),
        }
    }

    fn authorities(&self) -> Result<RootCertStore, String> {
        let mut store = RootCertStore::empty();
        for certificate in self.certificates()? {
            store.add(certificate).map_err(|error| format!("{self} holds an invalid authority: {error}"))?;
        }
        Ok(store)
    }
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.path.display())
    }
}

fn read(field: &'static str, path: Option<&Path>) -> Result<Option<Content>, String> {
    let Some(path) = path else { return Ok(None) };
    let bytes = read_regular(path, MAX_BYTES)
        .map_err(|reason| format!("{field}: cannot read {}: {reason}", path.display()))?;
    Ok(Some(Content { field, path: path.to_owned(), bytes }))
}

/// Whether every user of this machine can read a file.
pub(super) fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & OTHERS != 0)
}
