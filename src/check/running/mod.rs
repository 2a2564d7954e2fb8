//! Checks a running frontend with the first frame of its event stream.

use std::time::{SystemTime, UNIX_EPOCH};

use parm_protocol::StableCode;
use serde_json::Value;

use super::Finding;
use crate::admin::{Admin, Rejection};
use crate::cli::admin::{Check, Reach};
use crate::top::{State, list};

/// Largest difference of clocks in seconds; beyond it, ages and times on the page are wrong.
const CLOCKS_S: u64 = 5;

/// An instance that takes this many times as long as usual is slow.
const SLOW: f64 = 2.0;

pub(super) async fn look(flags: &Check) -> anyhow::Result<Vec<Finding>> {
    let reach = Reach { url: flags.what.clone(), key: flags.key.clone(), identity: flags.identity.clone() };
    let admin = match Admin::of(&reach) {
        Ok(admin) => admin,
        Err(failure) => return Err(failure.into_error()),
    };
    let mut lines = match admin.lines("/admin/v1/stream").await {
        Ok(lines) => lines,
        Err(error) => {
            let what = format!("admin API: {error:#}");
            let remedy = match error.downcast_ref::<Rejection>().map(|rejection| rejection.status.as_u16()) {
                Some(401) => "this needs a key of the role read",
                // The message says the same.
                Some(403) => "",
                Some(404) => "name the address of --admin",
                _ => "check the address, and the log of the frontend",
            };
            return Ok(vec![Finding::fails(what, remedy)]);
        }
    };
    let mut state = State::default();
    while let Some(lines) = lines.next().await? {
        let told: Vec<bool> = lines.iter().map(|line| state.take(line)).collect();
        if told.contains(&true) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return Ok(findings(&state, now.as_millis() as u64));
        }
    }
    Ok(vec![Finding::fails("the frontend ended the stream", "it may be shutting down: check its log")])
}

fn findings(state: &State, now_ms: u64) -> Vec<Finding> {
    let version = text(&state.hello["version"]);
    let mut findings = vec![Finding::well(format!("admin API: parm {version} answers"))];
    findings.push(clock(state, now_ms));
    findings.extend(models(state));
    findings.extend(absent(state));
    findings.extend(instances(state));
    findings
}

fn clock(state: &State, now_ms: u64) -> Finding {
    let apart = state.hello["at"].as_u64().unwrap_or(now_ms).abs_diff(now_ms) / 1000;
    match apart {
        0..=CLOCKS_S => Finding::well("clock: equal to this machine's"),
        apart => Finding::worth(
            format!("clock: {apart} s different from this machine's"),
            "synchronize both with NTP: times in logs and on the page cannot be compared",
        ),
    }
}

fn models(state: &State) -> Vec<Finding> {
    if state.models.is_empty() {
        let remedy =
            "name workers with --worker or models with --models, and check that workers have loaded models";
        return vec![Finding::fails("models: none served", remedy)];
    }
    state.models.iter().flat_map(|model| model_findings(state, model)).collect()
}

fn model_findings(state: &State, model: &Value) -> Vec<Finding> {
    let (name, policy) = (state.title(model), text(&model["in_force"]));
    let own = state.frames.back().and_then(|frame| state.of_model(frame, &model["m"]));
    let usable = own.and_then(|own| own["queue"][3].as_u64()).unwrap_or_default();
    let serves = |instance: &&Value| list(&instance["models"]).contains(&model["m"]);
    let all = state.instances.values().filter(serves).count();
    let mut findings = vec![match usable {
        0 => Finding::fails(
            format!("model {name}: no instance is available"),
            "see the instances below; every request fails",
        ),
        // These policies run queries at only a part of the instances.
        1 if all > 1 && matches!(policy, "parm" | "approximate-backup") => Finding::worth(
            format!("model {name}: one of {all} instances runs queries, policy {policy}"),
            format!(
                "policy {policy} keeps instances for its redundant jobs: set policy parm+ or hedge, or add workers"
            ),
        ),
        1 if all > 1 => Finding::worth(
            format!("model {name}: one of {all} instances is available, policy {policy}"),
            "see the instances below; redundancy needs a second one",
        ),
        1 if policy != "none" => Finding::worth(
            format!("model {name}: one instance"),
            "redundancy needs a second one: add a worker, or set policy none",
        ),
        usable => Finding::well(format!("model {name}: {usable} instances, policy {policy}")),
    }];
    // Without an instance every request fails, which was said already.
    let is_new =
        |error: &&str| usable > 0 || is_about_a_key(error) || text(&model["failing_reason"]) != "unavailable";
    if let Some(error) = model["failing"].as_str().filter(is_new) {
        findings.push(Finding::fails(
            format!("model {name}: requests fail: {error}"),
            failing_remedy(error, text(&model["failing_reason"])),
        ));
    }
    if let Some(problem) = model["problem"].as_str() {
        findings.push(Finding::worth(
            format!(
                "model {name}: policy {} is configured, but {policy} runs: {problem}",
                text(&model["policy"])
            ),
            "make a bundle with parm train or parm stand-in, or configure the policy that runs",
        ));
    }
    if own.is_some_and(|own| own["outage"] == true) {
        findings.push(Finding::fails(
            format!("model {name}: no instance with the model answers, and its stand-in does"),
            "see the instances below: restart them, or their network",
        ));
    }
    if own.is_some_and(|own| own["withheld"] == true) {
        findings.push(Finding::fails(
            format!("model {name}: its stand-in's answers are withheld: too few agree with predictions"),
            "train the stand-in on recent queries, or lower stand_in.agreement.floor",
        ));
    }
    findings
}

