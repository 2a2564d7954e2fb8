//! Tests keys on the real binary: access to every route, changes of the key file, and secrets in logs and pages.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use parm_transport::keys::{Access, Role, Route, Surface};
use serde_json::Value;
use tempfile::TempDir;
use tonic::Code;

use crate::support::grpc::{Grpc, Raw};
use crate::support::process::{PATIENCE, refused, root, succeeds, told};
use crate::support::routes;
use crate::support::{Parm, affine, http};

const INFER: &str = "/v2/models/affine/infer";

/// A key file with its keys.
struct Ring {
    folder: TempDir,
    keys: Vec<(Role, String)>,
}

impl Ring {
    /// One key for each role.
    fn new() -> Self {
        let mut ring = Self { folder: TempDir::new().unwrap(), keys: Vec::new() };
        for role in Role::ALL {
            let key = ring.add(role.name(), &["--role", role.name()]);
            ring.keys.push((role, key));
        }
        ring
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keys.toml")
    }

    /// Makes a key and puts it into the file.
    fn add(&self, name: &str, flags: &[&str]) -> String {
        let path = self.path();
        let fixed = ["keys", "new", name, "--output", "json", "--file", path.to_str().unwrap()];
        let told: Value = serde_json::from_str(&succeeds(&[&fixed, flags].concat())).unwrap();
        told["key"].as_str().unwrap().to_owned()
    }

    fn of(&self, role: Role) -> &str {
        &self.keys.iter().find(|(own, _)| *own == role).unwrap().1
    }

    fn setting(&self) -> String {
        format!("server.keys_file={}", self.path().display())
    }

    fn worker(&self, arguments: &[&str]) -> Parm {
        Parm::worker(&[&["--set", &self.setting()], arguments].concat())
    }
}

fn ask(parm: &Parm, path: &str, key: Option<&str>) -> http::Answer {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = bearer.iter().map(|value| ("authorization", value.as_str())).collect();
    let body = affine::json(&affine::rows(1, 3));
    http::request(parm.http, "POST", path, &headers, body.to_string().as_bytes())
}

/// The status of an answer. The rest is not read, because it may be endless.
fn status(address: SocketAddr, method: &str, path: &str, key: Option<&str>) -> u16 {
    let bearer = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{bearer}content-length: 0\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    String::from_utf8_lossy(&line)[9..].parse().unwrap()
}

