//! Findings from lines of the event stream.

use serde_json::json;

use super::*;
use crate::doctor::told;

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
fn faults_of_keys_and_certificates_are_reported_with_codes() {
    let said = |faults: Value| {
        lines(&[
            json!({"hello": {"version": "0.1.0", "at": 0, "faults": faults}}),
            json!({"frame": {"models": [], "instances": []}}),
        ])
    };
    let fault = |code: &str, fails: bool| json!({"code": code, "text": "it is bad", "fails": fails});
    let all = said(json!([fault("PARM-0010", true), fault("PARM-0011", true), fault("PARM-0012", false)]));
    for line in [
        "FAIL files: it is bad [PARM-0010]\n       correct the file",
        "FAIL files: it is bad [PARM-0011]\n       replace certificate and key together",
        "note files: it is bad [PARM-0012]\n       issue a new certificate",
    ] {
        assert!(all.contains(line), "{line:?} is missing in\n{all}");
    }
    assert!(said(json!([])).contains("ok   keys and TLS files: no faults\n"));
    let older = said(Value::Null);
    assert!(!older.contains("files"), "{older}");
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
fn note_of_several_models_is_reported_once() {
    let model =
        |m: u64| json!({"m": m, "name": format!("route-{m}"), "policy": "hedge", "in_force": "hedge"});
    let own = |m: u64| json!({"m": m, "queue": [0, 0, 0, 1, 1, 1]});
    let said = lines(&[
        json!({"hello": {"version": "0.1.0", "at": 0}}),
        json!({"models": (0..14).map(model).collect::<Vec<_>>()}),
        json!({"instances": [{"number": 1, "address": "http://w:1", "models": (0..14).collect::<Vec<_>>()}]}),
        json!({"frame": {"models": (0..14).map(own).collect::<Vec<_>>(), "instances": []}}),
    ]);
    assert_eq!(said.matches("redundancy needs a second one").count(), 1, "{said}");
    assert!(said.contains("note model route-0: one instance; the same: route-1, route-2, "), "{said}");
    assert!(said.contains(", route-13\n"), "{said}");
}

#[test]
fn stand_in_that_no_instance_serves_fails() {
    let said = |others: &[&str]| {
        let own =
            json!({"m": 0, "name": "a", "policy": "stand-in", "in_force": "stand-in", "stand_in": "small"});
        let others = others.iter().map(|name| json!({"m": 1, "name": name, "in_force": "hedge"}));
        lines(&[
            json!({"hello": {"version": "0.1.0", "at": 0}}),
            json!({"models": std::iter::once(own).chain(others).collect::<Vec<_>>()}),
            json!({"frame": {"models": [{"m": 0, "queue": [0, 0, 0, 2, 2, 2]}], "instances": []}}),
        ])
    };
    assert!(said(&["other"]).contains("FAIL model a: no instance serves its stand-in 'small'"));
    assert!(!said(&["small"]).contains("its stand-in"), "{}", said(&["small"]));
}

#[test]
fn past_failure_is_a_note_while_requests_are_answered() {
    let said = |rejections: [u64; 6]| {
        lines(&[
            json!({"hello": {"version": "0.1.0", "at": 0, "rejections":
                ["queue_full", "overload", "no_instance", "bad_query", "deadline", "failed"]}}),
            json!({"models": [{"m": 0, "name": "a", "policy": "none", "in_force": "none",
                "failing": "it ran out", "failing_reason": "internal"}]}),
            json!({"frame": {"at": 1000, "models": [{"m": 0, "queue": [0, 0, 0, 1, 1, 1],
                "latency": [[100, 50]], "rejections": rejections}], "instances": []}}),
        ])
    };
    let past = said([0; 6]);
    assert!(past.contains("note model a: requests failed some seconds ago: it ran out"), "{past}");
    let now = said([0, 0, 0, 0, 0, 9]);
    assert!(now.contains("FAIL model a: requests fail: it ran out"), "{now}");
}

#[test]
fn advice_for_a_policy_names_the_tool_that_helps_it() {
    for (policy, advice) in [
        ("parm", "make a bundle with parm train, or configure"),
        ("parm+", "make a bundle with parm train, or configure"),
        ("stand-in", "make a stand-in with parm stand-in, or configure"),
        ("approximate-backup", "correct backup_model"),
    ] {
        let said = lines(&[
            json!({"hello": {"version": "0.1.0", "at": 0}}),
            json!({"models": [{"m": 0, "name": "a", "policy": policy, "in_force": "hedge", "problem": "no"}]}),
            json!({"frame": {"models": [{"m": 0, "queue": [0, 0, 0, 2, 2, 2]}], "instances": []}}),
        ]);
        assert!(said.contains(advice), "{policy}: {said}");
    }
}

#[test]
fn advice_for_embedded_instances_does_not_say_restart() {
    let said = lines(&[
        json!({"hello": {"version": "0.1.0", "at": 0, "columns": ["number", "state", "reason", "slowness"],
            "states": ["ready", "ejected"], "reasons": [null, "slow"]}}),
        json!({"instances": [{"number": 1, "address": "embedded:1"}, {"number": 2, "address": "embedded:2"}]}),
        json!({"frame": {"models": [], "instances": [[1, 0, 1, 3.1], [2, 1, 1, 3.1]]}}),
    ]);
    assert!(said.contains("instance 1 (embedded:1) takes 3.1 times as long as usual"), "{said}");
    assert!(said.contains("instance 2 (embedded:2) is ejected"), "{said}");
    assert_eq!(said.matches("frontend's machine").count(), 2, "{said}");
    assert!(!said.contains("restart"), "it is a thread of the frontend: {said}");
}

#[test]
fn each_fault_is_reported_with_its_remedy() {
    let mut state = State::default();
    for line in [
        json!({"hello": {"version": "0.1.0", "at": 100_000,
            "columns": ["number", "state", "reason", "slowness", "oldest_ms"],
            "states": ["connecting", "ready", "draining", "ejected", "refused"],
            "reasons": [null, "slow", "silent", "failing", "unreachable", "flapping", "wrong", "order"]}}),
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
            {"number": 4, "address": "http://w:4", "node": "n", "problem": "a key is required"},
            {"number": 5, "address": "http://w:5", "node": "n"}, {"number": 6, "address": "http://w:6", "node": "n", "problem": "out of memory"}]}),
        json!({"frame": {"models": [{"m": 0, "queue": [0, 0, 0, 2, 2, 2], "withheld": true},
            {"m": 1, "queue": [0, 0, 0, 0, 2, 0]}],
            "instances": [[1, 1, 0, 1.0, null], [2, 1, 1, 3.1, null], [3, 0, 0, null, null], [4, 0, 0, null, null],
                          [5, 1, 2, 1.0, 2340], [6, 3, 3, 1.0, null]]}}),
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
        "ok   instances: 1 of 6 are healthy\n",
        "FAIL instance 4 (http://w:4) is not connected: a key is required [PARM-0020]\n       set frontend.client.token",
        "FAIL instance 2 (http://w:2) takes 3.1 times as long as usual\n       restart it",
        "FAIL instance 5 (http://w:5) holds a job for 2.3 s and answers nothing\n       restart it",
        "FAIL instance 6 (http://w:6) is ejected (outlier ejection): failing: out of memory [PARM-0022]\n       it returns once it answers",
        "FAIL instance 3 (http://w:3) is not connected: refused [PARM-0020]\n       start it",
        "note nodes: all instances run on n\n       one slow node",
    ] {
        assert!(said.contains(line), "{line:?} is missing in\n{said}");
    }
}

