//! Both sides of TLS over real sockets, with certificates made by the tests.

#[path = "../../../../../tests/support/authority.rs"]
// Shared with the tests of the binary, where it is public.
#[allow(unreachable_pub)]
pub(crate) mod authority;
mod modes;
mod refusals;
mod rotation;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Error, InferResponse, StableCode};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use self::authority::{Authority, Issued};
use super::*;
use crate::client;
use crate::frames::Socket;
use crate::scripted::{Scripted, echo};
use crate::server::{Addresses, Page, Server};
use crate::testing::{local, request};

/// An authority with its certificate in a file, and a folder for further files.
struct Scene {
    folder: TempDir,
    authority: Authority,
}

struct Running {
    addresses: Addresses,
    tls: Tls,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Scene {
    fn new() -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        Self { folder, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, mode: Mode, issued: &Issued, name: &str) -> Config {
        let [certificate, key] = issued.write(self.folder.path(), name);
        let ca = Some(self.path("ca.pem"));
        Config { mode, certificate: Some(certificate), key: Some(key), ca, ..Config::default() }
    }

    fn local(&self, mode: Mode) -> Config {
        self.config(mode, &self.authority.issue(&["127.0.0.1", "localhost"]), mode.name())
    }

    fn caller(&self, mode: Mode) -> Tls {
        let issued = self.authority.issue(&["spiffe://test/caller"]);
        Tls::open(&self.config(mode, &issued, "caller")).unwrap()
    }
}

async fn serve(config: &Config) -> Running {
    let tls = Tls::open(config).unwrap();
    let service = Arc::new(Scripted(|request, _| async { Ok(echo(request)) }));
    let server = Server::bind(local(), service).await.unwrap();
    let server = server.with_tls(tls.clone()).with_page(Page::metrics(|| "here\n".into()));
    let (addresses, stop) = (server.addresses(), CancellationToken::new());
    tokio::spawn(server.run(stop.clone()));
    Running { addresses, tls, stop }
}

fn urls(addresses: Addresses, secured: bool) -> [String; 3] {
    let Addresses { http, grpc, .. } = addresses;
    match secured {
        true => [format!("https://{http}"), format!("grpcs://{grpc}"), format!("frames+tls://{http}")],
        false => [format!("http://{http}"), format!("grpc://{grpc}"), format!("frames://{http}")],
    }
}

fn dial(url: &str, tls: &Tls) -> Result<Arc<dyn Client>, Error> {
    let config = client::Config {
        tls: tls.clone(),
        connect_timeout: Duration::from_secs(20),
        ..client::Config::default()
    };
    client::connect(&url.parse()?, &config)
}

async fn ask(url: &str, tls: &Tls, bytes: usize) -> Result<InferResponse, Error> {
    dial(url, tls)?.infer(request("", bytes), CallContext::default()).await
}

/// Sends a request over every transport, and expects an answer or an error with these words.
async fn all(addresses: Addresses, secured: bool, tls: &Tls, expected: Result<(), &str>) {
    for url in urls(addresses, secured) {
        match (ask(&url, tls, 3 << 20).await, expected) {
            (Ok(answer), Ok(())) => assert_eq!(answer.outputs, request("", 3 << 20).inputs, "{url}"),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{url}: {error}"),
            (outcome, expected) => panic!("{url}: {expected:?} was expected: {:?}", outcome.map(|_| ())),
        }
    }
}

pub(crate) async fn pair() -> (Socket, Socket) {
    let scene = Scene::new();
    let tls = Tls::open(&scene.local(Mode::Require)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let outgoing = tls.outgoing(&authority, true, Spoken::Http1).unwrap();
    let far = async {
        let (stream, _) = listener.accept().await.unwrap();
        tls.welcome().greet(stream.into()).await
    };
    let (near, far) = tokio::join!(outgoing.dial(&authority), far);
    (near.unwrap(), far.unwrap())
}
