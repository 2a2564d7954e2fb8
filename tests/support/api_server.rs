//! Imitates a Kubernetes API server for one Service: a list of EndpointSlices, and watches that receive lines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::process::PATIENCE;

/// The server; its threads end with the process.
pub struct Api {
    pub address: SocketAddr,
    watches: Arc<Mutex<Vec<TcpStream>>>,
}

impl Api {
    /// Answers lists with this status and these slices.
    pub fn start(status: u16, slices: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let watches: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (slices, open) = (slices.to_owned(), watches.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), status, &slices, &open);
            }
        });
        Self { address, watches }
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

fn answer(mut stream: TcpStream, status: u16, slices: &str, watches: &Mutex<Vec<TcpStream>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    if head.contains("watch=true") && status == 200 {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        watches.lock().unwrap().push(stream);
        return;
    }
    let body = match status {
        200 => format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{slices}]}}"#),
        _ => r#"{"kind": "Status", "message": "as the test wants it"}"#.to_owned(),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} So\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
}
