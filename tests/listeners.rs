//! Tests every listener against clients that are silent, slow or numerous.
//!
//! [`LISTENERS`] lists them. A listener that is missing there fails the test that compares the table with the ports of the
//! running process.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::Parm;
use crate::support::process::PATIENCE;

/// A listener of `parm serve` or `parm worker`.
struct Listener {
    name: &'static str,
    /// Its address; `None` if the process does not have this listener.
    address: fn(&Scene) -> Option<Address>,
    /// A request that it answers with 200.
    path: &'static str,
}

const LISTENERS: &[Listener] = &[
    Listener { name: "http", address: |scene| Some(Address::Tcp(scene.parm.http)), path: "/v2/health/live" },
    Listener { name: "grpc", address: |scene| Some(Address::Tcp(scene.parm.grpc)), path: "/v2/health/live" },
    Listener {
        name: "unix",
        address: |scene| Some(Address::Unix(scene.folder.path().join("socket"))),
        path: "/v2/health/live",
    },
    Listener { name: "metrics", address: |scene| Some(Address::Tcp(scene.parm.metrics)), path: "/metrics" },
    Listener { name: "admin", address: |scene| scene.parm.admin.map(Address::Tcp), path: "/" },
];

/// Connections that an operator address serves at a time.
const OPERATORS: usize = 64;
/// Descriptors of a process that are not connections.
const SPARE: usize = 40;

#[derive(Clone)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

trait Connection: Read + Write + Send {}
impl<T: Read + Write + Send> Connection for T {}

impl Address {
    fn connect(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// Asserts that an honest request is answered.
    fn assert_answers(&self, path: &str, what: &str) {
        let mut stream = self.connect().unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap_or_else(|error| panic!("{what}: no answer: {error}"));
        assert_eq!(&status, b"HTTP/1.1 200", "{what}");
    }
}

/// A process with all its listeners, and a folder for its socket.
struct Scene {
    what: &'static str,
    parm: Parm,
    folder: TempDir,
}

impl Scene {
    fn new(what: &'static str, arguments: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let socket = format!("server.unix={}", folder.path().join("socket").display());
        let common = [&["--set", &socket][..], arguments].concat();
        let parm = match what {
            "serve" => Parm::serve(&[&["--instances", "1", "--admin", "127.0.0.1:0"][..], &common].concat()),
            _ => Parm::worker(&common),
        };
        Self { what, parm, folder }
    }

    fn both(arguments: &[&str]) -> [Scene; 2] {
        ["serve", "worker"].map(|what| Scene::new(what, arguments))
    }

    fn listeners(&self) -> impl Iterator<Item = (String, Address, &'static str)> {
        LISTENERS.iter().filter_map(|listener| {
            let address = (listener.address)(self)?;
            Some((format!("{} of parm {}", listener.name, self.what), address, listener.path))
        })
    }

    fn assert_all_answer(&self, after: &str) {
        for (name, address, path) in self.listeners() {
            address.assert_answers(path, &format!("{name}, after {after}"));
        }
    }
}

/// Runs a client against all listeners of these processes at once, then asserts that each listener answers.
fn attack(scenes: &[Scene], after: &str, client: fn(&str, &Address)) {
    thread::scope(|scope| {
        for (name, address, _) in scenes.iter().flat_map(Scene::listeners) {
            scope.spawn(move || client(&name, &address));
        }
    });
    for scene in scenes {
        scene.assert_all_answer(after);
    }
}

#[test]
fn silent_connection_is_closed_by_every_listener() {
    let scenes = Scene::both(&[]);
    attack(&scenes, "silence", |name, address| {
        let mut silent: Vec<_> = (0..4).map(|_| address.connect().unwrap()).collect();
        for stream in &mut silent {
            let end = stream.read(&mut [0]);
            assert!(matches!(end, Ok(0)), "{name}: a silent connection stays open: {end:?}");
        }
    });
}

#[test]
fn dribbled_head_is_cut_off_by_every_listener() {
    let scenes = Scene::both(&[]);
    attack(&scenes, "a byte at a time", |name, address| {
        let mut stream = address.connect().unwrap();
        stream.write_all(b"GET /v2 HTTP/1.1\r\nx: ").unwrap();
        let began = Instant::now();
        // Writing fails some time after the server has closed.
        while stream.write_all(b"y").is_ok() {
            assert!(began.elapsed() < PATIENCE, "{name}: a slow head is not cut off");
            thread::sleep(Duration::from_millis(250));
        }
    });
}

/// Opens three times as many silent connections as there are places, and more after some are closed.
#[test]
fn crowd_of_silent_clients_keeps_no_listener_busy() {
    let scenes = Scene::both(&["--set", "server.max_connections=64"]);
    for scene in &scenes {
        let before = scene.parm.descriptors().len();
        for (name, address, path) in scene.listeners() {
            let mut crowd: Vec<_> = (0..3 * OPERATORS).map(|_| address.connect().unwrap()).collect();
            address.assert_answers(path, &format!("{name}, in a crowd of silent clients"));
            let open = scene.parm.descriptors().len() - before;
            assert!(open < OPERATORS + SPARE, "{name}: {open} descriptors are taken by silent clients");
            // The connections that were closed for the request reconnect. They must not block the next request.
            crowd.extend((0..OPERATORS).map(|_| address.connect().unwrap()));
            address.assert_answers(path, &format!("{name}, when the crowd has come back"));
        }
    }
}

#[test]
fn every_listener_ends_a_connection_at_its_age() {
    let scenes = Scene::both(&["--set", "server.max_connection_age_ms=500"]);
    for (name, address, path) in scenes.iter().flat_map(Scene::listeners) {
        let mut stream = address.connect().unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200", "{name}");
        thread::sleep(Duration::from_secs(1));
        stream.write_all(ask.as_bytes()).unwrap();
        // A connection that stays open is read until the timeout of the test.
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap_or_else(|error| panic!("{name} stays open: {error}"));
        assert!(rest.contains("connection: close"), "{name}: {rest}");
    }
}

#[test]
fn table_has_every_port_of_the_process() {
    for scene in Scene::both(&[]) {
        let mut known = BTreeSet::new();
        for (_, address, _) in scene.listeners() {
            match address {
                Address::Tcp(address) => known.insert(address.port().to_string()),
                Address::Unix(path) => known.insert(path.display().to_string()),
            };
        }
        assert_eq!(listening(&scene.parm), known, "parm {}: LISTENERS names every listener", scene.what);
    }
}

/// Ports and paths where a process listens, read from the kernel's tables.
fn listening(parm: &Parm) -> BTreeSet<String> {
    let pid = parm.pid();
    let socket = |open: &String| Some(open.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    let own: BTreeSet<String> = parm.descriptors().iter().filter_map(socket).collect();
    let mut found = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            // 0A is LISTEN.
            if fields[3] == "0A" && own.contains(fields[9]) {
                let port = fields[1].rsplit(':').next().unwrap();
                found.insert(u16::from_str_radix(port, 16).unwrap().to_string());
            }
        }
    }
    let text = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split_whitespace().collect();
        // Flag 00010000 is a socket that accepts connections.
        if fields.len() == 8 && fields[3] == "00010000" && own.contains(fields[6]) {
            found.insert(fields[7].to_owned());
        }
    }
    found
}
