//! Tests TLS of the real binary: every address, mutual TLS in a fleet, changed files under load, and client commands.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parm_protocol::client::Client;
use parm_transport::client::{self, Endpoint};
use parm_transport::tls::{Config, Spoken, Tls};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::authority::Authority;
use crate::support::load::Load;
use crate::support::process::{refused, told};
use crate::support::{Parm, http};

const LOAD: Load = Load { requests: 150, pace: Duration::from_millis(5), deadline: Duration::from_secs(30) };

/// A certificate authority, and a certificate for each kind of machine.
struct Machines {
    folder: TempDir,
    authority: Authority,
}

impl Machines {
    fn new() -> Self {
        let machines = Self { folder: TempDir::new().unwrap(), authority: Authority::new() };
        std::fs::write(machines.folder.path().join("ca.pem"), machines.authority.pem()).unwrap();
        ["frontend", "worker", "people"].into_iter().for_each(|kind| machines.issue(kind));
        machines
    }

    /// Issues a new certificate to a kind of machine.
    fn issue(&self, kind: &str) {
        let id = format!("spiffe://test/{kind}/one");
        self.authority.issue(&["127.0.0.1", "localhost", &id]).write(self.folder.path(), kind);
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Settings of a kind of machine that accepts the certificates of these callers.
    fn settings(&self, kind: &str, mode: &str, callers: &[&str]) -> Vec<String> {
        let mut settings = vec![
            format!("tls.mode={mode}"),
            format!("tls.certificate={}", self.path(&format!("{kind}.pem"))),
            format!("tls.key={}", self.path(&format!("{kind}.key"))),
            format!("tls.ca={}", self.path("ca.pem")),
        ];
        if !callers.is_empty() {
            settings.push(format!("tls.client_ca={}", self.path("ca.pem")));
            settings.push(format!("tls.names={callers:?}"));
        }
        settings
    }

    fn start(&self, arguments: &[&str], settings: &[String]) -> Parm {
        let mut all = arguments.to_vec();
        settings.iter().for_each(|setting| all.extend(["--set", setting]));
        Parm::listening(&all)
    }

    /// TLS with the certificate of people.
    fn people(&self) -> Tls {
        let path = |name: &str| Some(self.path(name).into());
        let (certificate, key) = (path("people.pem"), path("people.key"));
        Tls::open(&Config { ca: path("ca.pem"), certificate, key, ..Config::default() }).unwrap()
    }
}

/// The answer to a request over TLS, head and body.
async fn get(tls: &Tls, address: SocketAddr, path: &str) -> String {
    let address = address.to_string();
    let outgoing = tls.outgoing(&address, true, Spoken::Http1).unwrap();
    let mut socket = outgoing.dial(&address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn until(what: &str, parm: &Parm, mut holds: impl AsyncFnMut() -> bool) {
    let until = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(crate::support::process::PATIENCE, until).await;
    assert!(waited.is_ok(), "timed out waiting until {what}:\n{}", parm.log());
}

async fn until_ready(tls: &Tls, parm: &Parm) {
    let ready = async || get(tls, parm.http, "/v2/models/affine/ready").await.starts_with("HTTP/1.1 200");
    until("the model is ready", parm, ready).await;
}

fn connect(url: &str, tls: &Tls) -> Arc<dyn Client> {
    let endpoint: Endpoint = url.parse().unwrap();
    let (tls, connect_timeout) = (tls.clone(), Duration::from_secs(30));
    client::connect(&endpoint, &client::Config { tls, connect_timeout, ..client::Config::default() }).unwrap()
}

/// The readiness file lists the addresses. `tests/listeners.rs` limits the files that listen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_address_accepts_only_tls() {
    let machines = Machines::new();
    let people = machines.people();
    let unix = machines.path("socket");
    let serve =
        ["serve", "--models", "tests/models", "--instances", "1", "--admin", "127.0.0.1:0", "--unix", &unix];
    let worker = ["worker", "--models", "tests/models", "--faults"];
    for arguments in [&serve[..], &worker] {
        let parm =
            machines.start(arguments, &machines.settings("frontend", "require", &["spiffe://test/people/*"]));
        until_ready(&people, &parm).await;
        let admin = parm.admin.map(|address| (address, "/admin/v1/instances"));
        let own = [(parm.http, "/v2"), (parm.grpc, "/v2"), (parm.metrics, "/metrics")];
        assert_eq!(admin.is_some(), arguments[0] == "serve");
        for (address, path) in own.into_iter().chain(admin) {
            let plain = http::get(address, path);
            assert_eq!(plain.status, 400, "{path}: {}", plain.head);
            assert!(plain.body_text().contains("use https://"), "{}", plain.body_text());
            let secured = get(&people, address, path).await;
            assert!(secured.starts_with("HTTP/1.1 200"), "{path}: {secured}");
        }
        let page = get(&people, parm.metrics, "/metrics").await;
        assert!(page.contains("\nparm_tls_certificate_expires_seconds 64"), "{page}");
        for url in [
            format!("https://{}", parm.http),
            format!("grpcs://{}", parm.grpc),
            format!("frames+tls://{}", parm.http),
        ] {
            let client = connect(&url, &people);
            LOAD.each(|_| client.clone()).await.assert_all_right(LOAD);
        }
        if arguments[0] == "serve" {
            let local = connect(&format!("unix:{unix}"), &Tls::default());
            LOAD.each(|_| local.clone()).await.assert_all_right(LOAD);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_serves_while_its_certificates_change() {
    let machines = Machines::new();
    let people = machines.people();
    let short = "server.max_connection_age_ms=700".to_owned();
    let of_workers =
        [machines.settings("worker", "require", &["spiffe://test/frontend/*"]), vec![short]].concat();
    let worker = ["worker", "--models", "tests/models", "--instances", "1"];
    let workers: Vec<Parm> = (0..3).map(|_| machines.start(&worker, &of_workers)).collect();
    let urls = [
        format!("https://{}", workers[0].http),
        format!("grpcs://{}", workers[1].grpc),
        // Mode `require` applies TLS to `frames://` as well.
        format!("frames://{}", workers[2].http),
    ];
    let mut serve = vec!["serve", "--policy", "none"];
    urls.iter().for_each(|url| serve.extend(["--worker", url]));
    let of_frontend = machines.settings("frontend", "require", &["spiffe://test/people/*"]);
    let frontend = machines.start(&serve, &of_frontend);
    let joined = async || {
        get(&people, frontend.metrics, "/metrics").await.contains("parm_instances{state=\"ready\"} 3")
    };
    until("all workers joined", &frontend, joined).await;

    let done = AtomicBool::new(false);
    let urls = [
        format!("https://{}", frontend.http),
        format!("grpcs://{}", frontend.grpc),
        format!("frames+tls://{}", frontend.http),
    ];
    let loaded = async {
        while !done.load(Ordering::SeqCst) {
            // New connections in each round.
            let through = urls.each_ref().map(|url| connect(url, &people));
            LOAD.each(|index| through[index % 3].clone()).await.assert_all_right(LOAD);
        }
    };
    let changed = async {
        for number in 1..=2 {
            ["frontend", "worker"].into_iter().for_each(|kind| machines.issue(kind));
            let reloaded = async || {
                get(&people, frontend.metrics, "/metrics")
                    .await
                    .contains(&format!("parm_tls_reloads_total {number}\n"))
            };
            until("the frontend has read its files", &frontend, reloaded).await;
        }
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(loaded, changed);
    for worker in &workers {
        let read = |worker: &Parm| worker.log().contains("new connections use the changed files");
        worker.until("the worker has read its files", read);
        assert!(!worker.log().contains("cannot use the files"), "{}", worker.log());
    }
    // The certificate of people is not one of a frontend, so the worker rejects it.
    let outgoing = connect(&format!("https://{}", workers[0].http), &people);
    // A client that sends before it reads the rejection may only see a closed connection.
    let refused = async || {
        outgoing.is_ready().await.unwrap_err().to_string().contains("the peer rejected tls.certificate")
    };
    until("the client reports the reason", &workers[0], refused).await;
    workers[0].until("the log names the rejected certificate", |worker| {
        worker.log().contains("spiffe://test/people/one")
    });
}

#[test]
fn commands_connect_to_a_frontend_with_tls() {
    let machines = Machines::new();
    let arguments = ["serve", "--models", "tests/models", "--instances", "1", "--admin", "127.0.0.1:0"];
    let parm =
        machines.start(&arguments, &machines.settings("frontend", "require", &["spiffe://test/people/*"]));
    parm.until("the frontend serves", |parm| parm.log().contains("serving"));
    let admin = format!("https://{}", parm.admin.unwrap());
    let (ca, cert, key) = (machines.path("ca.pem"), machines.path("people.pem"), machines.path("people.key"));
    let shown = ["--ca", &ca, "--cert", &cert, "--key-file", &key];
    let run = |arguments: &[&str]| told(&[arguments, &shown].concat());
    let (code, told) = run(&["ctl", "--url", &admin, "instances"]);
    assert!(code == Some(0) && told.contains("ready"), "{told}");
    let (code, told) = run(&["top", "--url", &admin, "--once"]);
    assert_eq!(code, Some(0), "{told}");
    let (_, told) = run(&["doctor", &admin]);
    assert!(told.contains("ok   admin API: parm"), "{told}");
    let url = format!("grpcs://{}", parm.grpc);
    let load =
        ["load", &url, "--model", "affine", "--rate", "50", "--seconds", "1", "--warm-up", "0", "--quiet"];
    let (_, told) = run(&load);
    // A busy machine can make the run invalid, so the status is not checked.
    assert!(told.contains(" sent of ") && !told.contains("requests failed"), "{told}");
    let recording = machines.path("recording.jsonl");
    let (code, told) = run(&["record", "--frontend", &admin, "--seconds", "1", "--file", &recording]);
    // No query ran meanwhile, so the command reports an empty recording.
    assert!(code == Some(1) && told.contains("no query of any model"), "{told}");
    // Without --ca no certificate is trusted.
    refused(&["ctl", "--url", &admin, "instances"], Some(64), "--ca");
    // Without a certificate the error names the flags that give one, not the settings of a server.
    let bare = ["ctl", "--url", &admin, "instances", "--ca", &ca];
    let told = refused(&bare, Some(1), "with --cert and --key-file");
    assert!(!told.contains("tls.") && !told.contains("check --ca"), "{told}");
}
