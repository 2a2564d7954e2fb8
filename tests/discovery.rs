//! Tests missing workers, and workers found by a DNS name.

use std::net::Ipv4Addr;

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
