//! Tests that an instance in trouble is named, in each place where operators look, and that no healthy one is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::process::command;
use crate::support::upstream::{Upstream, say};
use crate::support::{Parm, http};

/// A trouble is named within this time.
const NAMED: Duration = Duration::from_secs(5);

/// How a server answers its route. Its health check always answers, unless it is dead.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u64)]
enum Fault {
    None,
    /// It takes ten times as long.
    Slow,
    /// It never answers.
    Silent,
    /// It answers 500.
    Failing,
    /// It has no port.
    Dead,
}

/// A server that takes 20 to 40 ms, and its fault.
struct Server {
    upstream: Upstream,
    fault: Arc<AtomicU64>,
}

impl Server {
    fn start() -> Self {
        let fault = Arc::new(AtomicU64::new(0));
        let (own, count) = (fault.clone(), AtomicU64::new(0));
        let is = move |fault: Fault| own.load(Ordering::SeqCst) == fault as u64;
        let upstream = Upstream::start(move |_, stream| {
            let usual = 20 + count.fetch_add(7, Ordering::SeqCst) % 20;
            thread::sleep(Duration::from_millis(if is(Fault::Slow) { 10 * usual } else { usual }));
            while is(Fault::Silent) {
                thread::sleep(Duration::from_millis(10));
            }
            if is(Fault::Failing) {
                return say(stream, "500 Internal Server Error", "out of memory");
            }
            say(stream, "200 OK", "well")
        });
        Self { upstream, fault }
    }

    fn address(&self) -> String {
        self.upstream.address.to_string()
    }

    fn set(&self, fault: Fault) {
        self.fault.store(fault as u64, Ordering::SeqCst);
        if fault == Fault::Dead {
            self.upstream.die();
        }
    }
}

/// Clients that ask until they are dropped, and what they saw.
struct Clients {
    is_over: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
    running: Vec<thread::JoinHandle<()>>,
}

impl Clients {
    fn start(address: SocketAddr) -> Self {
        let (is_over, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |_| {
            let (is_over, failed) = (is_over.clone(), failed.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    if http::get(address, "/score").status != 200 {
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                    thread::sleep(Duration::from_millis(60));
                }
            })
        };
        let running = (0..4).map(client).collect();
        Self { is_over, failed, running }
    }

    fn end(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.running.into_iter().for_each(|client| client.join().unwrap());
        self.failed.load(Ordering::SeqCst)
    }
}

/// What operators read at a time.
struct Views {
    warnings: Vec<String>,
    /// The lines of `parm ctl instances`.
    instances: Vec<String>,
    /// The samples of the metric that the alert rules read.
    conditions: Vec<String>,
}

fn run(arguments: &[&str]) -> (bool, String) {
    let output = command().args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn admin(parm: &Parm) -> String {
    format!("http://{}", parm.admin.unwrap())
}

fn lines(text: &str, with: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
}

impl Views {
    fn of(parm: &Parm) -> Self {
        Self {
            warnings: lines(&parm.log(), " WARN "),
            instances: lines(&run(&["ctl", "instances", "--url", &admin(parm)]).1, "http://"),
            conditions: lines(&parm.metrics(), "parm_instance_condition{"),
        }
    }

    /// Whether each of them names the server with this word.
    fn name(&self, address: &str, word: &str) -> bool {
        let named = |lines: &[String]| lines.iter().any(|line| line.contains(address) && line.contains(word));
        named(&self.warnings) && named(&self.instances) && named(&self.conditions)
    }

    /// Whether nothing is wrong now. The log keeps what was.
    fn are_well(&self) -> bool {
        let well = |line: &String| line.contains("ready") && !line.contains("reason");
        self.conditions.is_empty() && self.instances.iter().all(well)
    }
}

/// Waits until the server is named by this word in each view, and checks that it took not too long.
fn until_named(parm: &Parm, address: &str, word: &str) {
    let since = Instant::now();
    parm.until("it is named", |parm| {
        // The other views take a process each.
        parm.log().lines().any(|line| line.contains(" WARN ") && line.contains(address))
            && Views::of(parm).name(address, word)
    });
    assert!(since.elapsed() < NAMED, "{word} was named after {:?}", since.elapsed());
}

/// `parm doctor` fails because of this server, and no view names another one.
fn assert_alone_named(parm: &Parm, address: &str, servers: &[Server]) {
    let (is_well, said) = run(&["doctor", &admin(parm)]);
    let faults = lines(&said, "FAIL");
    assert!(!is_well && faults.iter().any(|line| line.contains(address)), "{said}");
    assert_no_other_is_named(parm, address, servers);
    for server in servers.iter().map(Server::address).filter(|other| other != address) {
        assert!(!faults.iter().any(|line| line.contains(&server)), "{server} is healthy: {said}");
    }
}

fn assert_no_other_is_named(parm: &Parm, address: &str, servers: &[Server]) {
    let Views { warnings, conditions, .. } = Views::of(parm);
    for server in servers.iter().map(Server::address).filter(|other| other != address) {
        let named = warnings.iter().chain(&conditions).find(|line| line.contains(&server));
        assert_eq!(named, None, "{server} is healthy");
    }
}

fn over(servers: &[Server]) -> Parm {
    let urls: Vec<String> = servers.iter().map(|server| server.upstream.url()).collect();
    let mut arguments = vec!["serve", "--admin", "127.0.0.1:0"];
    urls.iter().for_each(|url| arguments.extend(["--upstream", url]));
    let parm = Parm::start(&arguments);
    parm.until("all servers have joined", |parm| parm.metric("parm_instances", &["state=\"ready\""]) == 3.0);
    parm
}

fn three() -> Vec<Server> {
    (0..3).map(|_| Server::start()).collect()
}

/// One of three servers has a fault: it is named with this word, and its return is told if it is cured.
fn named(fault: Fault, word: &str) {
    let servers = three();
    let parm = over(&servers);
    let clients = Clients::start(parm.http);
    parm.until("run times are known", |_| servers.iter().all(|server| server.upstream.heard().len() >= 30));
    let ill = &servers[1];
    let address = ill.address();
    ill.set(fault);
    until_named(&parm, &address, word);
    assert_alone_named(&parm, &address, &servers);
    if fault != Fault::Dead {
        ill.set(Fault::None);
        parm.until("its return is told", |parm| {
            lines(&parm.log(), "instance is well").iter().any(|line| line.contains(&address))
        });
        parm.until("nothing is wrong", |parm| Views::of(parm).are_well());
        let (is_well, said) = run(&["doctor", &admin(&parm)]);
        assert!(is_well, "{said}");
    }
    assert_no_other_is_named(&parm, &address, &servers);
    assert_eq!(clients.end(), 0, "no request fails");
}

#[test]
fn slow_server_is_named() {
    named(Fault::Slow, "slow");
}

#[test]
fn failing_server_is_named() {
    named(Fault::Failing, "failing");
}

#[test]
fn dead_server_is_named() {
    named(Fault::Dead, "");
}

/// A server is frozen from the start, when no run times are known.
#[test]
fn first_requests_are_not_lost_to_a_frozen_server() {
    let servers = three();
    servers[0].set(Fault::Silent);
    let parm = over(&servers);
    for _ in 0..8 {
        let asked = Instant::now();
        assert_eq!(http::get(parm.http, "/score").status, 200);
        let took = asked.elapsed();
        assert!(took < Duration::from_millis(1100), "a second more than a run at most, and not {took:?}");
    }
    until_named(&parm, &servers[0].address(), "silent");
    assert_alone_named(&parm, &servers[0].address(), &servers);
}
