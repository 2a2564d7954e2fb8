//! Line of a watch: a change of a slice, or the watch's progress.

use super::census::Census;
use super::error::Trouble;
use super::slice::{Bookmark, Change, EndpointSlice, Page, Rebuff};

/// Content of a line.
#[derive(Debug)]
pub(super) enum WatchLine {
    /// A slice is new or has changed.
    Put(EndpointSlice),
    /// The slice with this name was deleted.
    Gone { name: String, version: String },
    /// Only the progress.
    Bookmark { version: String },
    /// The watch cannot continue.
    Refused { status: u16, message: String },
}

impl WatchLine {
    /// Reads a line.
    pub(super) fn read(line: &[u8]) -> Result<Self, Trouble> {
        let Change { kind, object } = serde_json::from_slice(line).map_err(Trouble::unreadable)?;
        let object = object.get();
        Ok(match kind.as_str() {
            "ADDED" | "MODIFIED" => Self::Put(serde_json::from_str(object).map_err(Trouble::unreadable)?),
            "DELETED" => {
                let slice: EndpointSlice = serde_json::from_str(object).map_err(Trouble::unreadable)?;
                Self::Gone { name: slice.metadata.name, version: slice.metadata.resource_version }
            }
            "BOOKMARK" => {
                let Bookmark { metadata } = serde_json::from_str(object).map_err(Trouble::unreadable)?;
                Self::Bookmark { version: metadata.resource_version }
            }
            "ERROR" => {
                let Rebuff { message, code } = serde_json::from_str(object).map_err(Trouble::unreadable)?;
                Self::Refused { status: code.unwrap_or(500), message }
            }
            _ => {
                let kind: String = kind.chars().take(40).collect();
                return Err(Trouble::Unreadable { reason: format!("unknown kind of line '{kind}'") });
            }
        })
    }
}

/// For fuzzing: reads any bytes as a page of a list and as a line of a watch, and merges the result. The endpoints
/// found must have valid addresses and be removable. Returns what could be read.
#[doc(hidden)]
pub fn survives(bytes: &[u8]) -> Vec<&'static str> {
    let service = super::Service::read("kubernetes+http://workers:http")
        .expect("valid kind of address")
        .expect("valid Service");
    let (mut census, mut names, mut read) = (Census::new(service), Vec::new(), Vec::new());
    if let Ok(page) = serde_json::from_slice::<Page>(bytes) {
        for slice in page.items {
            names.push(slice.metadata.name.clone());
            census.put(slice).expect("few bytes hold few endpoints");
        }
        read.push("page");
    }
    match WatchLine::read(bytes) {
        Ok(WatchLine::Put(slice)) => {
            names.push(slice.metadata.name.clone());
            census.put(slice).expect("few bytes hold few endpoints");
            read.push("slice");
        }
        Ok(WatchLine::Gone { name, .. }) => {
            census.remove(&name);
            read.push("removal");
        }
        Ok(WatchLine::Bookmark { .. } | WatchLine::Refused { .. }) => read.push("word"),
        Err(_) => {}
    }
    for url in census.found().into_keys() {
        url.parse::<parm_transport::client::Endpoint>().expect("found endpoint has a valid address");
    }
    names.iter().for_each(|name| census.remove(name));
    assert!(census.found().is_empty() && census.problem().is_none());
    read
}
