//! Endpoints of a Service, merged from its slices.
//!
//! A Service with many endpoints or both address families has several slices. While Kubernetes moves an endpoint, it is
//! in two of them. Slices are therefore kept by name, and the state of an address is merged from all of them. Pods with
//! addresses of both families would be found twice, so IPv6 counts only without IPv4, as with DNS.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parm_protocol::{Place, place};
use serde::{Deserialize, Deserializer};

use super::api::Trouble;
use super::service::{Port, Service};
use crate::discovery::membership::Found;

/// Maximum endpoints of a Service: more are not workers, and would use unbounded memory.
const MOST: usize = 100_000;

/// Endpoints of a Service.
#[derive(Debug)]
pub(super) struct Census {
    service: Service,
    slices: BTreeMap<String, Portion>,
    endpoints: usize,
}

/// Endpoints of one slice.
#[derive(Debug, Default)]
struct Portion {
    found: Vec<(IpAddr, u16, Found)>,
    /// Why some or all of it is unusable.
    problem: Option<String>,
}

impl Census {
    pub(super) fn new(service: Service) -> Self {
        Self { service, slices: BTreeMap::new(), endpoints: 0 }
    }

    /// Adds or replaces a slice.
    pub(super) fn put(&mut self, slice: EndpointSlice) -> Result<(), Trouble> {
        let name = slice.metadata.name.clone();
        let portion = self.portion(slice);
        self.remove(&name);
        self.endpoints += portion.found.len();
        self.slices.insert(name, portion);
        if self.endpoints > MOST || self.slices.len() > MOST {
            return Err(Trouble::TooMany { limit: MOST });
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) {
        let gone = self.slices.remove(name);
        self.endpoints -= gone.map_or(0, |portion| portion.found.len());
    }

    /// All endpoints, by address.
    pub(super) fn found(&self) -> BTreeMap<String, Found> {
        let all = || self.slices.values().flat_map(|portion| &portion.found);
        let has_ipv4 = all().any(|(host, ..)| host.is_ipv4());
        let mut by_url: BTreeMap<String, Found> = BTreeMap::new();
        for (host, port, found) in all().filter(|(host, ..)| host.is_ipv4() || !has_ipv4) {
            let host = match host {
                IpAddr::V4(host) => host.to_string(),
                IpAddr::V6(host) => format!("[{host}]"),
            };
            let known = by_url.entry(self.service.url(&host, *port)).or_default();
            known.place = std::mem::take(&mut known.place).or(found.place.clone());
            known.serving |= found.serving;
            // Termination cannot be undone, so a slice without it is older.
            known.terminating |= found.terminating;
        }
        by_url
    }

    /// Why some endpoints are unusable, if so.
    pub(super) fn problem(&self) -> Option<&str> {
        self.slices.values().find_map(|portion| portion.problem.as_deref())
    }

    fn portion(&self, slice: EndpointSlice) -> Portion {
        let mut portion = Portion::default();
        if slice.endpoints.is_empty() {
            return portion;
        }
        let name = &slice.metadata.name;
        let port = match self.port(&slice.ports) {
            Ok(port) => port,
            Err(reason) => {
                portion.problem = Some(format!("slice {name}: {reason}"));
                return portion;
            }
        };
        for endpoint in slice.endpoints {
            // An endpoint without an address is not assigned yet.
            let Some(address) = endpoint.addresses.first() else { continue };
            match address.parse() {
                Ok(host) => portion.found.push((host, port, found(endpoint))),
                Err(_) => {
                    portion.problem = Some(format!(
                        "slice {name}: {} address '{address}' is not an IP address",
                        slice.address_type
                    ));
                }
            }
        }
        portion
    }

    fn port(&self, ports: &[EndpointPort]) -> Result<u16, String> {
        let tcp = |port: &&EndpointPort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
        let numbered = |port: &EndpointPort| port.port.filter(|number| *number > 0);
        let mut usable =
            ports.iter().filter(tcp).filter_map(|port| Some((port.name.as_str(), numbered(port)?)));
        let list = || {
            let names = ports.iter().filter(tcp).map(|port| port.name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        match &self.service.port {
            Port::Number(number) => Ok(*number),
            Port::Named(wanted) => {
                usable.find(|(name, _)| name == wanted).map(|(_, number)| number).ok_or_else(|| {
                    format!("the Service has no port '{wanted}': use one of its ports ({})", list())
                })
            }
            Port::Only => match (usable.next(), usable.next()) {
                (Some((_, number)), None) => Ok(number),
                (None, _) => Err("the Service has no port: specify a port by its number".to_owned()),
                (Some(_), Some(_)) => {
                    Err(format!("the Service has several ports ({}): specify one of them", list()))
                }
            },
        }
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

/// All slices of the Service.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub(super) metadata: ListMetadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) items: Vec<EndpointSlice>,
}

/// Version of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    pub(super) resource_version: String,
}

/// A line of a watch. The type of the object depends on the kind.
#[derive(Debug, Deserialize)]
pub(super) struct Change {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Box<serde_json::value::RawValue>,
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

/// Name of a slice.
#[derive(Debug, Deserialize)]
pub(super) struct SliceMetadata {
    #[serde(default)]
    pub(super) name: String,
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

/// Content of a line.
#[derive(Debug)]
pub(super) enum WatchLine {
    /// A slice is new or has changed.
    Put(EndpointSlice),
    /// The slice with this name was deleted.
    Gone(String),
    /// The watch cannot continue.
    Refused { status: u16, message: String },
}

impl WatchLine {
    pub(super) fn read(line: &[u8]) -> Result<Self, Trouble> {
        let Change { kind, object } = serde_json::from_slice(line).map_err(Trouble::unreadable)?;
        let object = object.get();
        Ok(match kind.as_str() {
            "ADDED" | "MODIFIED" => Self::Put(serde_json::from_str(object).map_err(Trouble::unreadable)?),
            "DELETED" => {
                let slice: EndpointSlice = serde_json::from_str(object).map_err(Trouble::unreadable)?;
                Self::Gone(slice.metadata.name)
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

/// For fuzzing: reads any bytes as a list and as a line of a watch, and merges the result. The endpoints
/// found must have valid addresses and be removable.
#[doc(hidden)]
pub fn survives(bytes: &[u8]) {
    let service = super::Service::read("kubernetes+http://workers:http")
        .expect("valid kind of address")
        .expect("valid Service");
    let mut census = Census::new(service);
    let list = serde_json::from_slice::<List>(bytes).map(|list| list.items).unwrap_or_default();
    let line = match WatchLine::read(bytes) {
        Ok(WatchLine::Put(slice)) => Some(slice),
        _ => None,
    };
    let mut names = Vec::new();
    for slice in list.into_iter().chain(line) {
        names.push(slice.metadata.name.clone());
        census.put(slice).expect("few bytes hold few endpoints");
    }
    for url in census.found().into_keys() {
        url.parse::<parm_transport::client::Endpoint>().expect("found endpoint has a valid address");
    }
    names.iter().for_each(|name| census.remove(name));
    assert!(census.found().is_empty() && census.problem().is_none());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn census(service: &str) -> Census {
        Census::new(Service::read(service).unwrap().unwrap())
    }

    fn slice(name: &str, endpoints: Value) -> EndpointSlice {
        let ports = json!([{"name": "grpc", "port": 8001}, {"name": "http", "port": 8000, "protocol": "TCP"},
            {"name": "http", "port": 53, "protocol": "UDP"}]);
        read(
            &json!({"metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}),
        )
    }

    fn read(slice: &Value) -> EndpointSlice {
        serde_json::from_value(slice.clone()).unwrap()
    }

    fn urls(census: &Census) -> Vec<String> {
        census.found().into_keys().collect()
    }

    #[test]
    fn slices_of_one_service_are_merged() {
        let mut census = census("kubernetes+http://w:http");
        let first = json!([{"addresses": ["10.0.0.1", "10.9.9.9"], "nodeName": "n1", "zone": "a"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true, "serving": true, "terminating": false}}]);
        census.put(slice("w-1", first)).unwrap();
        // The second endpoint is in both slices while it is moved, and is now terminating.
        let moved = json!([{"addresses": ["10.0.0.2"], "nodeName": "n2",
            "conditions": {"ready": true, "serving": true, "terminating": true}}]);
        census.put(slice("w-2", moved)).unwrap();
        let found = census.found();
        let place = |node: &str, zone: Option<&str>| Place::announced(node, zone.unwrap_or_default(), "");
        let one = Found { place: place("n1", Some("a")), serving: true, terminating: false };
        let two = Found { place: place("n2", None), serving: true, terminating: true };
        let expected = [("http://10.0.0.1:8000".to_owned(), one), ("http://10.0.0.2:8000".to_owned(), two)];
        assert_eq!(found, BTreeMap::from(expected));
        census.remove("w-1");
        assert_eq!(urls(&census), ["http://10.0.0.2:8000"]);
    }

    #[test]
    fn ipv6_counts_only_without_ipv4() {
        let mut census = census("kubernetes+grpc://w:8001");
        census.put(slice("v6", json!([{"addresses": ["fd00::1"]}, {"addresses": ["fd00::2"]}]))).unwrap();
        assert_eq!(urls(&census), ["grpc://[fd00::1]:8001", "grpc://[fd00::2]:8001"]);
        census.put(slice("v4", json!([{"addresses": ["10.0.0.1"]}]))).unwrap();
        assert_eq!(urls(&census), ["grpc://10.0.0.1:8001"]);
    }

    #[test]
    fn port_is_named_or_the_only_one_or_a_number() {
        let with = |service: &str, ports: Value| {
            let mut census = census(service);
            let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
            census
                .put(read(&json!({"metadata": {"name": "s"}, "endpoints": endpoints, "ports": ports})))
                .unwrap();
            census.found().into_keys().next().ok_or_else(|| census.problem().unwrap_or_default().to_owned())
        };
        let [one, two] =
            [json!([{"name": "", "port": 81}]), json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}])];
        assert_eq!(with("kubernetes+http://w", one), Ok("http://10.0.0.1:81".into()));
        assert_eq!(with("kubernetes+http://w:b", two.clone()), Ok("http://10.0.0.1:2".into()));
        assert_eq!(with("kubernetes+http://w:9", json!(null)), Ok("http://10.0.0.1:9".into()));
        let told = |told: Result<String, String>, word: &str| {
            let told = told.unwrap_err();
            assert!(told.contains(word), "{told}");
        };
        told(with("kubernetes+http://w", two.clone()), "several ports (a, b)");
        told(with("kubernetes+http://w:http", two), "no port 'http'");
        told(with("kubernetes+http://w", json!(null)), "by its number");
    }

    #[test]
    fn missing_conditions_are_good_and_bad_address_is_reported() {
        let mut census = census("kubernetes+http://w:http");
        census.put(read(&json!({"metadata": {"name": "empty"}, "endpoints": null, "ports": null}))).unwrap();
        assert_eq!((urls(&census).len(), census.problem()), (0, None));
        let endpoints = json!([{"addresses": null}, {"addresses": ["example.com"]},
            {"addresses": ["10.0.0.1"], "conditions": null, "nodeName": null, "zone": "not one word"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]);
        census.put(slice("s", endpoints)).unwrap();
        let found = census.found();
        assert_eq!(found["http://10.0.0.1:8000"], Found { serving: true, ..Found::default() });
        assert_eq!(found["http://10.0.0.2:8000"], Found::default());
        assert!(census.problem().unwrap().contains("example.com"));
    }

    #[test]
    fn too_many_endpoints_are_rejected() {
        let mut census = census("kubernetes+http://w:http");
        let mut put = |name: &str, count: usize| {
            let endpoints: Vec<_> = (0..count).map(|_| json!({"addresses": ["10.0.0.1"]})).collect();
            census.put(slice(name, Value::Array(endpoints)))
        };
        put("a", MOST).unwrap();
        put("a", MOST).unwrap();
        assert_eq!(put("b", 1), Err(Trouble::TooMany { limit: MOST }));
    }
}
