//! Promises that are looked at again and again, and those that hold in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Frontend, Held};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::admin::Admin;
use crate::clients::LATE;
use crate::instances::Network;
use crate::schedule::{Temper, address};
use crate::world::{Truth, World};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long a query may wait beside an idle instance that suits.
const BESIDE: Duration = Duration::from_millis(150);
/// Jobs that a hanging instance may be given while it hangs.
const IN_VAIN: u32 = 10;
/// How long everything may take to be as it should, once nothing goes wrong any more.
const CONVERGENCE: Duration = Duration::from_secs(60);

/// Looks until it is aborted.
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
    if truth.lied || now < truth.rules_since + Duration::from_secs(1) || truth.start.elapsed() < BESIDE {
        return;
    }
    let since = now - BESIDE;
    let mut found = None;
    for row in &truth.waiting {
        let known = &truth.rows[*row];
        let request = &truth.requests[known.request];
        let model = request.ask.model;
        let reserves = truth.rules.get(&model).is_none_or(|rules| rules.reserves);
        if known.free_since > since
            || reserves
            || truth.is_in_flux(model, request.sent)
            || request.deadline < now
        {
            continue;
        }
        let idle = |server: &usize| {
            let own = &truth.servers[*server];
            truth.is_steady(*server, since)
                && own.holds == 0
                && own.idle_since <= since
                && truth.has(*server, &request.ask, since)
        };
        if let Some(server) = (0..truth.servers.len()).find(idle) {
            found = Some((*row, known.request, server));
            break;
        }
    }
    if let Some((row, request, server)) = found {
        let ask = truth.requests[request].ask.clone();
        truth.breach("nobody waits beside an idle instance", || {
            format!("row {row} of request {request} ({ask}) waits beside worker {server}")
        });
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
        truth.breach("answered by the deadline", || format!("request {number} ({ask}) has no answer"));
    }
    let fed = truth.servers.iter().position(|own| own.fed_in_vain > IN_VAIN);
    if let Some(server) = fed.filter(|_| truth.rules.values().all(|rules| rules.ejects)) {
        let jobs = truth.servers[server].fed_in_vain;
        truth.breach("who gives nothing back is not fed for ever", || {
            format!("worker {server}: {jobs} jobs in vain")
        });
    }
}

fn the_healthy_are_in_service(truth: &mut Truth, listed: &BTreeMap<String, Value>) {
    let now = Instant::now();
    for server in 0..truth.servers.len() {
        if truth.lied || !truth.is_steady(server, now) {
            continue;
        }
        let entry = listed.get(&address(server));
        let well = entry.is_some_and(|entry| entry["state"] == "ready" && entry["in_service"] == true);
        if !well {
            let poisoned = truth.servers[server].poisoned;
            truth.breach("the healthy are in service", || {
                let entry = entry.map(ToString::to_string).unwrap_or_default();
                format!("worker {server}, {poisoned} times poisoned, is {entry}")
            });
        }
    }
}

/// Waits until everything is as it should be, or says what is not.
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
        let in_service = entry["state"] == "ready" && entry["in_service"] == true;
        if !in_service && !truth.lied && truth.servers[server].temper == Temper::Well {
            return Some(("the healthy come back", format!("worker {server} is {entry}")));
        }
    }
    idle(frontend.held(), listed.len())
}

/// What is left when nobody asks for anything.
fn idle(held: Held, members: usize) -> Option<(&'static str, String)> {
    let Held { ledger, dispatched } = held;
    let left = [ledger.requests, ledger.queries, ledger.jobs, ledger.groups];
    let also = [dispatched.queries, dispatched.jobs, dispatched.groups];
    let equal =
        ledger.instances == members && dispatched.instances == members && ledger.pools == dispatched.pools;
    let clean = left.iter().chain(&also).all(|count| *count == 0) && equal;
    (!clean).then(|| ("nothing is left behind", format!("{held:?} with {members} members")))
}
