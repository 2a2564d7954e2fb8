//! What went wrong, and what to do about it: rustls names the message of the protocol, which says little to who operates.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::verify::Stranger;

/// An error of a stream in our words, if it is one of TLS.
pub(super) fn explained(error: io::Error) -> io::Error {
    match of(&error).map(broken) {
        Some(ours) => ours,
        None => error,
    }
}

/// The error of TLS in an error of a stream.
pub(super) fn of(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// The end of a connection, in our words.
pub(super) fn broken(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, told(error))
}

/// Whether an error says that the other side speaks no TLS at all.
pub(super) fn speaks_plain(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
    match of(error) {
        Some(error) => matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType)),
        None => matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted),
    }
}

fn told(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not speak TLS".into(),
        Error::NoCertificatesPresented => {
            "it shows no certificate, and one is wanted here (tls.client_ca)".into()
        }
        Error::InvalidCertificate(reason) => format!("its certificate is refused: {}", refused(reason)),
        Error::AlertReceived(alert) => format!("it refuses: {}", alerted(*alert)),
        Error::PeerIncompatible(reason) => {
            format!("nothing that both can do is left ({reason:?}): TLS 1.2 and 1.3 are spoken here")
        }
        other => format!("TLS: {other}"),
    }
}

fn refused(reason: &CertificateError) -> String {
    use CertificateError as Reason;
    match reason {
        Reason::Expired => "its time is over; it needs another one".into(),
        Reason::ExpiredContext { time, not_after } => {
            let over = Duration::from_secs(time.as_secs().saturating_sub(not_after.as_secs()));
            format!("its time is over since {}; it needs another one", rough(over))
        }
        Reason::NotValidYet | Reason::NotValidYetContext { .. } => {
            "its time has not begun; compare the clocks of both machines".into()
        }
        Reason::UnknownIssuer => {
            "no authority that is known here signed it; add the one that did to tls.ca or tls.client_ca"
                .into()
        }
        Reason::BadSignature => "it is not signed by the authority that it names".into(),
        Reason::NotValidForNameContext { expected, presented } => format!(
            "it is of {}, not of {}; dial it by its name, or, if it is a worker's, name it in tls.worker_names",
            if presented.is_empty() { "no host".to_owned() } else { hosts(presented) },
            expected.to_str()
        ),
        Reason::NotValidForName => {
            "it is of another name; dial it by its name, or, if it is a worker's, name it in tls.worker_names"
                .into()
        }
        Reason::InvalidPurpose | Reason::InvalidPurposeContext { .. } => {
            "it was issued for another use; callers need client authentication, servers that of servers"
                .into()
        }
        Reason::Other(other) => match other.0.downcast_ref::<Stranger>() {
            Some(stranger) => stranger.to_string(),
            None => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// Names without what kind they are, which rustls writes around them.
fn hosts(presented: &[String]) -> String {
    let host = |name: &String| {
        let name = name.split_once('(').map_or(name.as_str(), |(_, name)| name.trim_end_matches(')'));
        name.trim_matches('"').to_owned()
    };
    presented.iter().map(host).collect::<Vec<_>>().join(", ")
}

/// What the other side says in a word of the protocol.
fn alerted(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            "it wants a certificate of ours; set tls.certificate and tls.key".into()
        }
        Alert::CertificateExpired => "the time of our certificate is over; issue another one".into(),
        Alert::UnknownCA => "it does not know the authority that signed our certificate; see its log".into(),
        Alert::AccessDenied
        | Alert::CertificateUnknown
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate => {
            format!("our certificate is none that it takes ({alert:?}): its log says why")
        }
        Alert::NoApplicationProtocol => "it speaks neither of our versions of HTTP".into(),
        other => format!("{other:?}"),
    }
}

/// A duration for people.
fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
