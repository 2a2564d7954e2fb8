//! Connects to a server, with a growing pause after each failed attempt.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::{Code, Error, rounded};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::endpoint::{DialAddress, Scheme};
use super::{Config, Endpoint};
use crate::frames::Socket;
use crate::tls::{Outgoing, Spoken};

#[derive(Debug)]
pub(super) struct Dialer {
    peer: String,
    address: DialAddress,
    outgoing: Outgoing,
    timeout: Duration,
    initial: Duration,
    longest: Duration,
    rest: Mutex<Rest>,
}

/// The pause between attempts.
#[derive(Debug, Default)]
struct Rest {
    failures: u32,
    last: Option<(Instant, Refusal)>,
}

#[derive(Clone, Debug)]
struct Refusal {
    message: String,
    /// The server, or the network, said nothing. A timeout may be a pause, unlike a refusal.
    timed_out: bool,
}

impl Dialer {
    pub(super) fn new(endpoint: &Endpoint, config: &Config) -> Result<Self, Error> {
        let spoken = match endpoint.scheme {
            Scheme::Grpc | Scheme::UpstreamHttp2 => Spoken::Http2,
            Scheme::Http | Scheme::Frames | Scheme::Upstream => Spoken::Http1,
        };
        // `tls.mode` is for servers that know it. Others speak what their address says.
        let is_upstream = matches!(endpoint.scheme, Scheme::Upstream | Scheme::UpstreamHttp2);
        let outgoing = match &endpoint.address {
            DialAddress::Tcp(authority) if endpoint.secured || !is_upstream => {
                config.tls.outgoing(authority, endpoint.secured, spoken)?
            }
            _ => Outgoing::default(),
        };
        Ok(Self {
            peer: endpoint.address.to_string(),
            address: endpoint.address.clone(),
            outgoing,
            timeout: config.connect_timeout,
            initial: config.backoff_initial,
            longest: config.backoff_max,
            rest: Mutex::default(),
        })
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// The value of a `host` header: a placeholder for addresses without a host.
    pub(super) fn authority(&self) -> &str {
        match &self.address {
            DialAddress::Tcp(authority) => authority,
            DialAddress::Unix(_) => "localhost",
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.outgoing.is_secured() { "https" } else { "http" }
    }

    pub(super) async fn dial(&self) -> Result<Socket, Error> {
        if let Some(refusal) = self.resting() {
            return Err(self.explain(refusal));
        }
        let outcome = match tokio::time::timeout(self.timeout, self.connect()).await {
            Ok(outcome) => outcome.map_err(|error| Refusal {
                message: error.to_string(),
                timed_out: error.kind() == io::ErrorKind::TimedOut || is_own(&error),
            }),
            Err(_) => {
                Err(Refusal { message: format!("no connection in {:?}", self.timeout), timed_out: true })
            }
        };
        let mut rest = self.rest.lock();
        match outcome {
            Ok(socket) => {
                *rest = Rest::default();
                Ok(socket)
            }
            Err(refusal) => {
                rest.failures = rest.failures.saturating_add(1);
                rest.last = Some((Instant::now(), refusal.clone()));
                Err(self.explain(refusal))
            }
        }
    }

    async fn connect(&self) -> io::Result<Socket> {
        match &self.address {
            DialAddress::Tcp(authority) => self.outgoing.dial(authority).await,
            DialAddress::Unix(path) => Ok(UnixStream::connect(path).await?.into()),
        }
    }

    /// The reason not to connect now.
    fn resting(&self) -> Option<Refusal> {
        let rest = self.rest.lock();
        let (failed, Refusal { message, timed_out }) = rest.last.as_ref()?;
        let doublings = rest.failures.saturating_sub(1).min(16);
        let pause = self.initial.saturating_mul(1 << doublings).min(self.longest);
        let left = (*failed + pause).saturating_duration_since(Instant::now());
        let again = || format!("{message} (next attempt in {:?})", rounded(left));
        (!left.is_zero()).then(|| Refusal { message: again(), timed_out: *timed_out })
    }

    fn explain(&self, Refusal { message, timed_out }: Refusal) -> Error {
        let error = self.transport(message);
        if timed_out {
            return Error::Remote { code: Code::DeadlineExceeded, message: error.to_string() };
        }
        error
    }

    pub(super) fn transport(&self, message: impl Into<String>) -> Error {
        Error::Transport { peer: self.peer.clone(), message: message.into() }
    }
}

/// Whether this machine has no means to connect, which says nothing about the server: no files, ports or memory.
fn is_own(error: &io::Error) -> bool {
    // EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS and ENOMEM of Linux.
    matches!(error.raw_os_error(), Some(24 | 23 | 99 | 105 | 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_files_or_ports_is_no_refusal() {
        for (number, expected) in [(24, true), (23, true), (99, true), (111, false), (113, false)] {
            assert_eq!(is_own(&io::Error::from_raw_os_error(number)), expected, "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pause_grows_with_failed_attempts_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let endpoint = format!("unix:{}", path.display()).parse().unwrap();
        let dialer = Dialer::new(&endpoint, &Config::default()).unwrap();
        let mut pause = Duration::from_millis(10);
        for _ in 0..12 {
            let error = dialer.dial().await.unwrap_err();
            assert!(
                matches!(&error, Error::Transport { message, .. } if !message.contains("again")),
                "{error}"
            );
            tokio::time::advance(pause - Duration::from_millis(1)).await;
            let error = dialer.dial().await.unwrap_err();
            assert!(error.to_string().contains("next attempt in 1ms"), "{error}");
            tokio::time::advance(Duration::from_millis(1)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        dialer.dial().await.unwrap();
    }

    /// A listener whose queue is full answers no further connect, as a paused machine.
    #[tokio::test]
    async fn timeout_to_connect_is_no_refusal() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = format!("http://{address}").parse().unwrap();
        let config = Config { connect_timeout: Duration::from_millis(100), ..Config::default() };
        let dialer = Dialer::new(&endpoint, &config).unwrap();
        let mut held = Vec::new();
        let error = loop {
            match dialer.dial().await {
                Ok(socket) => held.push(socket),
                Err(error) => break error,
            }
            assert!(held.len() < 64, "the queue has no end");
        };
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        let error = dialer.dial().await.unwrap_err();
        assert!(error.to_string().contains("next attempt in"), "{error}");
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        drop(listener);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(matches!(dialer.dial().await, Err(Error::Transport { .. })));
    }
}
