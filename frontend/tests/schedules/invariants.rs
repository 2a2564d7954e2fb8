//! The promises: those that are checked repeatedly, those that hold at the end, the effective settings that follow from
//! requested ones, and what excuses from a promise: an operator who sets an extreme value accepts its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parm_frontend::{Frontend, Held};
use parm_settings::{PolicyKind, PoolSettings};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::admin::Admin;
use crate::clients::LATE;
use crate::instances::{MAX_BATCH, Network};
use crate::schedule::{Model, Setup, Temper, address};
use crate::world::{Truth, World};

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(50);
/// Time for everything to converge once there are no more faults.
const CONVERGENCE: Duration = Duration::from_secs(60);

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

/// Promises that are not checked, from the first settings on that excuse them, because their effects on instances last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuses {
    /// Healthy instances may be out of service, so that queries wait while they are idle.
    pub(crate) health: bool,
    /// Queries may fail with another client's row in their batch, and that row's failure may count against the
    /// instance.
    pub(crate) neighbours: bool,
    /// Queries may be kept after their answers.
    pub(crate) keeps: bool,
}

impl Excuses {
    /// Adds the settings of a model, or of all.
    pub(crate) fn add(&mut self, own: &PoolSettings) {
        self.health |= ejects_the_well(own);
        // Queries of a failed batch are retried alone, and only a second attempt tells a bad row from a broken
        // instance.
        self.neighbours |= own.max_attempts.get() < 2 || own.retry.burst < 10;
        // Queries that wait when `once` comes into force share batches and are not retried.
        self.neighbours |= own.policy == PolicyKind::Once;
        // A group that is not full keeps its queries until this age.
        self.keeps |= own.coding.max_age > Duration::from_secs(10);
    }
}

fn ejects_the_well(own: &PoolSettings) -> bool {
    // A single failure suffices.
    own.ejection.failures.get() < 2
}

/// Conditions other than the settings.
pub(crate) struct Basis<'a> {
    pub(crate) setup: &'a Setup,
    /// Group sizes for which model 0's bundle has codes.
    pub(crate) sizes: &'a [u8],
    /// Whether models are tested and bundles read, so that nothing is about to change.
    pub(crate) settled: bool,
}

/// Describes wrong effective settings.
pub(crate) fn misfit(settings: &Value, basis: &Basis<'_>) -> Option<String> {
    let models = settings["in_force"].as_object()?;
    models.iter().find_map(|(name, versions)| {
        let own = &settings["models"][name];
        let expected = if own.is_object() { own } else { &settings["dispatch"] };
        let versions = versions.as_object()?;
        versions.iter().find_map(|(version, standing)| {
            let wrong = wrong(expected, standing, name, version, basis)?;
            Some(format!("{wrong} of {name} version {version} does not follow: {standing} for {expected}"))
        })
    })
}

fn wrong(
    expected: &Value,
    standing: &Value,
    name: &str,
    version: &str,
    basis: &Basis<'_>,
) -> Option<&'static str> {
    let policy = standing["policy"].as_str().unwrap_or_default();
    let as_expected = standing["policy"] == expected["policy"];
    let can = can(expected, name, version, basis);
    let explained = standing["not_coded"].is_string() != as_expected;
    // A model that was not tested so far is hedged without a reason, and so are parity models for ever. A stand-in must
    // have the model's shape, and shapes change.
    let certain = !is_parity(name) && (expected["policy"] != "stand-in" || !can);
    let stands = match (as_expected, basis.settled && certain) {
        (true, settled) => explained && (can || !settled),
        (false, true) => policy == "hedge" && explained && !can,
        (false, false) => policy == "hedge",
    };
    let has_default = has_bundle(name, version, basis) && expected["default_answer"] == true;
    let codes = standing["coding"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let coded = matches!(policy, "parm" | "parm+");
    let fits = |code: &Value| code["parities"] == expected["coding"]["r"];
    let wanted = |code: &Value| code["k"] == expected["coding"]["k"];
    let codes_fit = coded == codes.iter().any(wanted) && codes.iter().all(fits) && coded != codes.is_empty();
    let each = [
        (stands, "policy"),
        (standing["batch"] == expected["batch"], "batch"),
        (standing["max_rows"] == most_rows(basis), "rows"),
        (standing["default_answer"] == has_default, "default answer"),
        (codes_fit, "coding"),
    ];
    each.into_iter().find_map(|(fits, what)| (!fits).then_some(what))
}

/// Batches are limited to the size that servers state.
fn most_rows(basis: &Basis<'_>) -> Value {
    if basis.setup.thrifty { MAX_BATCH.into() } else { u16::MAX.into() }
}

/// Whether a model can be served with the requested policy.
fn can(expected: &Value, name: &str, version: &str, basis: &Basis<'_>) -> bool {
    match expected["policy"].as_str().unwrap_or_default() {
        "parm" | "parm+" if expected["coding"]["code"] == "mds" => {
            let is_curved = basis.setup.curved && name == Model::Asked(0).name();
            !(has_bundle(name, version, basis) || is_curved)
        }
        "parm" | "parm+" => {
            let trained = |k: &u8| expected["coding"]["k"] == *k && expected["coding"]["r"] == 1;
            has_bundle(name, version, basis) && basis.sizes.iter().any(trained)
        }
        "approximate-backup" => expected["backup_model"] != name,
        "stand-in" => expected["stand_in"]["model"] != name,
        _ => true,
    }
}

fn is_parity(name: &str) -> bool {
    matches!(Model::named(name), Some(Model::Parity(_)))
}

fn has_bundle(name: &str, version: &str, basis: &Basis<'_>) -> bool {
    basis.setup.bundle && name == Model::Asked(0).name() && version == "1"
}