/// The remedy of failing requests, by their last error and its class.
fn failing_remedy(error: &str, reason: &str) -> &'static str {
    match reason {
        _ if is_about_a_key(error) => KEY,
        "internal" => "try the model with another engine, and see the log of its instances",
        _ => "see the instances below, and the log of the frontend",
    }
}

/// The remedy of instances that reject the frontend's key.
const KEY: &str = "set frontend.client.token to one of the instances' keys that has the role infer";

/// Whether a server's error is about the key that it received. The text is all that the stream has.
fn is_about_a_key(problem: &str) -> bool {
    ["a key is required", "the key is unknown", "has the role", "answered 401", "answered 403"]
        .iter()
        .any(|part| problem.contains(part))
}

/// Models that instances have and do not serve.
fn absent(state: &State) -> Vec<Finding> {
    let models = state.instances.values().flat_map(|instance| list(&instance["absent"]));
    let mut known = std::collections::BTreeMap::<String, (usize, String)>::new();
    for model in models {
        let (name, reason) = (text(&model[0]).to_owned(), text(&model[1]).to_owned());
        known.entry(name).or_insert((0, reason)).0 += 1;
    }
    let finding = |(name, (count, reason)): (String, (usize, String))| {
        let what = format!("model {name}: not loaded on {count} instances: {reason}");
        let remedy = if reason.contains("engine 'ort' may run it") {
            "install ONNX Runtime on these instances (pip install onnxruntime) and restart them, or remove the model"
        } else {
            "correct its file, or remove it from the model repository"
        };
        // An operator unloaded it on purpose.
        if reason.contains("by request") {
            Finding::worth(what, remedy)
        } else {
            Finding::fails(what, remedy)
        }
    };
    known.into_iter().map(finding).collect()
}

fn instances(state: &State) -> Vec<Finding> {
    let columns = list(&state.hello["columns"]);
    let place = |name: &str| columns.iter().position(|known| known == name).unwrap_or(usize::MAX);
    let rows = state.frames.back().map(|frame| list(&frame["instances"])).unwrap_or_default();
    let faults: Vec<Fault> = rows.iter().filter_map(|row| instance(state, row, &place)).collect();
    let well = rows.len() - faults.len();
    let mut findings = merged(faults);
    if well > 0 {
        findings.insert(0, Finding::well(format!("instances: {well} of {} are healthy", rows.len())));
    }
    let named = |one: &Value| one["node"].as_str().map(str::to_owned);
    let nodes: std::collections::BTreeSet<_> = state.instances.values().filter_map(named).collect();
    if nodes.len() == 1 && state.instances.len() > 1 {
        let node = nodes.into_iter().next().unwrap_or_default();
        findings.push(Finding::worth(
            format!("nodes: all instances run on {node}"),
            "one slow node makes all of them slow: spread them over nodes",
        ));
    }
    findings
}

/// The fault of an instance.
struct Fault {
    number: u64,
    /// The same for all instances with the same fault.
    kind: String,
    finding: Finding,
}

/// The findings, with one for all instances that have the same fault.
fn merged(faults: Vec<Fault>) -> Vec<Finding> {
    let mut merged: Vec<(String, Finding, Vec<String>)> = Vec::new();
    for Fault { number, kind, finding } in faults {
        match merged.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., others)) => others.push(number.to_string()),
            None => merged.push((kind, finding, Vec::new())),
        }
    }
    let finding = |(_, mut finding, others): (String, Finding, Vec<String>)| {
        if !others.is_empty() {
            finding.what = format!("{}; the same: {}", finding.what, others.join(", "));
        }
        finding
    };
    merged.into_iter().map(finding).collect()
}

