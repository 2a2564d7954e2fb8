//! Advice for TLS errors: what to do about them, appended to rustls' own text.
//!
//! rustls names the alert or the failed check, which is the text that people search for. It cannot name the setting that
//! repairs it, so this module appends that.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Adds advice to an error of a stream, if it is a TLS error.
pub(crate) fn advised(error: io::Error) -> io::Error {
    match of(&error).map(broken) {
        Some(advised) => advised,
        None => error,
    }
}

/// The TLS error inside an error of a stream.
fn of(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// The end of a connection: rustls' text and the advice.
pub(super) fn broken(error: &Error) -> io::Error {
    let text = match (error, advice(error)) {
        (_, Some(advice)) => format!("{error}: {advice}"),
        // rustls shows errors of custom verifiers in debug form.
        (Error::InvalidCertificate(CertificateError::Other(other)), None) => {
            format!("invalid peer certificate: {other}", other = other.0)
        }
        _ => error.to_string(),
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whether the peer ended the connection without a reason, as servers do that do not speak TLS at all.
pub(super) fn closed_early(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
    of(error).is_none() && matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted)
}

fn advice(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not speak TLS: check its port and its tls.mode"
        }
        Error::NoCertificatesPresented => "tls.client_ca requires one: set tls.certificate and tls.key there",
        Error::InvalidCertificate(reason) => return certificate(reason),
        Error::AlertReceived(alert) => return alerted(*alert),
        Error::PeerIncompatible(_) => "TLS 1.2 and 1.3 are supported here: update the peer",
        _ => return None,
    })
}

/// Advice for a certificate of the peer that this process rejects.
fn certificate(reason: &CertificateError) -> Option<&'static str> {
    use CertificateError as Reason;
    Some(match reason {
        Reason::Expired | Reason::ExpiredContext { .. } => "issue a new certificate for the peer",
        Reason::NotValidYet | Reason::NotValidYetContext { .. } => "compare the clocks of both machines",
        Reason::UnknownIssuer => "add the authority that signed it to tls.ca or tls.client_ca",
        Reason::BadSignature => {
            "compare the authority in tls.ca or tls.client_ca with the one that signed it"
        }
        Reason::NotValidForName | Reason::NotValidForNameContext { .. } => {
            "dial the peer by that name, or, for a worker, add the name to tls.worker_names"
        }
        Reason::InvalidPurpose | Reason::InvalidPurposeContext { .. } => {
            "callers need the usage client authentication, servers the usage server authentication"
        }
        _ => return None,
    })
}

/// Advice for an alert with which the peer ended the handshake.
fn alerted(alert: AlertDescription) -> Option<&'static str> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::CertificateRequired => "the peer requires a certificate: set tls.certificate and tls.key",
        Alert::CertificateExpired => "issue a new certificate for tls.certificate",
        Alert::UnknownCA => "the peer does not trust the authority of tls.certificate: see the peer's log",
        Alert::AccessDenied
        | Alert::CertificateUnknown
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate => "the peer rejected tls.certificate: see the peer's log",
        Alert::NoApplicationProtocol => "the peer speaks neither HTTP/1.1 nor HTTP/2 on that port",
        _ => return None,
    })
}
