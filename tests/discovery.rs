//! Tests missing workers, and workers found by a DNS name or a Kubernetes Service.

use std::net::Ipv4Addr;

use crate::support::api_server::Api;
use crate::support::names::{Names, Zone};
use crate::support::{Parm, http};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn status(parm: &Parm) -> u16 {
    http::get(parm.http, "/v2/health/ready").status
}

/// A frontend that queries this name server every 20 ms.
fn following(names: &Names, worker: &str) -> Parm {
    let servers = format!("frontend.instances.name_servers=[\"{}\"]", names.address);
    let often = "frontend.instances.dns_interval_ms=20";
    Parm::listening(&["serve", "--worker", worker, "--set", &servers, "--set", often])
}

fn members(parm: &Parm) -> f64 {
    parm.metric("parm_instances", &[])
}

#[test]
fn frontend_listens_and_logs_when_all_workers_are_dead() {
    let dead = {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", taken.local_addr().unwrap())
    };
    let parm = Parm::listening(&["serve", "--worker", &dead]);
    assert_eq!(status(&parm), 503);
    assert_eq!(http::get(parm.http, "/v2/health/live").status, 200);
    parm.until("the worker is named in the log", |parm| {
        let log = parm.log();
        log.contains(&dead) && log.contains("refused")
    });
}

#[test]
fn dns_name_adds_and_removes_its_workers() {
    let worker = Parm::worker(&[]);
    let names = Names::start(Zone::default());
    let parm = following(&names, &format!("dns+http://workers.test:{}", worker.http.port()));
    parm.until("the name has no addresses", |parm| parm.log().contains("has no servers"));
    assert_eq!((status(&parm), members(&parm)), (503, 0.0));
    // Only one address has a worker, but both become members.
    names.say(Zone { addresses: vec![HERE, Ipv4Addr::new(127, 0, 0, 9)], ..Zone::default() });
    parm.until_model_ready();
    parm.until("both are members", |parm| members(parm) == 2.0);
    names.say(Zone { addresses: vec![HERE], ..Zone::default() });
    parm.until("the other one is removed", |parm| members(parm) == 1.0);
    assert_eq!(status(&parm), 200);
}

#[test]
fn srv_records_of_the_first_priority_add_workers() {
    let workers = [Parm::worker(&[]), Parm::worker(&[])];
    let ports = workers.each_ref().map(|worker| worker.http.port());
    let second_choice = (20, 9, "elsewhere.test");
    let services = vec![(10, ports[0], "localhost"), (10, ports[1], "localhost"), second_choice];
    let names = Names::start(Zone { services, ..Zone::default() });
    let parm = following(&names, "srv+http://_http._tcp.workers.test");
    parm.until("both workers have joined", |parm| parm.metric("parm_instances", &["state=\"ready\""]) == 2.0);
    parm.until_model_ready();
    assert_eq!(members(&parm), 2.0);
}

/// An EndpointSlice with one pod: this machine and the port of a worker.
pub fn slice(worker: &Parm, conditions: &str) -> String {
    let port = worker.http.port();
    format!(
        r#"{{"metadata": {{"name": "w-{port}", "resourceVersion": "1"}}, "addressType": "IPv4",
        "endpoints": [{{"addresses": ["127.0.0.1"], "conditions": {conditions}, "nodeName": null, "zone": "eu-1a"}}],
        "ports": [{{"name": "http", "port": {port}, "protocol": "TCP"}}]}}"#
    )
    .replace('\n', "")
}

#[test]
fn kubernetes_service_adds_pods_with_their_nodes() {
    let workers = [
        Parm::worker(&["--set", "backend.node=n1"]),
        Parm::worker(&["--set", "backend.node=n2", "--set", "backend.zone=elsewhere"]),
    ];
    let slices = workers.each_ref().map(|worker| slice(worker, "{}"));
    let api = Api::start(200, &slices.join(","));
    let server = format!("frontend.kubernetes.server=\"http://{}\"", api.address);
    let service = "kubernetes+http://workers.ml:http";
    let parm = Parm::listening(&["serve", "--worker", service, "--set", &server, "--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    parm.until("both have joined", |parm| parm.metric("parm_instances", &["state=\"ready\""]) == 2.0);
    let told = http::get(parm.admin.unwrap(), "/admin/v1/instances").body_text();
    // The cluster's node and zone take precedence. The worker reports those that the cluster leaves open.
    for words in [r#""source":"kubernetes","node":"n1","zone":"eu-1a""#, r#""node":"n2","zone":"eu-1a""#] {
        assert!(told.contains(words), "{words} is missing in {told}");
    }
    assert_eq!(parm.metric("parm_kubernetes_current", &[service]), 1.0);
    api.set(&[slice(&workers[0], r#"{"terminating": true}"#), slices[1].clone()].join(","));
    parm.until("the terminating pod is removed", |parm| members(parm) == 1.0);
    assert_eq!(status(&parm), 200);
}
