//! A file of servers, one per line.
//!
//! The file is read whole at an interval, because tools replace such files in ways that file events miss (renames,
//! mounted config maps). Many tools truncate a file before they write it, so a text counts once two reads in a row
//! returned it. An invalid line is reported and skipped, and does not affect other lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use parm_protocol::{Place, StableCode, place};
use parm_transport::Settling;
use prometheus::IntGauge;

use super::connect::Connect;
use super::member::Source;
use super::membership::{Found, Listing, ServerList};
use crate::serve::Timers;

/// Interval between two reads.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Larger files are rejected.
const MAX_BYTES: u64 = 4 << 20;

/// The workers file.
pub(super) struct WorkersFile {
    path: PathBuf,
    connect: Arc<dyn Connect>,
    timers: Timers,
    bad_lines: IntGauge,
    settling: Settling<String>,
    servers: BTreeMap<String, Found>,
}

impl WorkersFile {
    pub(super) fn new(path: PathBuf, connect: Arc<dyn Connect>, timers: Timers, bad_lines: IntGauge) -> Self {
        let (settling, servers) = (Settling::default(), BTreeMap::new());
        Self { path, connect, timers, bad_lines, settling, servers }
    }

    /// Reads the lines of the file.
    fn take_over(&mut self, text: &str) {
        self.servers.clear();
        let mut bad = 0;
        for (number, line) in text.lines().enumerate() {
            let Some(read) = Listed::read(line) else { continue };
            if let Err(reason) = read.and_then(|listed| self.add(listed)) {
                bad += 1;
                tracing::warn!(code = %Self::CODE, file = %self, line = number + 1, %reason, "skipped an invalid line of the workers file");
            }
        }
        self.bad_lines.set(bad);
    }

    /// Adds a line's server if its address is valid and no earlier line contradicts it.
    fn add(&mut self, listed: Listed) -> Result<(), String> {
        let Listed { url, place } = listed;
        self.connect.check(&url)?;
        if self.servers.get(&url).is_some_and(|other| other.place != place) {
            return Err(format!("conflicting place of '{url}': an earlier line has another: list it once"));
        }
        self.servers.insert(url, Found::at(place));
        Ok(())
    }
}

impl Listing for WorkersFile {
    const SOURCE: Source = Source::File;
    const CODE: StableCode = StableCode::WorkersFile;

    async fn list(&mut self) -> Result<ServerList, String> {
        let file = self.path.clone();
        let read = self.timers.offload(move || read(&file)).await;
        let text = read.unwrap_or_else(|error| Err(error.to_string()))?;
        // At the start a partial file loses no members; the missing lines come with the next read.
        if self.settling.look(text.clone()) {
            self.take_over(&text);
        }
        Ok(ServerList { servers: self.servers.clone(), problem: None })
    }
}

impl fmt::Display for WorkersFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(to)
    }
}

fn read(path: &Path) -> Result<String, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    // A pipe would block, and a device may be endless.
    if !found.is_file() {
        return Err("it is not a regular file".into());
    }
    let size = found.len();
    if size > MAX_BYTES {
        return Err(format!("file is too large: {size} bytes, at most {MAX_BYTES}"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

/// A server with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its address, not validated yet.
    pub url: String,
    /// Its place, as far as the line states it.
    pub place: Place,
}

impl Listed {
    /// Reads a line; `None` for an empty line or a comment.
    pub fn read(line: &str) -> Option<Result<Self, String>> {
        let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
        (!line.is_empty()).then(|| parse(line))
    }
}

fn parse(line: &str) -> Result<Listed, String> {
    let (mut rest, mut place) = (line, Place::default());
    while let Some((before, word)) = rest.rsplit_once(char::is_whitespace) {
        let Some((label, value)) = word.split_once('=') else { break };
        let known = match label {
            "node" => &mut place.node,
            "zone" => &mut place.zone,
            // A socket's path may contain any text.
            _ if rest.contains("unix:") => break,
            _ => {
                return Err(format!("invalid label '{word}': use node=NAME or zone=NAME after the address"));
            }
        };
        if known.is_some() {
            return Err(format!("duplicate label {label} (given twice): keep one"));
        }
        let name = place::name(value).map_err(|reason| format!("{label}: {reason}"))?;
        *known = Some(name.ok_or_else(|| format!("{label} has no name: use {label}=NAME, or omit it"))?);
        rest = before.trim_end();
    }
    Ok(Listed { url: rest.to_owned(), place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("workers");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || tell.send(read(&pipe)));
        let read = told.recv_timeout(Duration::from_secs(60)).expect("it waits for a writer");
        assert_eq!(read, Err("it is not a regular file".to_owned()));
    }

    fn listed(url: &str, node: Option<&str>, zone: Option<&str>) -> Option<Result<Listed, String>> {
        let place =
            Place { node: node.map(str::to_owned), zone: zone.map(str::to_owned), ..Place::default() };
        Some(Ok(Listed { url: url.to_owned(), place }))
    }

    #[test]
    fn line_has_an_address_and_place_or_nothing() {
        let cases = [
            ("http://a:1", listed("http://a:1", None, None)),
            ("  http://a:1  # the first", listed("http://a:1", None, None)),
            ("http://a:1 node=n1 # zone=no", listed("http://a:1", Some("n1"), None)),
            ("http://a:1\tzone=eu-1a   node=n1", listed("http://a:1", Some("n1"), Some("eu-1a"))),
            ("unix:/run/my own.sock zone=z", listed("unix:/run/my own.sock", None, Some("z"))),
            ("unix:/run/a=b c=d", listed("unix:/run/a=b c=d", None, None)),
            ("node=n1", listed("node=n1", None, None)),
            ("# http://a:1", None),
            ("   ", None),
        ];
        for (line, expected) in cases {
            assert_eq!(Listed::read(line), expected, "{line:?}");
        }
    }

    #[test]
    fn invalid_label_error_shows_expected_format() {
        for (line, word) in [
            ("http://a:1 nod=n1", "node=NAME or zone=NAME"),
            ("http://a:1 rack=4 node=n1", "'rack=4'"),
            ("http://a:1 node=n1 node=n2", "twice"),
            ("http://a:1 node=", "no name"),
            (&format!("http://a:1 zone={}", "z".repeat(300)), "at most 253"),
        ] {
            let told = Listed::read(line).unwrap().unwrap_err();
            assert!(told.contains(word), "{line}: {told}");
        }
    }
}
