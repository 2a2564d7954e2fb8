//! A file of servers, one a line, that is watched for changes.
//!
//! It is read whole at an interval: files of this kind are replaced by tools in ways that file events miss (renames,
//! mounted config maps). Many tools empty a file before they write it, so a text is believed once two looks in a row saw
//! it, and one that names nobody changes nothing, as with names: it takes longer to write an empty list by mistake than
//! to stop a frontend on purpose. Neither does a file that cannot be read: the instances that it named last stay. A line
//! that lists none is reported and skipped, and costs no other line anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::Place;
use parm_transport::Settling;

use super::fleet::Fleet;
use super::listed::Listed;
use super::member::Source;
use crate::error::Error;

/// A file with more bytes than this is not read.
const MAX_BYTES: u64 = 4 << 20;

/// Follows a file until the fleet is gone.
pub(super) async fn watch(fleet: Weak<Fleet>, path: PathBuf, every: Duration) {
    let mut settling = Settling::default();
    loop {
        let Some(timers) = fleet.upgrade().map(|fleet| fleet.core.driver.timers) else { return };
        let file = path.clone();
        let read = timers.offload(move || read(&file)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        let Some(fleet) = fleet.upgrade() else { return };
        // At the start there is nobody to lose: what is missing in half a file comes with the next look.
        if settling.look(read.clone()) {
            match &read {
                Ok(text) => follow(&fleet, &path, text),
                Err(reason) => {
                    tracing::warn!(file = %path.display(), %reason, "cannot read the workers file: nothing changes");
                }
            }
        }
        drop(fleet);
        tokio::time::sleep(every).await;
    }
}

fn read(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("it has {size} bytes, more than {MAX_BYTES}"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

/// Makes the fleet what the file says.
fn follow(fleet: &Arc<Fleet>, path: &Path, text: &str) {
    let mut wanted = BTreeMap::new();
    let mut bad = 0;
    for (number, line) in text.lines().enumerate() {
        let Some(read) = Listed::read(line) else { continue };
        match read.and_then(|listed| take(fleet, &mut wanted, listed)) {
            Ok(()) => {}
            Err(reason) => {
                bad += 1;
                tracing::warn!(file = %path.display(), line = number + 1, %reason, "skipped a line of the workers file");
            }
        }
    }
    fleet.core.metrics.bad_lines.set(bad);
    if wanted.is_empty() {
        tracing::warn!(file = %path.display(), "the workers file names no server now: nothing changes");
        return;
    }
    let members = fleet.members();
    for member in members.iter().filter(|member| member.source == Source::File) {
        match wanted.get(&member.name) {
            Some(place) => member.tell_place(place.clone()),
            None => {
                // Gone meanwhile is gone too.
                let _ = fleet.remove(member.number);
            }
        }
    }
    for (url, place) in wanted {
        match fleet.add_at(&url, Source::File, place) {
            // It stays from before, or another source named it too.
            Ok(_) | Err(Error::DuplicateInstance { .. }) => {}
            Err(error) => tracing::warn!(%error, "skipped a line of the workers file"),
        }
    }
}

/// Takes in what a line lists, if it can be one and no line before says something else of it.
fn take(fleet: &Fleet, wanted: &mut BTreeMap<String, Place>, listed: Listed) -> Result<(), String> {
    let Listed { url, place } = listed;
    fleet.connect.check(&url)?;
    match wanted.get(&url) {
        Some(other) if *other != place => {
            Err(format!("a line above says of '{url}' that it stands elsewhere: list it once"))
        }
        _ => {
            wanted.insert(url, place);
            Ok(())
        }
    }
}