/// Returns the fault of an instance, if it has one.
fn instance(state: &State, row: &Value, place: &impl Fn(&str) -> usize) -> Option<Fault> {
    let number = row[place("number")].as_u64()?;
    let name = state.instances.get(&number);
    let address = name.map_or("", |name| text(&name["address"]));
    let word = |list: &str, column: &str| {
        let at = row[place(column)].as_u64().unwrap_or_default() as usize;
        text(&state.hello[list][at]).to_owned()
    };
    let (stands, reason) = (word("states", "state"), word("reasons", "reason"));
    let problem = name.and_then(|name| name["problem"].as_str()).unwrap_or_default();
    let what = format!("instance {number} ({address})");
    let slowness = row[place("slowness")].as_f64().unwrap_or_default();
    let finding = match (stands.as_str(), reason.as_str()) {
        ("connecting", _) => Finding::fails(
            format!("{what} is not connected: {problem} [{}]", StableCode::Unreachable),
            if is_about_a_key(problem) {
                KEY.to_owned()
            } else {
                format!("start it, correct its address, or remove it with parm ctl remove {number}")
            },
        ),
        ("refused", _) => Finding::fails(
            format!("{what} is refused: {problem} [{}]", StableCode::InstanceRejected),
            if problem.starts_with("it ") {
                format!("load a model on it, or remove it with parm ctl remove {number}")
            } else {
                "serve the same models everywhere".into()
            },
        ),
        ("draining", _) => Finding::worth(
            format!("{what} is draining"),
            format!("return it to service with parm ctl return {number}"),
        ),
        ("ejected", "order") => Finding::worth(
            format!("{what} was ejected by an operator"),
            format!("return it to service with parm ctl return {number}"),
        ),
        ("ejected", why) => Finding::fails(
            format!("{what} is ejected (outlier ejection): {why} [{}]", StableCode::InstanceEjected),
            "it returns after a successful probe; if it is ejected again, restart it and check its machine",
        ),
        (_, "") if slowness >= SLOW => Finding::fails(
            format!("{what} takes {slowness:.1} times as long as usual"),
            "restart it; if other instances on its machine are slow too, move them all",
        ),
        (_, "") => return None,
        (_, why) => Finding::fails(format!("{what} is out of service for a model: {why}"), "check its log"),
    };
    let authority = address.split_once("://").map_or(address, |(_, authority)| authority);
    let kind = [&finding.what, &finding.remedy].map(|text| anonymous(text, authority, number)).join("\n");
    Some(Fault { number, kind, finding })
}

