//! Checks a running frontend with the frames of some seconds of its event stream.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parm_protocol::StableCode;
use serde_json::Value;

use super::Doctor;
use super::requests::{Recent, SECONDS};
use super::{Finding, Verdict, of_file};
use crate::admin::{Admin, Rejection};
use crate::stream::{State, Stream, list, text};

/// Largest difference of clocks in seconds; beyond it, ages and times on the page are wrong.
const CLOCKS_S: u64 = 5;

/// Longest time of the readings.
const PATIENCE: Duration = Duration::from_secs(2 * SECONDS);

pub(super) async fn look(flags: &Doctor) -> anyhow::Result<Vec<Finding>> {
    let admin = Admin::at(flags.what(), flags.key.clone(), &flags.identity)?;
    let mut stream = match Stream::open(&admin).await {
        Ok(stream) => stream,
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
    let mut read = 0;
    let reading = async {
        while read < SECONDS && stream.next().await? {
            read += 1;
        }
        anyhow::Ok(())
    };
    let is_late = match tokio::time::timeout(PATIENCE, reading).await {
        Ok(end) => end.map(|()| false)?,
        Err(_) => true,
    };
    let state = stream.state;
    Ok(match (read, is_late) {
        (0, true) => vec![Finding::fails(
            format!("the frontend sent no reading within {PATIENCE:?}"),
            "it or its machine may be overloaded: check its log",
        )],
        (0, false) => {
            vec![Finding::fails("the frontend ended the stream", "it may be shutting down: check its log")]
        }
        _ => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            findings(&state, now.as_millis() as u64)
        }
    })
}

fn findings(state: &State, now_ms: u64) -> Vec<Finding> {
    let version = text(&state.hello["version"]);
    let mut findings = vec![Finding::well(format!("admin API: parm {version} answers"))];
    findings.push(clock(state, now_ms));
    findings.extend(files(state));
    findings.extend(models(state));
    findings.extend(absent(state));
    findings.extend(instances(state));
    findings
}

fn clock(state: &State, now_ms: u64) -> Finding {
    let apart = state.now_ms().unwrap_or(now_ms).abs_diff(now_ms) / 1000;
    match apart {
        0..=CLOCKS_S => Finding::well("clock: equal to this machine's"),
        apart => Finding::worth(
            format!("clock: {apart} s different from this machine's"),
            "synchronize both with NTP: times in logs and on the page cannot be compared",
        ),
    }
}

/// The faults of the key file, the TLS files, the bundles and written files.
fn files(state: &State) -> Vec<Finding> {
    let faults = list(&state.hello["faults"]);
    if faults.is_empty() {
        return vec![Finding::well("keys and TLS files: no faults")];
    }
    let fails = |fault: &Value| fault["fails"] == true;
    faults.iter().map(|fault| of_file(text(&fault["code"]), text(&fault["text"]), fails(fault))).collect()
}

fn models(state: &State) -> Vec<Finding> {
    if state.models.is_empty() {
        let remedy = "name servers with --worker or --upstream, or models with --models, and check that workers have loaded models";
        return vec![Finding::fails("models: none served", remedy)];
    }
    merged(state.models.iter().flat_map(|model| model_faults(state, model)).collect())
}

/// The findings of a model. A note is the same for all models that it fits: an upstream server has a model per route.
fn model_faults(state: &State, model: &Value) -> Vec<Fault> {
    let label = state.title(model);
    let prefix = format!("model {label}: ");
    let fault = |finding: Finding| {
        let what = match finding.verdict {
            Verdict::Worth => finding.what.strip_prefix(&prefix).unwrap_or(&finding.what),
            Verdict::Well | Verdict::Fails => &finding.what,
        };
        Fault { label: label.clone(), kind: format!("{what}\n{}", finding.remedy), finding }
    };
    model_findings(state, model).into_iter().map(fault).collect()
}

