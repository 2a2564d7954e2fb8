//! Imitates a Kubernetes API server for one Service: a list of EndpointSlices.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The server; its threads end with the process.
pub struct Api {
    pub address: SocketAddr,
    slices: Arc<Mutex<String>>,
}

impl Api {
    /// Answers lists with this status and these slices.
    pub fn start(status: u16, slices: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let slices = Arc::new(Mutex::new(slices.to_owned()));
        let listed = slices.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), status, &listed.lock().unwrap());
            }
        });
        Self { address, slices }
    }

    /// Lists these slices from now on.
    pub fn set(&self, slices: &str) {
        *self.slices.lock().unwrap() = slices.to_owned();
    }
}

fn answer(mut stream: TcpStream, status: u16, slices: &str) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let body = match status {
        200 => format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{slices}]}}"#),
        _ => r#"{"kind": "Status", "message": "as the test wants it"}"#.to_owned(),
    };
    let length = body.len();
    // The frontend may have left.
    let _ = write!(stream, "HTTP/1.1 {status} So\r\ncontent-length: {length}\r\n\r\n{body}");
}
