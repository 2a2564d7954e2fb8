//! Sends HTTP/1.1 over a plain socket, valid or not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::process::PATIENCE;

/// An answer, read to the end of the connection.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body_text()))
    }

    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }
}

/// A header's value in the head of a request or an answer.
pub fn header(head: &str, name: &str) -> Option<String> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, &[], b"")
}

pub fn post(address: SocketAddr, path: &str, body: &[u8]) -> Answer {
    request(address, "POST", path, &[], body)
}

/// Sends one request on a new connection. The status is 0 if the connection fails.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    raw(address, &[head.as_bytes(), body].concat())
}

/// Sends raw bytes, and reads until the server closes.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut answer);
    }
    parse(&answer)
}

fn parse(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = &answer[end..];
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Answer { status, body: if chunked { unchunk(body) } else { body.to_vec() }, head }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(String::from_utf8_lossy(&body[..at]).trim(), 16).unwrap_or(0);
        let chunk = &body[at + 2..];
        if size == 0 || chunk.len() < size {
            break;
        }
        whole.extend_from_slice(&chunk[..size]);
        body = &chunk[(size + 2).min(chunk.len())..];
    }
    whole
}
