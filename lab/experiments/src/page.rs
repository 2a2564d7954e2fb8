//! HTTP pages of a process outside the protocol: its metrics, and the faults of a worker.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::Error;

/// A page at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) address: &'a str,
    pub(crate) path: &'static str,
}

/// The longest time and the largest size of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: u64 = 8 << 20;

impl Page<'_> {
    /// Reads the page.
    pub(crate) fn get(self) -> Result<String, Error> {
        self.ask("GET", b"")
    }

    /// Writes to the page.
    pub(crate) fn post(self, body: &[u8]) -> Result<String, Error> {
        self.ask("POST", body)
    }

    fn ask(self, method: &str, body: &[u8]) -> Result<String, Error> {
        let Self { address, path } = self;
        let answer = self.exchange(method, body).map_err(|error| self.failed(error.to_string()))?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap_or("nothing");
        match status {
            "200" => Ok(body.to_owned()),
            _ => Err(Error::Page {
                address: address.into(),
                path,
                answer: format!("{status}: {}", body.trim()),
            }),
        }
    }

    /// Sends one request on its own connection and reads it to the end: HTTP/1.0 has no chunks.
    fn exchange(self, method: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
        let address = self.address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| std::io::Error::other("no such address"))?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (path, host, length) = (self.path, self.address, body.len());
        write!(stream, "{method} {path} HTTP/1.0\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n")?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer)?;
        Ok(answer)
    }

    fn failed(self, answer: String) -> Error {
        Error::Page { address: self.address.into(), path: self.path, answer }
    }
}

/// Returns the sum of a metric's samples over all label sets that contain every one of `labels`.
pub(crate) fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    page.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label)))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_matching_labels() {
        let page = "# HELP a b\njobs{model=\"m\"} 3\njobs{model=\"n\"} 4\njobs_total 9\njobs 1\n";
        assert_eq!(metric(page, "jobs", &[]), 8.0);
        assert_eq!(metric(page, "jobs", &["model=\"n\""]), 4.0);
        assert_eq!(metric(page, "none", &[]), 0.0);
    }
}
