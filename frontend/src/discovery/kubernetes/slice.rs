//! What the API server says: EndpointSlices of `discovery.k8s.io/v1`, in lists and in the lines of a watch. Only what is
//! used is read, and what may be left out or null is.

use serde::{Deserialize, Deserializer};

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) metadata: PageMetadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) items: Vec<EndpointSlice>,
}

/// Where a list was taken, and where it goes on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) rest: Option<String>,
}

/// A line of a watch. What the object is depends on the kind.
#[derive(Debug, Deserialize)]
pub(super) struct Change {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Box<serde_json::value::RawValue>,
}

/// An object of which only the version matters: a bookmark.
#[derive(Debug, Deserialize)]
pub(super) struct Bookmark {
    pub(super) metadata: SliceMetadata,
}

/// Why the API server refuses, in its words.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Rebuff {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) message: String,
    #[serde(default)]
    pub(super) code: Option<u16>,
}

/// Some of the endpoints of a Service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    pub(super) metadata: SliceMetadata,
    #[serde(default)]
    pub(super) address_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) endpoints: Vec<Endpoint>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) ports: Vec<EndpointPort>,
}

/// A slice's name and version.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SliceMetadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) resource_version: String,
}

/// A pod, mostly.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    /// All lead to the same; the first is used, as everybody does.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) conditions: Conditions,
    #[serde(default)]
    pub(super) node_name: Option<String>,
    #[serde(default)]
    pub(super) zone: Option<String>,
}

/// How a pod is; what is not said is well.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Conditions {
    /// Always true where the Service publishes addresses that are not ready.
    #[serde(default)]
    pub(super) ready: Option<bool>,
    #[serde(default)]
    pub(super) serving: Option<bool>,
    #[serde(default)]
    pub(super) terminating: Option<bool>,
}

/// A port of all endpoints of a slice.
#[derive(Debug, Deserialize)]
pub(super) struct EndpointPort {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) port: Option<u16>,
    #[serde(default)]
    pub(super) protocol: Option<String>,
}

/// What is null is what is left out.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
