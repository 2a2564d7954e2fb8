//! Certificate verification: the peer must also have one of the configured names.
//!
//! One star matches within a part of a name: `spiffe://prod/*/frontend` does not match `spiffe://prod/a/b/frontend`,
//! nor does `*.workers.example` match `a.b.workers.example`. Two stars match across parts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

/// A certificate without any of the configured names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its names are {}, none of {field}: add one of them there", if names.is_empty() { "missing".to_owned() } else { names.join(", ") })]
pub(super) struct Stranger {
    field: &'static str,
    names: Vec<String>,
}

/// Verifies callers: signed by an authority, and with one of the names.
#[derive(Debug)]
pub(super) struct Callers {
    pub(super) signed: Arc<dyn ClientCertVerifier>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    pub(super) names: Vec<String>,
}

/// Verifies workers: signed by an authority, and with one of the names instead of their host.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    pub(super) names: Vec<String>,
}

fn admit(field: &'static str, wished: &[String], certificate: &CertificateDer<'_>) -> Result<(), Error> {
    let names = names_of(certificate);
    if any_fits(wished, &names) {
        return Ok(());
    }
    let stranger = Stranger { field, names };
    Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(stranger)))))
}

/// The signatures of handshakes, as the cryptography library verifies them.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signature, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for Callers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        admit("tls.names", &self.names, end_entity).map(|()| verified)
    }

    signatures!();
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        admit("tls.worker_names", &self.names, end_entity).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

/// Any certificate that the authority signed.
const EVERYONE: &str = "*";

/// The longest pattern, in bytes, and the number of patterns: each is tried on every name of a certificate.
const LONGEST: usize = 512;
const MOST: usize = 256;

/// Most names of a certificate; further ones are ignored.
const NAMES: usize = 128;

pub(super) fn check_names(field: &str, patterns: &[String]) -> Result<(), String> {
    if patterns.len() > MOST {
        return Err(format!("{field} has {} names, more than {MOST}: use stars", patterns.len()));
    }
    for pattern in patterns {
        if pattern.is_empty() {
            return Err(format!("{field} has an empty name: remove it"));
        }
        if pattern.len() > LONGEST || !pattern.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{field}: '{pattern}' is not a name: use up to {LONGEST} printable ASCII characters without spaces"
            ));
        }
    }
    Ok(())
}

fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let uris = certificate.valid_uri_names();
    uris.chain(certificate.valid_dns_names()).take(NAMES).map(str::to_owned).collect()
}

fn any_fits(patterns: &[String], names: &[String]) -> bool {
    patterns.iter().any(|pattern| pattern == EVERYONE || names.iter().any(|name| fits(pattern, name)))
}

/// Whether a pattern matches a name. Case matters in URIs only.
fn fits(pattern: &str, name: &str) -> bool {
    let uri = name.contains("://");
    let separator = if uri { b'/' } else { b'.' };
    let same = |a: u8, b: u8| if uri { a == b } else { a.eq_ignore_ascii_case(&b) };
    let (mut pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Prefix lengths of the name that the read part of the pattern matches.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    while let [first, rest @ ..] = pattern {
        let mut next = vec![false; name.len() + 1];
        if *first == b'*' {
            let across = rest.starts_with(b"*");
            pattern = if across { &rest[1..] } else { rest };
            for at in 0..=name.len() {
                let longer = at > 0 && next[at - 1] && (across || name[at - 1] != separator);
                next[at] = reached[at] || longer;
            }
        } else {
            pattern = rest;
            for at in 0..name.len() {
                next[at + 1] = reached[at] && same(*first, name[at]);
            }
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_within_a_part_of_a_name() {
        let cases = [
            ("spiffe://prod/frontend/*", "spiffe://prod/frontend/a", true),
            ("spiffe://prod/frontend/*", "spiffe://prod/frontend/a/b", false),
            ("spiffe://prod/frontend/**", "spiffe://prod/frontend/a/b", true),
            ("spiffe://prod/*/frontend", "spiffe://prod/x.y/frontend", true),
            ("spiffe://prod/*/frontend", "spiffe://prod/a/b/frontend", false),
            ("spiffe://prod/*", "spiffe://prod", false),
            ("spiffe://prod/a", "spiffe://prod/A", false),
            ("spiffe://*/a", "spiffe://prod/a", true),
            ("spiffe://prod/**", "spiffe://product/a", false),
            ("*.workers.example", "w1.workers.example", true),
            ("*.workers.example", "a.w1.workers.example", false),
            ("*.workers.example", "workers.example", false),
            ("w*.workers.example", "W12.Workers.Example", true),
            ("**.example", "a.b.example", true),
            ("workers.example", "workers.example", true),
            ("workers.example", "workers.example.org", false),
            ("a**b*c", "a.x.bzc", true),
            ("a", "", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn single_star_admits_all_and_no_pattern_admits_none() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(any_fits(&list(&["*"]), &[]));
        assert!(!any_fits(&[], &list(&["a"])));
        assert!(!any_fits(&list(&["**"]), &[]), "no name matches");
        assert!(any_fits(&list(&["x", "a"]), &list(&["b", "a"])));
    }
}