fn model_findings(state: &State, model: &Value) -> Vec<Finding> {
    let (name, policy) = (state.title(model), text(&model["in_force"]));
    let own = state.frames.back().and_then(|frame| state.of_model(frame, &model["m"]));
    let usable = own.and_then(|own| own["queue"][3].as_u64()).unwrap_or_default();
    let serves = |instance: &&Value| list(&instance["models"]).contains(&model["m"]);
    let all = state.instances.values().filter(serves).count();
    let is_upstream =
        state.instances.values().filter(serves).any(|one| text(&one["address"]).starts_with("upstream+"));
    let recent = Recent::of(state, &model["m"]);
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
        // An operator's own routes are sent once by choice.
        _ if recent.all > 0 && matches!(text(&model["name"]), "other" | "grpc-other") && policy == "once" => {
            Finding::worth(
                format!(
                    "model {name}: its requests are sent once, so those at a server that hangs or dies fail"
                ),
                match text(&model["name"]) {
                    "other" => "declare paths that may run twice with --repeatable",
                    _ => "declare calls that may run twice as a route in frontend.upstreams.routes",
                },
            )
        }
        1 if !matches!(policy, "none" | "once") => Finding::worth(
            format!("model {name}: one instance"),
            format!(
                "redundancy needs a second one: add a {}, or set policy none",
                if is_upstream { "server with --upstream" } else { "worker" }
            ),
        ),
        usable => Finding::well(format!("model {name}: {usable} instances, policy {policy}")),
    }];
    // Without an instance every request fails, which was said already.
    let is_new =
        |error: &&str| usable > 0 || is_about_a_key(error) || text(&model["failing_reason"]) != "unavailable";
    if let Some(error) = model["failing"].as_str().filter(is_new) {
        let remedy = failing_remedy(error, text(&model["failing_reason"]));
        findings.push(if recent.is_well() {
            Finding::worth(format!("model {name}: requests failed some seconds ago: {error}"), remedy)
        } else {
            Finding::fails(format!("model {name}: requests fail: {error}"), remedy)
        });
    }
    findings.extend(recent.finding(&name).filter(|_| usable > 0));
    if let Some(problem) = model["problem"].as_str() {
        let wished = text(&model["policy"]);
        findings.push(Finding::worth(
            format!("model {name}: policy {wished} is configured, but {policy} runs: {problem}"),
            match wished {
                "stand-in" => "make a stand-in with parm stand-in, or configure the policy that runs",
                "approximate-backup" => "correct backup_model, or configure the policy that runs",
                _ => "make a bundle with parm train, or configure the policy that runs",
            },
        ));
    }
    let is_served = |stand_in: &&str| state.models.iter().any(|model| model["name"] == **stand_in);
    if let Some(stand_in) = model["stand_in"].as_str().filter(|stand_in| !is_served(stand_in)) {
        findings.push(Finding::fails(
            format!("model {name}: no instance serves its stand-in '{stand_in}'"),
            "load it on the workers, or correct stand_in.model or --stand-in",
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
        "internal" if error.starts_with("it answered ") => {
            "see the servers' logs: parm_instance_failures_total tells which of them fail"
        }
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
    let all_named = state.instances.values().all(|one| one["node"].is_string());
    if nodes.len() == 1 && all_named && state.instances.len() > 1 {
        let node = nodes.into_iter().next().unwrap_or_default();
        findings.push(Finding::worth(
            format!("nodes: all instances run on {node}"),
            "one slow node makes all of them slow: spread them over nodes",
        ));
    }
    findings
}

/// The fault of an instance or a model.
struct Fault {
    /// The number of the instance, or the name of the model.
    label: String,
    /// The same for all with the same fault.
    kind: String,
    finding: Finding,
}

/// The findings, with one for all instances, or models, that have the same fault.
fn merged(faults: Vec<Fault>) -> Vec<Finding> {
    let mut merged: Vec<(String, Finding, Vec<String>)> = Vec::new();
    for Fault { label, kind, finding } in faults {
        match merged.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., others)) => others.push(label),
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
    let cause = if problem.is_empty() { String::new() } else { format!(": {problem}") };
    let what = format!("instance {number} ({address})");
    let figure = |column: &str| row[place(column)].as_f64().unwrap_or_default();
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
            format!("{what} is ejected (outlier ejection): {why}{cause} [{}]", StableCode::InstanceEjected),
            if address.starts_with("embedded:") {
                "it returns once it answers; if it is ejected again, check the frontend's machine"
            } else {
                "it returns once it answers; if it is ejected again, restart it and check its machine"
            },
        ),
        (_, "") => return None,
        (_, why @ ("slow" | "silent")) => {
            let slowness = figure("slowness").max(figure("slower"));
            let how = if why == "slow" {
                format!(": its jobs take {slowness:.1} times as long as usual")
            } else {
                String::new()
            };
            let remedy = if address.starts_with("embedded:") {
                "check whether other programs use the processors of the frontend's machine"
            } else {
                "restart it, and see its log; if other instances on its machine are slow too, move them all"
            };
            Finding::fails(format!("{what} is {why}{how}"), remedy)
        }
        (_, why) => Finding::fails(format!("{what} is {why}{cause}"), "check its log"),
    };
    let authority = address.split_once("://").map_or(address, |(_, authority)| authority);
    let kind = [&finding.what, &finding.remedy].map(|text| anonymous(text, authority, number)).join("\n");
    Some(Fault { label: number.to_string(), kind, finding })
}

