//! Follows a file of servers, one per line.
//!
//! The file is read whole at an interval, because tools replace such files in ways that file events miss (renames,
//! mounted config maps). Many tools truncate a file before they write it, so a text counts once two reads in a row
//! returned it. An empty or unreadable file changes nothing, as with DNS names: an empty list is more likely a mistake
//! than an order to stop. An invalid line is reported and skipped, and does not affect other lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::Place;
use parm_transport::Settling;

use super::file_line::Listed;
use super::fleet::Fleet;
use super::member::Source;
use crate::error::Error;

/// Larger files are rejected.
const MAX_BYTES: u64 = 4 << 20;

/// Follows a file until the fleet is gone.
pub(super) async fn watch(fleet: Weak<Fleet>, path: PathBuf, every: Duration) {
    let (mut settling, mut left_out) = (Settling::default(), BTreeMap::new());
    loop {
        let Some(timers) = fleet.upgrade().map(|fleet| fleet.core.driver.timers) else { return };
        let file = path.clone();
        let read = timers.offload(move || read(&file)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        let Some(fleet) = fleet.upgrade() else { return };
        // At the start a partial file loses no members; the missing lines come with the next read.
        if settling.look(read.clone()) {
            match &read {
                Ok(text) => follow(&fleet, &path, text, &mut left_out),
                Err(reason) => {
                    tracing::warn!(code = %parm_protocol::StableCode::WorkersFile, file = %path.display(), %reason, "cannot read the workers file: keeping known workers");
                }
            }
        }
        // Another source may have removed a server that both listed.
        left_out.retain(|url, place| add(&fleet, url, place).is_err());
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

/// Adds a server of the file, unless another source lists it or the fleet is full.
fn add(fleet: &Arc<Fleet>, url: &str, place: &Place) -> Result<(), Error> {
    match fleet.add_at(url, Source::File, place.clone()) {
        Ok(_) => Ok(()),
        // It is a member already. If it is removed, an operator did that.
        Err(Error::DuplicateInstance { id, .. })
            if fleet.member(id).is_ok_and(|known| known.source == Source::File) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Makes the members match the file. `left_out` receives the servers that could not be added.
fn follow(fleet: &Arc<Fleet>, path: &Path, text: &str, left_out: &mut BTreeMap<String, Place>) {
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
        return;
    }
    let members = fleet.members();
    let mut gone = Vec::new();
    for member in members.iter().filter(|member| member.source == Source::File) {
        match wanted.get(&member.name) {
            Some(place) => member.tell_place(place.clone()),
            None => gone.push(member.number),
        }
    }
    left_out.clear();
    for (url, place) in wanted {
        let Err(error) = add(fleet, &url, &place) else { continue };
        if !matches!(error, Error::DuplicateInstance { .. }) {
            tracing::warn!(code = %parm_protocol::StableCode::WorkersFile, %error, "skipped an unusable line of the workers file");
        }
        left_out.insert(url, place);
    }
    // After the new ones: the last of the former members stay until those have joined.
    for number in gone {
        // It may have been removed meanwhile.
        let _ = fleet.remove(number);
    }
}

/// Adds a line's server if its address is valid and no earlier line contradicts it.
fn take(fleet: &Fleet, wanted: &mut BTreeMap<String, Place>, listed: Listed) -> Result<(), String> {
    let Listed { url, place } = listed;
    fleet.connect.check(&url)?;
    match wanted.get(&url) {
        Some(other) if *other != place => {
            Err(format!("conflicting place of '{url}': an earlier line has another: list it once"))
        }
        _ => {
            wanted.insert(url, place);
            Ok(())
        }
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
}
