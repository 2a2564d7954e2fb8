//! Promises that are checked repeatedly, and those that hold at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Frontend, Held};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::admin::Admin;
use crate::clients::LATE;
use crate::instances::Network;
use crate::schedule::{Model, Serving, Temper, address};
use crate::world::{Truth, World};

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a query may wait next to a suitable idle instance.
const BESIDE: Duration = Duration::from_millis(150);
/// Time for everything to converge once there are no more faults.
const CONVERGENCE: Duration = Duration::from_secs(60);

/// Checks until it is aborted.
pub(crate) async fn watch(world: Arc<World>, admin: Admin) {
    for look in 0u64.. {
        sleep(LOOK).await;
        nobody_waits_beside_the_idle(&mut world.0.lock());
        open_requests_are_in_time(&mut world.0.lock());
        if look % 10 == 0 {
            let listed = admin.instances().await;
            the_healthy_are_in_service(&mut world.0.lock(), &listed);
        }
    }
}

fn nobody_waits_beside_the_idle(truth: &mut Truth) {
    let now = Instant::now();
    if truth.lied
        || truth.excuses.health
        || now < truth.rules_since + Duration::from_secs(1)
        || truth.start.elapsed() < BESIDE
    {
        return;
    }
    let since = now - BESIDE;
    let beside = |row: &usize| Some((*row, beside(truth, *row, since)?));
    let Some((row, server)) = truth.waiting.iter().find_map(beside) else { return };
    let request = truth.rows[row].request;
    let ask = truth.requests[request].ask.clone();
    truth.breach("no query waits next to an idle instance", || {
        format!("row {row} of request {request} ({ask:?}) waits next to idle worker {server}")
    });
}

/// A server that has been idle while a row waited that it could have run.
fn beside(truth: &Truth, row: usize, since: Instant) -> Option<usize> {
    let known = &truth.rows[row];
    let request = &truth.requests[known.request];
    let (model, tried) = (request.ask.model, known.faults + known.neighbours > 0);
    let rules = truth.rules.get(&model)?;
    let of_it = |own: &&Serving| own.model == Model::Asked(model);
    let servings = truth.servers.iter().flat_map(|server| server.models.keys()).filter(of_it);
    let versions: BTreeSet<u8> = servings.map(|own| own.version).collect();
    // While there are two, an instance may be idle because the default version is another one.
    let excused = versions.len() > 1
        || rules.reserves
        || (rules.stands_in && tried)
        || request.ask.asleep.is_some()
        || known.free_since > since
        || truth.is_in_flux(model, request.sent)
        || request.deadline < Instant::now();
    if excused {
        return None;
    }
    let idle = |server: &usize| {
        let own = &truth.servers[*server];
        let was_idle = own.holds == 0 && own.idle_since <= since;
        was_idle && truth.is_steady(*server, since) && truth.has(*server, &request.ask, since)
    };
    (0..truth.servers.len()).find(idle)
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
        let is_out = truth.lied || truth.excuses.health || truth.servers[server].was_ill;
        if is_out || !truth.is_steady(server, now) {
            continue;
        }
        let entry = listed.get(&address(server));
        let well = entry.is_some_and(in_service);
        if !well {
            let poisoned = truth.servers[server].poisoned;
            if poisoned > 0 && truth.excuses.neighbours {
                continue;
            }
            let crowd = truth.servers[server].models.len() > 50;
            let rule = match (poisoned > 0, crowd) {
                _ if entry.is_none() => "members stay members",
                (true, _) => "bad queries do not eject healthy instances",
                (false, true) => "an instance with many models joins",
                (false, false) => "healthy instances are in service",
            };
            truth.breach(rule, || {
                let entry = entry.map(ToString::to_string).unwrap_or_default();
                format!("worker {server}, {poisoned} times poisoned, is {entry}")
            });
        }
    }
}

/// Whether an instance accepts work of all its models.
fn in_service(entry: &Value) -> bool {
    let takes = |model: &Value| model["in_service"] == true;
    let every = entry["models"].as_array().is_some_and(|models| models.iter().all(takes));
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
    let wanted: BTreeSet<String> = (0..truth.servers.len()).filter(members).map(address).collect();
    let known: BTreeSet<String> = listed.keys().cloned().collect();
    if wanted != known {
        return Some(("membership converges", format!("members are {known:?}, not {wanted:?}")));
    }
    for (server, instance) in network.instances.iter().enumerate().filter(|(server, _)| members(server)) {
        let entry = &listed[&address(server)];
        let mut models: Vec<(String, String)> =
            instance.models.lock().iter().map(|own| (own.model.name(), own.version.to_string())).collect();
        models.sort();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut has: Vec<(String, String)> = entry["models"]
            .as_array()
            .map(|all| all.iter().map(|model| (text(&model["name"]), text(&model["version"]))).collect())
            .unwrap_or_default();
        has.sort();
        if has != models {
            let (has, models) = (has.len(), models.len());
            return Some((
                "models converge",
                format!("worker {server} has {models} models, {has} are known: {entry}"),
            ));
        }
        if !in_service(entry)
            && !truth.lied
            && !truth.excuses.health
            && truth.servers[server].temper == Temper::Well
        {
            return Some(("recovered instances return", format!("worker {server} is {entry}")));
        }
    }
    if truth.excuses.keeps { None } else { idle(frontend.held(), listed.len()) }
}

/// State that is left without requests.
fn idle(held: Held, members: usize) -> Option<(&'static str, String)> {
    let left = [held.requests, held.queries, held.jobs, held.groups, held.members];
    let clean = left.iter().all(|count| *count == 0) && held.instances == members;
    (!clean).then(|| ("no state is left behind", format!("{held:?} with {members} members")))
}
