#!/usr/bin/env python3
"""The checks find what is wrong: each fault is put into manifests and expressions that are well, and has to be told.

Usage: faults.py TOOLS PROMTOOL [PARM]
"""

import copy
import pathlib
import sys

import configs
import expressions
import render
import rules_of_ours
import schemas


def named(objects, kind, name):
    """One object."""
    return next(found for found in objects if found["kind"] == kind and found["metadata"]["name"] == name)


def pod(objects, name="parm-worker"):
    """The specification of a Deployment's pods."""
    return named(objects, "Deployment", name)["spec"]["template"]["spec"]


def config(objects, prefix, old, new):
    """Changes the text of a configuration."""
    found = next(f for f in objects if f["kind"] == "ConfigMap" and f["metadata"]["name"].startswith(prefix))
    (file, text), = found["data"].items()
    assert old in text, f"{old} is not in {file}"
    found["data"][file] = text.replace(old, new)


# What is broken, how, and a word of the complaint. Of the schemas:
SCHEMAS = [
    ("a field that is misspelt", lambda o: pod(o).update(terminationGracePeriodSecond=1), "terminationGracePeriodSecond"),
    ("a text for a number", lambda o: named(o, "Deployment", "parm-worker")["spec"].update(replicas="4"), "replicas"),
]
CUSTOM = [
    ("an unknown field of a monitor", "ServiceMonitor", lambda s: s["endpoints"][0].update(honorLabel=True), "honorLabel"),
    ("an interval without a unit", "ServiceMonitor", lambda s: s["endpoints"][0].update(interval="15"), "interval"),
    ("an unknown field of a rule", "PrometheusRule", lambda s: s["groups"][0]["rules"][0].update(exprs="x"), "exprs"),
    ("an unknown field of a runtime", "ClusterServingRuntime", lambda s: s.update(protocols=["v2"]), "protocols"),
    ("an unknown field of its container", "ClusterServingRuntime", lambda s: s["containers"][0].update(arg=[]), "arg"),
    ("a number as text", "InferenceService", lambda s: s["predictor"].update(minReplicas="4"), "minReplicas"),
]
# Of our own rules:
OURS = [
    ("root", lambda o: pod(o)["securityContext"].pop("runAsNonRoot"), "root"),
    ("a root that can be written", lambda o: pod(o)["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False), "write"),
    ("a limit of CPU", lambda o: pod(o)["containers"][0]["resources"]["limits"].update(cpu="1"), "CPU"),
    ("no readiness", lambda o: pod(o)["containers"][0].pop("readinessProbe"), "readinessProbe"),
    ("an image without a version", lambda o: pod(o)["containers"][0].update(image="parm"), "version"),
    ("a Service of nobody", lambda o: named(o, "Service", "parm")["spec"]["selector"].update(a="b"), "selects nothing"),
    ("a port that nobody has", lambda o: named(o, "Service", "parm")["spec"]["ports"][0].update(targetPort="web"), "no port"),
    ("an autoscaler of nobody", lambda o: named(o, "HorizontalPodAutoscaler", "parm-frontend")["spec"]["scaleTargetRef"].update(name="x"), "target"),
    ("replicas that two set", lambda o: named(o, "Deployment", "parm-frontend")["spec"].update(replicas=2), "set back"),
    ("Service links", lambda o: pod(o).pop("enableServiceLinks"), "variables"),
    ("a token without need", lambda o: pod(o).pop("automountServiceAccountToken"), "gets a token"),
    ("probes in plain under TLS", lambda o: pod(o)["containers"][0]["args"].append("tls.mode=require"), "asks in plain"),
    ("a key that everyone can read", lambda o: pod(o)["volumes"].append({"name": "tls", "secret": {"secretName": "parm-tls"}}), "read by everyone"),
]
# Of rights towards the API server:
RIGHTS = [
    ("a verb too many", lambda o: named(o, "Role", "parm-frontend")["rules"][0]["verbs"].append("delete"), "more or less"),
    ("a Role that is not bound", lambda o: named(o, "RoleBinding", "parm-frontend")["roleRef"].update(name="x"), "more or less"),
    ("another's account", lambda o: named(o, "RoleBinding", "parm-frontend")["subjects"][0].update(name="x"), "more or less"),
    ("an account without a token", lambda o: pod(o, "parm-frontend").update(automountServiceAccountToken=False), "no token of it"),
]
# Of configurations and times:
CONFIGS = [
    ("a setting that is misspelt", lambda o: config(o, "parm-worker", "drain_delay_ms", "drain_delay"), "drain_delay"),
    ("a value that cannot be", lambda o: config(o, "parm-frontend", '"hedge"', '"hedges"'), "hedges"),
    ("a flag that there is not", lambda o: pod(o, "parm-frontend")["containers"][0]["args"].append("--admni"), "--admni"),
    ("a grace period that is too short", lambda o: pod(o).update(terminationGracePeriodSeconds=25), "killed"),
    ("a frontend that ends before DNS knows", lambda o: config(o, "parm-frontend", "drain_delay_ms = 35000", "drain_delay_ms = 20000"), "DNS"),
    ("a worker that ends before frontends know", lambda o: config(o, "parm-worker", "drain_delay_ms = 5000", "drain_delay_ms = 2000"), "saw"),
    ("a rollout that outruns DNS", lambda o: named(o, "Deployment", "parm-worker")["spec"].update(minReadySeconds=10), "know a new one"),
    ("frontends that are replaced too fast", lambda o: named(o, "Deployment", "parm-frontend")["spec"].update(minReadySeconds=0), "tells of new"),
]
EXPRESSIONS = [
    "rate(parm_hedge_total[5m])",
    'parm_instances{state="dead"}',
    'parm_instances{stat="ready"}',
    "sum by (modle) (parm_queue_depth)",
    'nv_inference_request_failure{reason="deadlin"}',
    "parm_queue_depth_sum",
    "parm:nothing:ratio",
    'parm_request_duration_seconds_count{outcome="standin"}',
]


def told(title, said, word):
    """Nothing if a complaint has the word."""
    return [] if any(word in each for each in said) else [f"not found: {title} (said: {said})"]


def main(tools, promtool, parm=None):
    """Every fault, one at a time."""
    scratch = pathlib.Path(tools) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    base = render.kustomized(render.DEPLOY / "kubernetes/base")
    missed, count = [], 0

    def broken(title, how, check, word, well=base):
        nonlocal count, missed
        count += 1
        objects = copy.deepcopy(well)
        how(objects)
        missed += told(title, list(check(objects)), word)

    for title, how, word in SCHEMAS:
        pairs = lambda objects: schemas.of_kubernetes([(f["kind"], f) for f in objects])  # noqa: E731
        broken(title, how, pairs, word)
    for title, how, word in OURS:
        broken(title, how, rules_of_ours.problems, word)
    slices = render.composition(scratch, "base with endpoint slices", *render.COMPOSITIONS["base with endpoint slices"])
    for title, how, word in RIGHTS:
        broken(title, how, rules_of_ours.problems, word, slices)
    for title, how, word in CONFIGS if parm else []:
        broken(title, how, lambda objects: configs.problems(parm, objects, scratch), word)

    custom = render.composition(scratch, "kserve with monitoring", *render.COMPOSITIONS["kserve with monitoring"])
    kserve = schemas.KServe(pathlib.Path(tools) / "kserve")
    for title, kind, how, word in CUSTOM:
        found = copy.deepcopy(next(each for each in custom if each["kind"] == kind))
        how(found["spec"])
        count += 1
        said = kserve.problems(found) if kind in kserve.KINDS else schemas.of_packages([(kind, found)], tools)[0]
        missed += told(title, said, word)

    metrics, (_, recorded) = expressions.documented(), expressions.expressions()
    reasons = set(expressions.ERRORS.findall((render.DEPLOY.parent / "docs/errors.md").read_text()))
    for text in EXPRESSIONS:
        count += 1
        missed += told(text, list(expressions.problems("panel", text, metrics, recorded, reasons)), "panel")
    count += 1
    missed += told("no expression", expressions.parsed(promtool, [("panel", "sum((")]), "parse error")
    if missed:
        sys.exit("\n".join(missed))
    print(f"  ok  {count} faults, all found")


if __name__ == "__main__":
    main(*sys.argv[1:])