/// A text without the address and the number of its instance.
fn anonymous(text: &str, authority: &str, number: u64) -> String {
    let number = number.to_string();
    let words = text.split(' ').map(|word| if word == number { "" } else { word });
    let text = words.collect::<Vec<_>>().join(" ");
    if authority.is_empty() { text } else { text.replace(authority, "") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::told;

    const REASONS: [Option<&str>; 8] = [
        None,
        Some("slow"),
        Some("silent"),
        Some("failing"),
        Some("unreachable"),
        Some("flapping"),
        Some("wrong"),
        Some("order"),
    ];

    /// The findings about these models and instances, each with its part of the latest frame. Rows of instances have number, state,
    /// reason and slowness.
    fn said([models, instances]: [Value; 2], [own, rows]: [Value; 2]) -> String {
        let mut state = State::default();
        for line in [
            json!({"hello": {"version": "0.1.0", "reasons": REASONS,
                "columns": ["number", "state", "reason", "slowness"],
                "states": ["connecting", "ready", "draining", "ejected", "refused"],
                "rejections": ["queue_full", "overload", "no_instance", "bad_query", "deadline", "failed"]}}),
            json!({"models": models}),
            json!({"instances": instances}),
            json!({"frame": {"at": 100_000, "models": own, "instances": rows}}),
        ] {
            state.take(&line);
        }
        told(&findings(&state, 160_000))
    }

    /// The findings about models without instances.
    fn of_models(models: Value, own: Value) -> String {
        said([models, json!([])], [own, json!([])])
    }

    #[test]
    fn outage_is_told_in_one_line_for_all_instances() {
        let refused = |number: u64| {
            json!({"number": number, "address": format!("http://w:{number}"), "models": [],
                "problem": format!("w:{number}: connection refused")})
        };
        let model = json!([{"m": 0, "name": "a", "policy": "hedge", "in_force": "hedge",
            "failing": "no instance can serve it", "failing_reason": "unavailable"}]);
        let rows = json!([[1, 0, 0, null], [2, 0, 0, null], [3, 0, 0, null]]);
        let own = json!([{"m": 0, "queue": [0, 0, 0, 0, 0, 0]}]);
        let said = said([model, json!([refused(1), refused(2), refused(3)])], [own, rows]);
        assert_eq!(said.matches("FAIL").count(), 2, "{said}");
        assert!(said.contains("FAIL model a: no instance is available"), "{said}");
        assert!(said.contains("FAIL instance 1 (http://w:1) is not connected"), "{said}");
        assert!(said.contains("[PARM-0020]; the same: 2, 3\n"), "{said}");
    }

    #[test]
    fn faults_of_keys_and_certificates_are_reported_with_codes() {
        let said = |faults: Value| {
            let mut state = State::default();
            state.take(&json!({"hello": {"version": "0.1.0", "faults": faults}}));
            told(&findings(&state, 0))
        };
        let fault = |code: &str, fails: bool| json!({"code": code, "text": "it is bad", "fails": fails});
        let all =
            said(json!([fault("PARM-0010", true), fault("PARM-0011", true), fault("PARM-0012", false)]));
        for line in [
            "FAIL files: it is bad [PARM-0010]\n       correct the file",
            "FAIL files: it is bad [PARM-0011]\n       replace certificate and key together",
            "note files: it is bad [PARM-0012]\n       issue a new certificate",
        ] {
            assert!(all.contains(line), "{line:?} is missing in\n{all}");
        }
        assert!(said(json!([])).contains("ok   keys and TLS files: no faults\n"));
    }

    #[test]
    fn advice_fits_the_policy() {
        for (policy, all, advice) in [
            ("parm", 2, "policy parm keeps instances for its redundant jobs: set policy parm+"),
            ("hedge", 2, "see the instances below"),
            ("parm", 1, "redundancy needs a second one: add a worker"),
        ] {
            let own = |number: u64| json!({"number": number, "address": "http://w:1", "models": [0]});
            let instances = json!((1..=all).map(own).collect::<Vec<_>>());
            let model = json!([{"m": 0, "name": "a", "policy": policy, "in_force": policy}]);
            let said = said([model, instances], [json!([{"m": 0, "queue": [0, 0, 0, 1, 1, 1]}]), json!([])]);
            assert!(said.contains(advice), "{policy} {all}: {said}");
        }
        for (policy, advice) in [
            ("parm+", "make a bundle with parm train, or configure"),
            ("stand-in", "make a stand-in with parm stand-in, or configure"),
            ("approximate-backup", "correct backup_model"),
        ] {
            let model =
                json!([{"m": 0, "name": "a", "policy": policy, "in_force": "hedge", "problem": "no"}]);
            let said = of_models(model, json!([{"m": 0, "queue": [0, 0, 0, 2, 2, 2]}]));
            assert!(said.contains(advice), "{policy}: {said}");
        }
    }

    #[test]
    fn past_failure_is_a_note_while_requests_are_answered() {
        let said = |rejections: [u64; 6]| {
            let model = json!([{"m": 0, "name": "a", "policy": "none", "in_force": "none",
                "failing": "it ran out", "failing_reason": "internal"}]);
            let own = json!([{"m": 0, "queue": [0, 0, 0, 1, 1, 1], "latency": [[100, 50]],
                "rejections": rejections}]);
            of_models(model, own)
        };
        let past = said([0; 6]);
        assert!(past.contains("note model a: requests failed some seconds ago: it ran out"), "{past}");
        let now = said([0, 0, 0, 0, 0, 9]);
        assert!(now.contains("FAIL model a: requests fail: it ran out"), "{now}");
    }

    #[test]
    fn advice_for_embedded_instances_does_not_say_restart() {
        let instances =
            json!([{"number": 1, "address": "embedded:1"}, {"number": 2, "address": "embedded:2"}]);
        let said = said([json!([]), instances], [json!([]), json!([[1, 1, 1, 3.1], [2, 3, 1, 3.1]])]);
        assert!(
            said.contains("instance 1 (embedded:1) is slow: its jobs take 3.1 times as long as usual"),
            "{said}"
        );
        assert!(said.contains("instance 2 (embedded:2) is ejected"), "{said}");
        assert_eq!(said.matches("frontend's machine").count(), 2, "{said}");
        assert!(!said.contains("restart"), "it is a thread of the frontend: {said}");
    }

    #[test]
    fn each_fault_is_reported_with_its_remedy() {
        let models = json!([
            {"m": 0, "name": "a", "policy": "parm+", "in_force": "hedge", "problem": "no bundle"},
            {"m": 1, "name": "b", "policy": "hedge", "in_force": "hedge", "problem": null,
             "failing": "every attempt failed: it ran out", "failing_reason": "internal"},
            {"m": 2, "name": "d", "version": "1", "policy": "none", "in_force": "none", "problem": null,
             "failing": "no instance can serve it", "failing_reason": "unavailable"},
            {"m": 3, "name": "d", "version": "2", "policy": "none", "in_force": "none", "problem": null,
             "failing": "every attempt failed: the key is unknown", "failing_reason": "unavailable"}]);
        let instances = json!([
            {"number": 1, "address": "http://w:1", "node": "n",
             "absent": [["c", "cannot load it"], ["e", "no operator: engine 'ort' may run it"]]},
            {"number": 2, "address": "http://w:2", "node": "n"},
            {"number": 3, "address": "http://w:3", "node": "n", "problem": "refused"},
            {"number": 4, "address": "http://w:4", "node": "n", "problem": "a key is required"},
            {"number": 5, "address": "http://w:5", "node": "n"},
            {"number": 6, "address": "http://w:6", "node": "n", "problem": "out of memory"}]);
        let own = json!([{"m": 0, "queue": [0, 0, 0, 2, 2, 2], "withheld": true},
            {"m": 1, "queue": [0, 0, 0, 0, 2, 0]}]);
        let rows = json!([
            [1, 1, 0, 1.0],
            [2, 1, 1, 3.1],
            [3, 0, 0, null],
            [4, 0, 0, null],
            [5, 1, 2, 1.0],
            [6, 3, 3, 1.0]
        ]);
        let said = said([models, instances], [own, rows]);
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
            "ok   instances: 1 of 6 are healthy\n",
            "FAIL instance 4 (http://w:4) is not connected: a key is required [PARM-0020]\n       set frontend.client.token",
            "FAIL instance 2 (http://w:2) is slow: its jobs take 3.1 times as long as usual\n       restart it",
            "FAIL instance 5 (http://w:5) is silent\n       restart it",
            "FAIL instance 6 (http://w:6) is ejected (outlier ejection): failing: out of memory [PARM-0022]\n       it returns once it answers",
            "FAIL instance 3 (http://w:3) is not connected: refused [PARM-0020]\n       start it",
            "note nodes: all instances run on n\n       one slow node",
        ] {
            assert!(said.contains(line), "{line:?} is missing in\n{said}");
        }
    }

    #[test]
    fn failing_upstream_servers_are_not_advised_another_engine() {
        let model = json!([{"m": 0, "name": "other", "policy": "once", "in_force": "once",
            "failing": "it answered 500 Internal Server Error", "failing_reason": "internal"}]);
        let instances = json!([{"number": 1, "address": "http://s:1", "models": [0], "node": "c"},
            {"number": 2, "address": "http://s:2", "models": [0]}]);
        let own = json!([{"m": 0, "queue": [0, 0, 0, 2, 2, 2], "latency": [[100, 50]],
            "rejections": [0, 0, 0, 0, 0, 9]}]);
        let said = said([model, instances], [own, json!([[1, 1, 0, 1.0], [2, 1, 0, 1.0]])]);
        assert!(said.contains("parm_instance_failures_total"), "{said}");
        assert!(
            said.contains("note model other: its requests are sent once") && said.contains("--repeatable"),
            "{said}"
        );
        assert!(!said.contains("another engine") && !said.contains("see the instances below"), "{said}");
        assert!(!said.contains("note nodes"), "the node of one is unknown: {said}");
    }
}
