//! Imitates a Kubernetes API server for one Service: a list of EndpointSlices, and watches that receive lines.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::process::PATIENCE;
use super::upstream::{Upstream, say};

/// The server; its threads end with the process.
pub struct Api {
    pub address: SocketAddr,
    watches: Arc<Mutex<Vec<TcpStream>>>,
}

impl Api {
    /// Answers lists with this status and these slices.
    pub fn start(status: u16, slices: &str) -> Self {
        let watches: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (slices, open) = (slices.to_owned(), watches.clone());
        let server = Upstream::start(move |heard, stream| {
            if heard.path().contains("watch=true") && status == 200 {
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
                open.lock().unwrap().extend(stream.try_clone());
                return true;
            }
            let body = match status {
                200 => format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{slices}]}}"#),
                _ => r#"{"kind": "Status", "message": "as the test wants it"}"#.to_owned(),
            };
            say(stream, &format!("{status} So"), &body)
        });
        Self { address: server.address, watches }
    }

    /// Waits until a watch is open.
    pub fn until_watched(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.watches.lock().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "no watch was opened");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a line to all watches.
    pub fn tell(&self, line: &str) {
        for watch in self.watches.lock().unwrap().iter_mut() {
            write!(watch, "{:x}\r\n{line}\n\r\n", line.len() + 1).unwrap();
        }
    }
}