/// Calls a gRPC method with an empty message, and returns the HTTP status of the same meaning.
async fn grpc_status(address: SocketAddr, path: &str, key: Option<&str>) -> u16 {
    let mut request = tonic::Request::new(Vec::new());
    if let Some(key) = key {
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    let mut client = Grpc::connect(address).await.0;
    match client.server_streaming(request, path.parse().unwrap(), Raw).await.map_err(|status| status.code()) {
        Err(Code::Unauthenticated) => 401,
        Err(Code::PermissionDenied) => 403,
        _ => 200,
    }
}

fn filled(path: &str) -> String {
    [
        ("{model}", "affine"),
        ("{version}", "1"),
        ("{number}", "1"),
        ("{order}", "undrain"),
        ("{id}", "0000000000000000"),
        ("{name}", "main.js"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
}

/// Requests a route and returns the status.
async fn try_route(parm: &Parm, route: &Route, key: Option<&str>) -> u16 {
    let address = match route.surface {
        Surface::Rest => parm.http,
        Surface::Metrics => parm.metrics,
        Surface::Admin => parm.admin.expect("the admin address"),
        Surface::Grpc => return grpc_status(parm.grpc, route.path, key).await,
    };
    status(address, route.method.as_str(), &filled(route.path), key)
}

async fn assert_access_of_routes(parm: &Parm, ring: &Ring, routes: impl Iterator<Item = &Route>) {
    for route in routes {
        let callers = [None, Some(Role::Infer), Some(Role::Read), Some(Role::Control)];
        for caller in callers {
            let key = caller.map(|role| ring.of(role));
            let status = try_route(parm, route, key).await;
            let what = format!("{} {} by {caller:?}", route.method, route.path);
            match caller {
                _ if route.access == Access::Everyone => assert_eq!(status, 200, "{what}"),
                None => assert_eq!(status, 401, "{what}"),
                Some(role) if role.opens(route.access) => {
                    assert!(![401, 403].contains(&status), "{what}: {status}")
                }
                Some(_) => assert_eq!(status, 403, "{what}"),
            }
            let wrong = try_route(parm, route, Some("parm_guess")).await;
            assert_eq!(wrong == 401, route.access != Access::Everyone, "{what}, with a guess: {wrong}");
        }
    }
    for address in [Some(parm.http), Some(parm.grpc), Some(parm.metrics), parm.admin].into_iter().flatten() {
        assert_eq!(
            status(address, "GET", "/nowhere", None),
            401,
            "the status does not reveal paths to clients without a key"
        );
        assert_eq!(status(address, "GET", "/nowhere", Some(ring.of(Role::Infer))), 404);
    }
    assert_eq!(grpc_status(parm.grpc, "/no.Service/Method", None).await, 401);
}

#[tokio::test]
async fn frontend_routes_require_the_access_in_the_table() {
    let ring = Ring::new();
    let parm = Parm::serve(&["--instances", "1", "--admin", "127.0.0.1:0", "--set", &ring.setting()]);
    assert_access_of_routes(&parm, &ring, routes::of_a_frontend()).await;
}

#[tokio::test]
async fn worker_routes_require_the_access_in_the_table() {
    let ring = Ring::new();
    assert_access_of_routes(
        &ring.worker(&["--faults", "--emulate-chat", "tiny"]),
        &ring,
        routes::of_a_worker(),
    )
    .await;
}

#[test]
fn key_works_only_while_it_is_in_the_file() {
    let ring = Ring::new();
    let parm = ring.worker(&[]);
    assert_eq!(ask(&parm, INFER, Some(ring.of(Role::Infer))).status, 200);
    let late = ring.add("late", &["--role", "infer"]);
    parm.until("the new key works", |parm| ask(parm, INFER, Some(&late)).status == 200);

    let whole = fs::read_to_string(ring.path()).unwrap();
    fs::write(ring.path(), "[[key]]\nname = \"half").unwrap();
    parm.until("the error is logged", |parm| parm.log().contains("cannot use the key file"));
    assert_eq!(ask(&parm, INFER, Some(&late)).status, 200, "earlier keys stay valid");

    let (before, _) = whole.rsplit_once("[[key]]").unwrap();
    fs::write(ring.path(), before).unwrap();
    parm.until("the key is removed", |parm| ask(parm, INFER, Some(&late)).status == 401);
    assert_eq!(ask(&parm, INFER, Some(ring.of(Role::Infer))).status, 200);
    let words = ask(&parm, INFER, Some(&late)).json()["error"].as_str().unwrap().to_owned();
    assert!(words.contains("unknown or revoked"), "{words}");
}

#[test]
fn rejections_contain_advice() {
    let ring = Ring::new();
    let slow = ring.add("slow", &["--rate", "0.2"]);
    let parm = ring.worker(&[]);
    let none = ask(&parm, INFER, None);
    assert_eq!(none.header("www-authenticate").as_deref(), Some("Bearer"));
    assert!(none.body_text().contains("authorization: Bearer KEY"), "{}", none.body_text());
    let unload = "/v2/repository/models/affine/unload";
    let small = ask(&parm, unload, Some(ring.of(Role::Infer)));
    assert_eq!(small.status, 403);
    let words = small.body_text();
    assert!(words.contains("key 'infer' has the role infer, this requires control"), "{words}");
    assert_eq!(ask(&parm, INFER, Some(&slow)).status, 200);
    let over = ask(&parm, INFER, Some(&slow));
    assert_eq!(over.status, 429, "{}", over.body_text());
    let wait: u32 = over.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&wait), "{wait}");
    assert_eq!(ask(&parm, INFER, Some(ring.of(Role::Infer))).status, 200, "others are not slowed");
    assert_eq!(ask(&parm, unload, Some(ring.of(Role::Control))).status, 200);
    assert!(parm.log().contains("by=control") || parm.log().contains("by=\"control\""), "{}", parm.log());
}

#[test]
fn frontend_sends_its_key_over_every_transport() {
    let ring = Ring::new();
    let worker = ring.worker(&[]);
    let address = |scheme: &str, at: SocketAddr| format!("{scheme}://{at}");
    for url in [address("http", worker.http), address("frames", worker.http), address("grpc", worker.grpc)] {
        let token = format!("frontend.client.token={}", ring.of(Role::Infer));
        let parm = Parm::start(&["serve", "--worker", &url, "--set", &token]);
        parm.until_model_ready();
        assert_eq!(ask(&parm, INFER, None).status, 200, "{url}");
        let stranger = Parm::listening(&["serve", "--worker", &url]);
        stranger.until("the worker's refusal is in the log", |parm| parm.log().contains("a key is required"));
        assert_ne!(ask(&stranger, INFER, None).status, 200, "{url}");
    }
}

#[tokio::test]
async fn logs_and_pages_contain_no_key() {
    let ring = Ring::new();
    let (client, admin, own) = ("parm_of-a-client", "parm_of-the-admin", ring.of(Role::Control).to_owned());
    let worker = ring.worker(&["--set", "log.level=trace"]);
    let worker_url = format!("grpc://{}", worker.grpc);
    let settings = [
        ring.setting(),
        "log.level=trace".to_owned(),
        format!("frontend.client.token={own}"),
        format!("frontend.admin.token={admin}"),
    ];
    let mut arguments = vec!["serve", "--worker", &worker_url, "--admin", "127.0.0.1:0"];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    let parm = Parm::start(&arguments);
    let bearer = |key: &str| format!("Bearer {key}");
    let pages: Vec<String> = [&own, client, admin]
        .into_iter()
        .flat_map(|key| {
            let value = bearer(key);
            let headers = [("authorization", value.as_str())];
            let admin = parm.admin.unwrap();
            [
                (parm.http, "/v2/models/affine"),
                (parm.metrics, "/metrics"),
                (admin, "/admin/v1/settings"),
                (admin, "/admin/v1/instances"),
            ]
            .map(|(address, path)| http::request(address, "GET", path, &headers, b"").body_text())
        })
        .collect();
    parm.until("the worker has joined", |parm| ask(parm, INFER, Some(&own)).status == 200);
    assert_eq!(ask(&parm, INFER, Some(&own)).status, 200);
    for (key, status) in [(own.as_str(), 200), (client, 401)] {
        assert_eq!(
            grpc_status(parm.grpc, "/inference.GRPCInferenceService/ServerMetadata", Some(key)).await,
            status
        );
    }
    let dumped = succeeds(&[&arguments[..], &["--dump-config"]].concat());
    let file = fs::read_to_string(ring.path()).unwrap();
    let digests =
        file.lines().filter_map(|line| line.strip_prefix("sha256 = ")).map(|line| line.trim_matches('"'));
    let secrets = ring.keys.iter().map(|(_, key)| key.as_str()).chain([client, admin]).chain(digests);
    let told = [vec![parm.log(), worker.log(), dumped], pages].concat();
    for secret in secrets {
        for text in &told {
            let found = text
                .find(secret)
                .map(|at| &text[text[..at].rfind('\n').unwrap_or(0)..(at + 80).min(text.len())]);
            assert_eq!(found, None);
        }
    }
    assert!(told[0].contains("keys"), "the log is empty");
}

#[test]
fn keys_are_created_listed_and_checked() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("keys.toml");
    let file = path.to_str().unwrap();
    let (code, made) = told(&["keys", "new", "a"]);
    assert_eq!(code, Some(0));
    assert!(
        made.contains("[[key]]\nname = \"a\"\nsha256 = \"") && made.contains("role = \"infer\""),
        "{made}"
    );
    let key = made.lines().find(|line| line.starts_with("parm_")).unwrap();
    assert_eq!(key.len(), "parm_".len() + 64);
    assert!(!path.exists());
    let limits = ["--role", "control", "--rate", "2.5", "--concurrency", "4", "--file", file];
    assert_eq!(told(&[&["keys", "new", "ops"][..], &limits].concat()).0, Some(0));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    refused(&["keys", "new", "ops", "--file", file], Some(64), "two keys are called 'ops'");
    refused(&["keys", "new", "a b"], Some(64), "");
    let (_, listed) = told(&["keys", "list", file]);
    assert!(
        listed.contains("ops")
            && listed.contains("control")
            && listed.contains("2.5 requests a second, 4 at a time"),
        "{listed}"
    );
    let config = folder.path().join("parm.toml");
    let models = root().join("tests/models");
    let written = format!(
        "[server]\nhttp = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\nkeys_file = \"{file}\"\n\
         [backend]\nmodels = \"{}\"\n",
        models.display()
    );
    fs::write(&config, written).unwrap();
    let (_, checked) = told(&["doctor", config.to_str().unwrap()]);
    assert!(checked.contains("ok   keys: 1 in") && checked.contains("1 control"), "{checked}");
    fs::write(&path, "").unwrap();
    let (code, checked) = told(&["doctor", config.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(checked.contains("FAIL keys:") && checked.contains("has no keys"), "{checked}");
}

#[test]
fn check_tries_the_keys_of_a_configuration() {
    let ring = Ring::new();
    let worker = ring.worker(&[]);
    let config = ring.folder.path().join("parm.toml");
    let check = |key: &str| {
        let own = "[server]\nhttp = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n";
        let worker = worker.http;
        let written = format!("{own}[frontend]\nworkers = [\"http://{worker}\"]\nclient = {{ {key} }}\n");
        fs::write(&config, written).unwrap();
        told(&["doctor", config.to_str().unwrap()]).1
    };
    let token = |key: &str| format!("token = \"{key}\"");
    for (key, line) in [
        (token(ring.of(Role::Control)), "ok   worker"),
        (token(ring.of(Role::Infer)), "ok   worker"),
        (token(ring.of(Role::Read)), "key 'read' has the role read, this requires infer"),
        (token("guess"), "the key is unknown or revoked"),
        (String::new(), "set frontend.client.token to one of"),
    ] {
        let told = check(&key);
        assert!(told.contains(line), "{line} is missing in\n{told}");
    }
}
