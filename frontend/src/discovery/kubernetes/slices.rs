//! Endpoints of a Service, merged from its slices.
//!
//! A Service with many endpoints or both address families has several slices. While Kubernetes moves an endpoint, it is
//! in two of them, so the state of an address is merged from all slices. Pods with addresses of both families would be found
//! twice, so IPv6 counts only without IPv4, as with DNS.

use std::net::{IpAddr, SocketAddr};

use parm_protocol::{Place, place};
use serde::{Deserialize, Deserializer};

use super::service::{Port, Service};
use crate::discovery::membership::{Found, ServerList};

/// All slices of a Service.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    #[serde(deserialize_with = "or_default")]
    items: Vec<EndpointSlice>,
}

impl List {
    /// The endpoints, and why some are unusable.
    pub(super) fn endpoints(self, service: &Service) -> ServerList {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        for slice in self.items.into_iter().filter(|slice| !slice.endpoints.is_empty()) {
            let wrong = |reason: String| format!("slice {}: {reason}", slice.metadata.name);
            let port = match port(&service.port, &slice.ports) {
                Ok(port) => port,
                Err(reason) => {
                    problems.push(wrong(reason));
                    continue;
                }
            };
            for endpoint in slice.endpoints {
                // An endpoint without an address is not assigned yet.
                let Some(address) = endpoint.addresses.first() else { continue };
                match address.parse::<IpAddr>() {
                    Ok(host) => all.push((host, port, found(endpoint))),
                    Err(_) => problems.push(wrong(format!("address '{address}' is not an IP address"))),
                }
            }
        }
        let has_ipv4 = all.iter().any(|(host, ..)| host.is_ipv4());
        let mut listed = ServerList { problem: problems.into_iter().next(), ..ServerList::default() };
        for (host, port, found) in all.into_iter().filter(|(host, ..)| host.is_ipv4() || !has_ipv4) {
            let known =
                listed.servers.entry(service.url(&SocketAddr::new(host, port).to_string())).or_default();
            known.place = std::mem::take(&mut known.place).or(found.place);
            known.serving |= found.serving;
            // Termination cannot be undone, so a slice without it is older.
            known.terminating |= found.terminating;
        }
        listed
    }
}

/// The port of the Service's workers in a slice.
fn port(wanted: &Port, ports: &[EndpointPort]) -> Result<u16, String> {
    let tcp = |port: &&EndpointPort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let numbered = |port: &EndpointPort| port.port.filter(|number| *number > 0);
    let mut usable = ports.iter().filter(tcp).filter_map(|port| Some((port.name.as_str(), numbered(port)?)));
    let list = || {
        let names = ports.iter().filter(tcp).map(|port| port.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    match wanted {
        Port::Number(number) => Ok(*number),
        Port::Named(named) => usable
            .find(|(name, _)| name == named)
            .map(|(_, number)| number)
            .ok_or_else(|| format!("the Service has no port '{named}': use one of its ports ({})", list())),
        Port::Only => match (usable.next(), usable.next()) {
            (Some((_, number)), None) => Ok(number),
            (None, _) => Err("the Service has no port: specify a port by its number".to_owned()),
            (Some(_), Some(_)) => {
                Err(format!("the Service has several ports ({}): specify one of them", list()))
            }
        },
    }
}

fn found(endpoint: Endpoint) -> Found {
    let Endpoint { conditions, node_name, zone, .. } = endpoint;
    let named = |text: Option<String>| place::name(&text.unwrap_or_default()).unwrap_or_default();
    Found {
        place: Place { node: named(node_name), zone: named(zone), ..Place::default() },
        // Servers before 1.26 may report only `ready`.
        serving: conditions.serving.or(conditions.ready).unwrap_or(true),
        terminating: conditions.terminating.unwrap_or(false),
    }
}

/// A part of a Service's endpoints.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointSlice {
    metadata: SliceMetadata,
    #[serde(default, deserialize_with = "or_default")]
    endpoints: Vec<Endpoint>,
    #[serde(default, deserialize_with = "or_default")]
    ports: Vec<EndpointPort>,
}

/// Name of a slice.
#[derive(Debug, Deserialize)]
struct SliceMetadata {
    #[serde(default)]
    name: String,
}

/// An endpoint, usually a pod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    /// All are equivalent; the first is used, as in kube-proxy.
    #[serde(default, deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    conditions: Conditions,
    node_name: Option<String>,
    zone: Option<String>,
}

/// State of an endpoint; a missing field is good.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Conditions {
    /// Always true if the Service publishes addresses that are not ready.
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

