//! A line of a watch: what became of a slice, or how far the watch is.

use super::census::Census;
use super::slice::{Bookmark, Change, EndpointSlice, Page, Rebuff};
use super::trouble::Trouble;

/// What a line says.
#[derive(Debug)]
pub(super) enum News {
    /// A slice is new, or other than before.
    Put(EndpointSlice),
    /// A slice of this name is gone.
    Gone { name: String, version: String },
    /// Nothing but how far it is.
    Bookmark { version: String },
    /// The watch cannot go on.
    Refused { status: u16, message: String },
}

impl News {
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
                return Err(Trouble::Unreadable { reason: format!("a line of kind '{kind}'") });
            }
        })
    }
}

/// For fuzzing: takes any bytes as a page of a list and as a line of a watch, and puts together what they say. What is found
/// are addresses, and it can be taken away again. Says what could be read.
#[doc(hidden)]
pub fn survives(bytes: &[u8]) -> Vec<&'static str> {
    let service =
        super::Service::read("kubernetes+http://workers:http").expect("a Service").expect("a sound one");
    let (mut census, mut names, mut read) = (Census::new(service), Vec::new(), Vec::new());
    if let Ok(page) = serde_json::from_slice::<Page>(bytes) {
        for slice in page.items {
            names.push(slice.metadata.name.clone());
            census.put(slice).expect("so few bytes are not too many");
        }
        read.push("page");
    }
    match News::read(bytes) {
        Ok(News::Put(slice)) => {
            names.push(slice.metadata.name.clone());
            census.put(slice).expect("so few bytes are not too many");
            read.push("slice");
        }
        Ok(News::Gone { name, .. }) => {
            census.remove(&name);
            read.push("removal");
        }
        Ok(News::Bookmark { .. } | News::Refused { .. }) => read.push("word"),
        Err(_) => {}
    }
    for url in census.found().into_keys() {
        url.parse::<parm_transport::client::Endpoint>().expect("what is found is an address");
    }
    names.iter().for_each(|name| census.remove(name));
    assert!(census.found().is_empty() && census.problem().is_none());
    read
}
