//! Follows a file of servers, one per line.
//!
//! The file is read whole at an interval, because tools replace such files in ways that file events miss (renames,
//! mounted config maps). Many tools truncate a file before they write it, so a text counts once two reads in a row
//! returned it. An empty or unreadable file changes nothing, as with DNS names: an empty list is more likely a mistake
//! than an order to stop. An invalid line is reported and skipped, and does not affect other lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;
use std::{fmt, fs};

use parm_protocol::{Place, place};
use parm_transport::Settling;

use super::fleet::Fleet;
use super::member::Source;
use super::membership::{Footing, Found, Membership};

/// Larger files are rejected.
const MAX_BYTES: u64 = 4 << 20;

/// Follows a file until the fleet is gone.
pub(super) async fn watch(fleet: Weak<Fleet>, path: PathBuf, every: Duration) {
    let (mut settling, mut listed) = (Settling::default(), BTreeMap::new());
    let (mut members, mut footing) = (Membership::of(Source::File), Footing::default());
    loop {
        let Some(timers) = fleet.upgrade().map(|fleet| fleet.core.driver.timers) else { return };
        let file = path.clone();
        let read = timers.offload(move || read(&file)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        let Some(fleet) = fleet.upgrade() else { return };
        // At the start a partial file loses no members; the missing lines come with the next read.
        if settling.look(read.clone()) {
            match &read {
                Ok(text) => listed = wanted(&fleet, &path, text).unwrap_or(listed),
                Err(reason) => {
                    tracing::warn!(code = %parm_protocol::StableCode::WorkersFile, file = %path.display(), %reason, "cannot read the workers file: keeping known workers");
                }
            }
        }
        // Also without news: another source may have removed a server that both listed.
        let now = members.follow(&fleet, &listed, |_| false);
        if now != footing
            && let Some(reason) = &now.reason
        {
            tracing::warn!(code = %parm_protocol::StableCode::WorkersFile, file = %path.display(), lines = now.left_out, %reason, "skipped unusable lines of the workers file");
        }
        footing = now;
        drop(fleet);
        tokio::time::sleep(every).await;
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

/// The servers of the file, unless it has none.
fn wanted(fleet: &Fleet, path: &Path, text: &str) -> Option<BTreeMap<String, Found>> {
    let mut wanted = BTreeMap::new();
    let mut bad = 0;
    for (number, line) in text.lines().enumerate() {
        let Some(read) = Listed::read(line) else { continue };
        match read.and_then(|listed| take(fleet, &mut wanted, listed)) {
            Ok(()) => {}
            Err(reason) => {
                bad += 1;
                tracing::warn!(code = %parm_protocol::StableCode::WorkersFile, file = %path.display(), line = number + 1, %reason, "skipped an invalid line of the workers file");
            }
        }
    }
    fleet.core.metrics.bad_lines.set(bad);
    if wanted.is_empty() {
        tracing::warn!(code = %parm_protocol::StableCode::WorkersFile, file = %path.display(), "the workers file lists no servers: keeping known workers");
    }
    Some(wanted).filter(|wanted| !wanted.is_empty())
}

/// Adds a line's server if its address is valid and no earlier line contradicts it.
fn take(fleet: &Fleet, wanted: &mut BTreeMap<String, Found>, listed: Listed) -> Result<(), String> {
    let Listed { url, place } = listed;
    fleet.connect.check(&url)?;
    match wanted.get(&url) {
        Some(other) if other.place != place => {
            Err(format!("conflicting place of '{url}': an earlier line has another: list it once"))
        }
        _ => {
            wanted.insert(url, Found::at(place));
            Ok(())
        }
    }
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

impl fmt::Display for Listed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.url)?;
        let labels = [("node", &self.place.node), ("zone", &self.place.zone)];
        labels
            .into_iter()
            .filter_map(|(label, name)| Some((label, name.as_ref()?)))
            .try_for_each(|(label, name)| write!(to, " {label}={name}"))
    }
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
            let read = Listed::read(line);
            assert_eq!(read, expected, "{line:?}");
            if let Some(Ok(listed)) = read {
                assert_eq!(Listed::read(&listed.to_string()), Some(Ok(listed)));
            }
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
