//! A listener for servers that want connections which are ready to be served: handshakes go on beside one another, so that no
//! caller waits for another's.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{Spoken, Tls, Welcome};
use crate::frames::Socket;

/// Callers who are being agreed with at a time; more wait in the kernel's queue.
pub(super) const MOST: usize = 64;

/// How long to wait when the process is out of file descriptors.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// A listener behind TLS.
#[derive(Debug)]
pub struct Doorway {
    listener: TcpListener,
    welcome: Welcome,
    arriving: JoinSet<io::Result<(Socket, SocketAddr)>>,
}

impl Doorway {
    /// Welcomes whoever calls this listener, on which this is spoken.
    pub fn new(listener: TcpListener, tls: &Tls, spoken: Spoken) -> Self {
        Self { listener, welcome: tls.welcome(spoken), arriving: JoinSet::new() }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection that can be served.
    pub async fn accept(&mut self) -> (Socket, SocketAddr) {
        loop {
            tokio::select! {
                Some(ready) = self.arriving.join_next() => {
                    if let Ok(Ok(ready)) = ready {
                        return ready;
                    }
                }
                accepted = self.listener.accept(), if self.arriving.len() < MOST => match accepted {
                    Ok((stream, from)) if self.welcome.is_plain() => return (stream.into(), from),
                    Ok((stream, from)) => {
                        let welcome = self.welcome.clone();
                        self.arriving.spawn(async move { Ok((welcome.greet(stream.into()).await?, from)) });
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection: raise the limit of open files");
                        tokio::time::sleep(EXHAUSTED).await;
                    }
                },
            }
        }
    }
}
