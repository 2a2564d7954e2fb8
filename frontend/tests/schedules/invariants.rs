//! The promises: those that are checked repeatedly, those that hold at the end, and the effective settings that follow from
//! requested ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Frontend, Held};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::admin::Admin;
use crate::clients::LATE;
use crate::instances::Network;
use crate::schedule::{Model, Source, address};
use crate::world::{Truth, World};

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(50);
/// Time for everything to converge once there are no more faults.
const CONVERGENCE: Duration = Duration::from_secs(60);

/// Time for which an upstream server that is well may be out of service, if its answers were slow by chance: longer than the
/// longest backoff.
const OUT: Duration = Duration::from_secs(3);

/// Checks until it is aborted.
pub(crate) async fn watch(world: Arc<World>, admin: Admin) {
    for look in 0u64.. {
        sleep(LOOK).await;
        open_requests_are_in_time(&mut world.0.lock());
        if look % 10 == 0 {
            let listed = admin.instances().await;
            the_healthy_are_in_service(&mut world.0.lock(), &listed);
        }
    }
}

fn open_requests_are_in_time(truth: &mut Truth) {
    let now = Instant::now();
    let awake = |number: &&usize| truth.requests[**number].ask.asleep.is_none();
    let late = truth
        .open
        .iter()
        .filter(awake)
        .find(|number| truth.requests[**number].deadline + LATE < now)
        .copied();
    if let Some(number) = late {
        let ask = truth.requests[number].ask.clone();
        truth.breach("answered by the deadline", || format!("request {number} ({ask:?}) has no answer"));
    }
}

fn the_healthy_are_in_service(truth: &mut Truth, listed: &BTreeMap<String, Value>) {
    let now = Instant::now();
    for server in 0..truth.servers.len() {
        // Only real requests bring back one that was ill.
        let source = truth.servers[server].source;
        let entry = listed.get(&address(server, source));
        if truth.lied || !truth.is_steady(server, now) || entry.is_some_and(in_service) {
            truth.servers[server].out_since = None;
            continue;
        }
        let out = now - *truth.servers[server].out_since.get_or_insert(now);
        if source == Source::Upstream && out < OUT {
            continue;
        }
        let poisoned = truth.servers[server].poisoned;
        let rule = match poisoned {
            _ if entry.is_none() => "members stay members",
            0 => "healthy instances are in service",
            _ if truth.once => continue,
            _ => "bad queries do not eject healthy instances",
        };
        truth.breach(rule, || {
            let entry = entry.map(ToString::to_string).unwrap_or_default();
            format!("worker {server}, {poisoned} times poisoned, is {entry}")
        });
    }
}

/// Whether an instance accepts work of all its models.
fn in_service(entry: &Value) -> bool {
    let takes = |model: &Value| model["in_service"] == true;
    let every =
        entry["models"].as_array().is_some_and(|models| !models.is_empty() && models.iter().all(takes));
    entry["state"] == "ready" && entry["in_service"] == true && every
}

/// Waits until everything has converged, or reports what has not.
pub(crate) async fn converges(frontend: &Frontend, network: &Network, admin: &Admin) {
    let until = Instant::now() + CONVERGENCE;
    loop {
        let difference = difference(frontend, network, admin).await;
        match difference {
            None => return,
            Some((rule, what)) if Instant::now() > until => {
                network.world.0.lock().breach(rule, || what);
                return;
            }
            Some(_) => sleep(Duration::from_millis(500)).await,
        }
    }
}

async fn difference(frontend: &Frontend, network: &Network, admin: &Admin) -> Option<(&'static str, String)> {
    let listed = admin.instances().await;
    let truth = network.world.0.lock();
    if let Some(number) = truth.open.first() {
        return Some(("answered by the deadline", format!("request {number} has no answer")));
    }
    let members = |server: &usize| truth.servers[*server].member;
    let named = |server| address(server, truth.servers[server].source);
    let wanted: BTreeSet<String> = (0..truth.servers.len()).filter(members).map(named).collect();
    let known: BTreeSet<String> = listed.keys().cloned().collect();
    if wanted != known {
        return Some(("membership converges", format!("members are {known:?}, not {wanted:?}")));
    }
    for server in (0..truth.servers.len()).filter(members) {
        let entry = &listed[&named(server)];
        let served = truth.servers[server].models.iter();
        let models: BTreeSet<(String, String)> =
            served.map(|own| (own.model.name(), own.version.to_string())).collect();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let has: BTreeSet<(String, String)> = entry["models"]
            .as_array()
            .map(|all| all.iter().map(|model| (text(&model["name"]), text(&model["version"]))).collect())
            .unwrap_or_default();
        if has != models && truth.servers[server].source != Source::Upstream {
            return Some(("models converge", format!("worker {server} has {models:?}, known are {has:?}")));
        }
        if !in_service(entry) && !truth.lied {
            return Some(("recovered instances return", format!("worker {server} is {entry}")));
        }
    }
    if truth.runs.iter().any(|run| run.open) {
        return Some(("no run is left at a server", format!("{:?}", truth.runs)));
    }
    idle(frontend.held(), listed.len())
}

/// State that is left without requests.
fn idle(held: Held, members: usize) -> Option<(&'static str, String)> {
    let left = [held.requests, held.queries, held.jobs, held.groups, held.members];
    let clean = left.iter().all(|count| *count == 0) && held.instances == members;
    (!clean).then(|| ("no state is left behind", format!("{held:?} with {members} members")))
}

/// Describes wrong effective settings; `settled` states that models are tested, so that nothing is about to change.
pub(crate) fn misfit(settings: &Value, settled: bool) -> Option<String> {
    let models = settings["in_force"].as_object()?;
    models.iter().find_map(|(name, versions)| {
        // Routes of upstream servers have other policies.
        Model::named(name)?;
        let own = &settings["models"][name];
        let expected = if own.is_object() { own } else { &settings["dispatch"] };
        let versions = versions.as_object()?;
        versions.iter().find_map(|(version, standing)| {
            let wrong = wrong(expected, standing, name, settled)?;
            Some(format!("{wrong} of {name} version {version} does not follow: {standing} for {expected}"))
        })
    })
}

fn wrong(expected: &Value, standing: &Value, name: &str, settled: bool) -> Option<&'static str> {
    let policy = standing["policy"].as_str().unwrap_or_default();
    let as_expected = standing["policy"] == expected["policy"];
    // All models are linear, so that they can be coded.
    let can = match expected["policy"].as_str().unwrap_or_default() {
        "approximate-backup" => expected["backup_model"] != name,
        "stand-in" => expected["stand_in"]["model"] != name,
        _ => true,
    };
    let explained = standing["not_coded"].is_string() != as_expected;
    // A model that was not tested so far is hedged without a reason. A stand-in must have the model's shape, and shapes change.
    let certain = expected["policy"] != "stand-in" || !can;
    let stands = match (as_expected, settled && certain) {
        (true, settled) => explained && (can || !settled),
        (false, true) => policy == "hedge" && explained && !can,
        (false, false) => policy == "hedge",
    };
    let codes = standing["coding"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let coded = matches!(policy, "parm" | "parm+");
    let fits = |code: &Value| code["parities"] == expected["coding"]["r"];
    let wanted = |code: &Value| code["k"] == expected["coding"]["k"];
    let codes_fit = coded == codes.iter().any(wanted) && codes.iter().all(fits) && coded != codes.is_empty();
    let each = [(stands, "policy"), (standing["batch"] == expected["batch"], "batch"), (codes_fit, "coding")];
    each.into_iter().find_map(|(fits, what)| (!fits).then_some(what))
}