#[test]
fn settings_of_an_unserved_model_are_noted() {
    let mut state = State::default();
    state.take(&json!({"models": [{"m": 0, "name": "big"}]}));
    let said = told(&unserved(&state, &json!({"models": {"big": {}, "bgi": {}}})));
    assert!(said.starts_with("note frontend.models: no instance serves a model 'bgi' now\n"), "{said}");
    assert!(!said.contains("'big'") && unserved(&state, &json!({})).is_empty(), "{said}");
}

#[test]
fn failing_upstream_servers_are_not_advised_another_engine() {
    let said = lines(&[
        json!({"hello": {"version": "0.1.0", "at": 0, "rejections": ["failed"]}}),
        json!({"models": [{"m": 0, "name": "other", "policy": "once", "in_force": "once",
            "failing": "it answered 500 Internal Server Error", "failing_reason": "internal"}]}),
        json!({"instances": [{"number": 1, "address": "http://s:1", "models": [0], "node": "c"},
            {"number": 2, "address": "http://s:2", "models": [0]}]}),
        json!({"frame": {"at": 1000, "models": [{"m": 0, "queue": [0, 0, 0, 2, 2, 2],
            "latency": [[100, 50]], "rejections": [9]}], "instances": [[1, 1, 0, 1.0], [2, 1, 0, 1.0]]}}),
    ]);
    assert!(said.contains("parm_instance_failures_total"), "{said}");
    assert!(!said.contains("another engine") && !said.contains("see the instances below"), "{said}");
    assert!(!said.contains("note nodes"), "the node of one is unknown: {said}");
}
