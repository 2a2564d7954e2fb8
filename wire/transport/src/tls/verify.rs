//! Certificate verification: the peer must also have one of the configured names.

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

use super::names;

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
    signed: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

/// Verifies workers: signed by an authority, and with one of the names instead of their host.
#[derive(Debug)]
pub(super) struct Named {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    names: Vec<String>,
}

impl Callers {
    pub(super) fn new(signed: Arc<dyn ClientCertVerifier>, names: Vec<String>) -> Self {
        Self { signed, names }
    }
}

impl Named {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
        names: Vec<String>,
    ) -> Self {
        Self { roots, algorithms, names }
    }
}

fn admit(field: &'static str, wished: &[String], certificate: &CertificateDer<'_>) -> Result<(), Error> {
    let names = names::of(certificate);
    if names::admit(wished, &names) {
        return Ok(());
    }
    let stranger = Stranger { field, names };
    Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(stranger)))))
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
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
}