/// A text without the address and the number of its instance.
fn anonymous(text: &str, authority: &str, number: u64) -> String {
    let number = number.to_string();
    let words = text.split(' ').map(|word| if word == number { "" } else { word });
    let text = words.collect::<Vec<_>>().join(" ");
    if authority.is_empty() { text } else { text.replace(authority, "") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::told;
    use super::*;

    fn lines(all: &[Value]) -> String {
        let mut state = State::default();
        for line in all {
            state.take(line);
        }
        told(&findings(&state, 0))
    }

    #[test]
    fn outage_is_told_in_one_line_for_all_instances() {
        let refused = |number: u64| {
            json!({"number": number, "address": format!("http://w:{number}"), "models": [],
                "problem": format!("w:{number}: connection refused")})
        };
        let said = lines(&[
            json!({"hello": {"version": "0.1.0", "at": 0, "columns": ["number", "state", "reason", "slowness"],
                "states": ["connecting", "ready"], "reasons": [null]}}),
            json!({"models": [{"m": 0, "name": "a", "policy": "hedge", "in_force": "hedge",
                "failing": "no instance can serve it", "failing_reason": "unavailable"}]}),
            json!({"instances": [refused(1), refused(2), refused(3)]}),
            json!({"frame": {"models": [{"m": 0, "queue": [0, 0, 0, 0, 0, 0]}],
                "instances": [[1, 0, 0, null], [2, 0, 0, null], [3, 0, 0, null]]}}),
        ]);
        assert_eq!(said.matches("FAIL").count(), 2, "{said}");
        assert!(said.contains("FAIL model a: no instance is available"), "{said}");
        assert!(said.contains("FAIL instance 1 (http://w:1) is not connected"), "{said}");
        assert!(said.contains("[PARM-0020]; the same: 2, 3\n"), "{said}");
    }

    #[test]
    fn advice_names_the_policy_that_keeps_an_instance() {
        for (policy, kept, advice) in [
            ("parm", true, "policy parm keeps instances for its redundant jobs: set policy parm+"),
            ("hedge", true, "see the instances below"),
            ("parm", false, "redundancy needs a second one: add a worker"),
        ] {
            let own = |number: u64| json!({"number": number, "address": "http://w:1", "models": [0]});
            let all: Vec<_> = (1..=if kept { 2 } else { 1 }).map(own).collect();
            let said = lines(&[
                json!({"hello": {"version": "0.1.0", "at": 0}}),
                json!({"models": [{"m": 0, "name": "a", "policy": policy, "in_force": policy}]}),
                json!({"instances": all}),
                json!({"frame": {"models": [{"m": 0, "queue": [0, 0, 0, 1, 1, 1]}], "instances": []}}),
            ]);
            assert!(said.contains(advice), "{policy} {kept}: {said}");
        }
    }

    #[test]
    fn each_fault_is_reported_with_its_remedy() {
        let mut state = State::default();
        for line in [
            json!({"hello": {"version": "0.1.0", "at": 100_000, "columns": ["number", "state", "reason", "slowness"],
                "states": ["connecting", "ready", "draining", "ejected", "refused"],
                "reasons": [null, "slow", "failing", "wrong", "order"]}}),
            json!({"models": [
                {"m": 0, "name": "a", "policy": "parm+", "in_force": "hedge", "problem": "no bundle"},
                {"m": 1, "name": "b", "policy": "hedge", "in_force": "hedge", "problem": null,
                 "failing": "every attempt failed: it ran out", "failing_reason": "internal"},
                {"m": 2, "name": "d", "version": "1", "policy": "none", "in_force": "none", "problem": null,
                 "failing": "no instance can serve it", "failing_reason": "unavailable"},
                {"m": 3, "name": "d", "version": "2", "policy": "none", "in_force": "none", "problem": null,
                 "failing": "every attempt failed: the key is unknown", "failing_reason": "unavailable"}]}),
            json!({"instances": [{"number": 1, "address": "http://w:1", "node": "n",
                "absent": [["c", "cannot load it"], ["e", "no operator: engine 'ort' may run it"]]}, {"number": 2, "address": "http://w:2",
                "node": "n"}, {"number": 3, "address": "http://w:3", "node": "n", "problem": "refused"},
                {"number": 4, "address": "http://w:4", "node": "n", "problem": "a key is required"}]}),
            json!({"frame": {"models": [{"m": 0, "queue": [0, 0, 0, 2, 2, 2], "withheld": true},
                {"m": 1, "queue": [0, 0, 0, 0, 2, 0]}],
                "instances": [[1, 1, 0, 1.0], [2, 1, 0, 3.1], [3, 0, 0, null], [4, 0, 0, null]]}}),
        ] {
            state.take(&line);
        }
        let findings = findings(&state, 160_000);
        let said = told(&findings);
        for line in [
            "ok   admin API: parm 0.1.0 answers\n",
            "note clock: 60 s different from this machine's\n       synchronize both with NTP",
            "ok   model a: 2 instances, policy hedge\n",
            "note model a: policy parm+ is configured, but hedge runs: no bundle\n       make a bundle",
            "FAIL model a: its stand-in's answers are withheld",
            "FAIL model b: requests fail: every attempt failed: it ran out\n       try the model with another engine",
            "FAIL model d/2: requests fail: every attempt failed: the key is unknown\n       set frontend.client.token",
            "FAIL model c: not loaded on 1 instances: cannot load it\n       correct its file",
            "FAIL model e: not loaded on 1 instances: no operator: engine 'ort' may run it\n       install ONNX Runtime",
            "FAIL model b: no instance is available\n       see the instances",
            "ok   instances: 1 of 4 are healthy\n",
            "FAIL instance 4 (http://w:4) is not connected: a key is required [PARM-0020]\n       set frontend.client.token",
            "FAIL instance 2 (http://w:2) takes 3.1 times as long as usual\n       restart it",
            "FAIL instance 3 (http://w:3) is not connected: refused [PARM-0020]\n       start it",
            "note nodes: all instances run on n\n       one slow node",
        ] {
            assert!(said.contains(line), "{line:?} is missing in\n{said}");
        }
    }
}