/// A port of all endpoints of a slice.
#[derive(Debug, Deserialize)]
struct EndpointPort {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    port: Option<u16>,
    protocol: Option<String>,
}

/// Reads null as a missing field.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// For fuzzing: reads any bytes as a list. The endpoints found must have valid addresses.
#[doc(hidden)]
pub fn survives(bytes: &[u8]) {
    let service = Service::read("kubernetes+http://workers:http").expect("valid kind of address");
    let service = service.expect("valid Service");
    let Ok(list) = serde_json::from_slice::<List>(bytes) else { return };
    for url in list.endpoints(&service).servers.into_keys() {
        url.parse::<parm_transport::client::Endpoint>().expect("found endpoint has a valid address");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn listed(service: &str, slices: &[Value]) -> ServerList {
        let list: List = serde_json::from_value(json!({ "items": slices })).unwrap();
        list.endpoints(&Service::read(service).unwrap().unwrap())
    }

    fn slice(endpoints: Value) -> Value {
        let ports = json!([{"name": "grpc", "port": 8001}, {"name": "http", "port": 8000, "protocol": "TCP"},
            {"name": "http", "port": 53, "protocol": "UDP"}]);
        json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})
    }

    #[test]
    fn slices_of_one_service_are_merged() {
        let first = json!([{"addresses": ["10.0.0.1", "10.9.9.9"], "nodeName": "n1", "zone": "a"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true, "serving": true, "terminating": false}}]);
        // The second endpoint is in both slices while it is moved, and is now terminating.
        let moved = json!([{"addresses": ["10.0.0.2"], "nodeName": "n2",
            "conditions": {"ready": true, "serving": true, "terminating": true}}]);
        let found = listed("kubernetes+http://w:http", &[slice(first), slice(moved)]).servers;
        let place = |node: &str, zone: &str| Place::announced(node, zone, "");
        let one = Found { place: place("n1", "a"), serving: true, terminating: false };
        let two = Found { place: place("n2", ""), serving: true, terminating: true };
        let expected = [("http://10.0.0.1:8000".to_owned(), one), ("http://10.0.0.2:8000".to_owned(), two)];
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn ipv6_counts_only_without_ipv4() {
        let v6 = slice(json!([{"addresses": ["fd00::1"]}, {"addresses": ["fd00::2"]}]));
        let v4 = slice(json!([{"addresses": ["10.0.0.1"]}]));
        let urls = |slices: &[Value]| -> Vec<String> {
            listed("kubernetes+grpc://w:8001", slices).servers.into_keys().collect()
        };
        assert_eq!(urls(std::slice::from_ref(&v6)), ["grpc://[fd00::1]:8001", "grpc://[fd00::2]:8001"]);
        assert_eq!(urls(&[v6, v4]), ["grpc://10.0.0.1:8001"]);
    }

    #[test]
    fn port_is_named_or_the_only_one_or_a_number() {
        let [one, two] =
            [json!([{"name": "", "port": 81}]), json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}])];
        for (service, ports, expected) in [
            ("kubernetes+http://w", &one, "http://10.0.0.1:81"),
            ("kubernetes+http://w:b", &two, "http://10.0.0.1:2"),
            ("kubernetes+http://w:9", &json!(null), "http://10.0.0.1:9"),
            ("kubernetes+http://w", &two, "several ports (a, b)"),
            ("kubernetes+http://w:http", &two, "no port 'http'"),
            ("kubernetes+http://w", &json!(null), "by its number"),
        ] {
            let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
            let slice = json!({"metadata": {"name": "s"}, "endpoints": endpoints, "ports": ports});
            let ServerList { servers, problem } = listed(service, &[slice]);
            let found = servers.into_keys().next().or(problem).unwrap();
            assert!(found.contains(expected), "{service}: {found}");
        }
    }

    #[test]
    fn missing_conditions_are_good_and_bad_address_is_reported() {
        let empty = json!({"metadata": {"name": "empty"}, "endpoints": null, "ports": null});
        let endpoints = json!([{"addresses": null}, {"addresses": ["example.com"]},
            {"addresses": ["10.0.0.1"], "conditions": null, "nodeName": null, "zone": "not one word"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]);
        let ServerList { servers, problem } = listed("kubernetes+http://w:http", &[empty, slice(endpoints)]);
        assert_eq!(servers["http://10.0.0.1:8000"], Found { serving: true, ..Found::default() });
        assert_eq!(servers["http://10.0.0.2:8000"], Found::default());
        assert!(problem.unwrap().contains("example.com"));
    }
}
