//! JSON types of EndpointSlices (`discovery.k8s.io/v1`), in lists and in lines of a watch.
//!
//! Only used fields are read; optional fields may be missing or null.

use serde::{Deserialize, Deserializer};

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) metadata: PageMetadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) items: Vec<EndpointSlice>,
}

/// Version of a list, and the token of its next page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) rest: Option<String>,
}

/// A line of a watch. The type of the object depends on the kind.
#[derive(Debug, Deserialize)]
pub(super) struct Change {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Box<serde_json::value::RawValue>,
}

/// An object of which only the version is read: a bookmark.
#[derive(Debug, Deserialize)]
pub(super) struct Bookmark {
    pub(super) metadata: SliceMetadata,
}

/// Error of the API server.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Rebuff {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) message: String,
    #[serde(default)]
    pub(super) code: Option<u16>,
}

/// A part of a Service's endpoints.
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

/// Name and version of a slice.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SliceMetadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) resource_version: String,
}

/// An endpoint, usually a pod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    /// All are equivalent; the first is used, as in kube-proxy.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) conditions: Conditions,
    #[serde(default)]
    pub(super) node_name: Option<String>,
    #[serde(default)]
    pub(super) zone: Option<String>,
}

/// State of an endpoint; a missing field is good.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Conditions {
    /// Always true if the Service publishes addresses that are not ready.
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

/// Reads null as a missing field.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
