//! rustls configurations, built from one read of the files.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ConfigBuilder, Error, RootCertStore, ServerConfig, WantsVersions};
use x509_parser::time::ASN1Time;

use super::Config;
use super::files::{Certified, Files};
use super::verify::{Callers, Named};

pub(super) const HTTP1: &[u8] = b"http/1.1";
pub(super) const HTTP2: &[u8] = b"h2";

/// Everything that handshakes need, from files of the same read.
pub(super) struct Identity {
    pub(super) servers: Option<Arc<ServerConfig>>,
    pub(super) clients: Option<Arc<ClientConfig>>,
    pub(super) not_before: Option<SystemTime>,
    pub(super) not_after: Option<SystemTime>,
}

impl Identity {
    pub(super) fn of(config: &Config, files: &Files) -> Result<Self, String> {
        let certified = files.certified()?;
        let shown = certified.as_ref().and_then(|shown| shown.chain.first());
        let [not_before, not_after] = shown.map_or([None; 2], |own| validity(own));
        let servers = match &certified {
            Some(certified) => Some(servers(config, certified, files.client_ca()?)?),
            None => None,
        };
        let clients = match files.ca()? {
            Some(roots) => Some(clients(config, certified.as_ref(), roots)?),
            None => None,
        };
        Ok(Self { servers, clients, not_before, not_after })
    }

    pub(super) fn is_expired(&self) -> bool {
        self.not_after.is_some_and(|end| end < SystemTime::now())
    }

    /// Says when it becomes valid, if it is not valid yet.
    pub(super) fn early(&self) -> Option<String> {
        let start = self.not_before.filter(|start| *start > SystemTime::now())?;
        let seconds = start.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let start = ASN1Time::from_timestamp(i64::try_from(seconds).ok()?).ok()?;
        Some(format!("the certificate is not valid yet: it is valid from {start}"))
    }
}

/// The beginning and the end of a certificate's validity; `None` if it does not parse.
fn validity(certificate: &[u8]) -> [Option<SystemTime>; 2] {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else { return [None; 2] };
    let validity = certificate.validity();
    [validity.not_before, validity.not_after]
        .map(|time| UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(time.timestamp()).ok()?)))
}

/// The cryptography library of rustls, named here only. ARCHITECTURE.md has the reason for its choice.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn servers(
    config: &Config,
    certified: &Certified,
    authorities: Option<RootCertStore>,
) -> Result<Arc<ServerConfig>, String> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = versions(ServerConfig::builder_with_provider(provider.clone()))?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let signed = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let signed = signed.map_err(|error| format!("tls.client_ca: {error}"))?;
            builder.with_client_cert_verifier(Arc::new(Callers {
                signed,
                algorithms,
                names: config.names.clone(),
            }))
        }
    };
    let made = builder.with_single_cert(certified.chain.clone(), certified.key.clone_key());
    let mut both = made.map_err(|error| unusable(certified, &error))?;
    both.session_storage = Arc::new(NoServerSessionStorage {});
    both.send_tls13_tickets = 0;
    both.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(both))
}

fn clients(
    config: &Config,
    certified: Option<&Certified>,
    roots: RootCertStore,
) -> Result<Arc<ClientConfig>, String> {
    let (provider, roots) = (provider(), Arc::new(roots));
    let builder = versions(ClientConfig::builder_with_provider(provider.clone()))?;
    let builder = if config.worker_names.is_empty() {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        builder.with_webpki_verifier(verifier.map_err(|error| format!("tls.ca: {error}"))?)
    } else {
        let algorithms = provider.signature_verification_algorithms;
        let named = Named { roots, algorithms, names: config.worker_names.clone() };
        builder.dangerous().with_custom_certificate_verifier(Arc::new(named))
    };
    let mut config = match certified {
        None => builder.with_no_client_auth(),
        Some(certified) => builder
            .with_client_auth_cert(certified.chain.clone(), certified.key.clone_key())
            .map_err(|error| unusable(certified, &error))?,
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn versions<S: rustls::ConfigSide>(
    builder: ConfigBuilder<S, WantsVersions>,
) -> Result<ConfigBuilder<S, rustls::WantsVerifier>, String> {
    builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())
}

fn unusable(certified: &Certified, error: &Error) -> String {
    let [certificate, key] = certified.paths.each_ref().map(|path| path.display());
    match error {
        Error::InconsistentKeys(_) => {
            format!(
                "tls.key: {key} is not the key of the certificate in {certificate}: use the key that it was issued for"
            )
        }
        Error::InvalidCertificate(_) => format!("tls.certificate: {certificate}: {error}"),
        _ => format!("tls.key: {key} cannot be used: {error}"),
    }
}
