#!/usr/bin/env python3
"""Every expression of the rules and the dashboard uses metrics, labels and label values of docs/metrics.md.

A name that is mistyped, or was changed in the code, makes no error anywhere: the panel stays empty and the alert silent.
Usage: expressions.py PROMTOOL
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
# Labels that the scrape gives.
TARGET = {"namespace", "pod", "node", "app_kubernetes_io_component", "exported_instance"}
# Values of labels that the page cannot list, since they come as they happen.
OUTCOMES = {"exact", "hedged", "reconstructed", "stand-in", "backup", "default"}
# Loads of models have outcomes of their own.
LOADING, LOADS = {"parm_instance_loads_total"}, {"loaded", "failed"}
# What docs/metrics.md lists without labels, since it is not there before it happens.
RARE = {"event", "kind", "stage", "rows", "instance", "model", "service", "version"}
# Of other programs: kube-state-metrics, asked only in a text, which does without.
FOREIGN = {"kube_pod_info"}
SUFFIXES = ("_bucket", "_sum", "_count")
WORDS = set(
    "sum rate increase by on and or unless min max count quantile histogram_quantile group_left group_right topk vector"
    " max_over_time round le offset bool without time".split()
)
ERRORS = re.compile(r"^\| `(\w+)` \|", re.M)


def documented():
    """Metrics of the page: name to labels, each with the values that are listed; None where the page lists no labels."""
    metrics = {}
    for line in (DEPLOY.parent / "docs/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) not in (2, 4):
            continue
        name = cells[0].strip("`")
        if len(cells) == 2:
            metrics[name] = None
            continue
        labels = {}
        for label, values in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", cells[2]):
            labels[label] = set(values.split(", ")) if values else None
        if cells[1] == "histogram":
            labels["le"] = None
        metrics.setdefault(name, {}).update(labels)
    return metrics


def expressions():
    """Place and text of every expression, and the names that rules record."""
    found, recorded = [], set()
    for group in yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            found.append((rule.get("alert") or rule["record"], rule["expr"]))
            recorded |= {rule["record"]} if "record" in rule else set()
    for panel in json.loads((DEPLOY / "grafana/parm.json").read_text())["panels"]:
        found += [(panel["title"], target["expr"]) for target in panel.get("targets", [])]
    variables = json.loads((DEPLOY / "grafana/parm.json").read_text())["templating"]["list"]
    for variable in variables:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
            found.append((variable["name"], f'{metric}{{{label}=~".*"}}'))
    adapter = yaml.safe_load((DEPLOY / "prometheus/adapter.yaml").read_text())
    found += [("adapter", rule["seriesQuery"]) for rule in adapter["rules"]["external"]]
    return found, recorded


def problems(place, text, metrics, recorded, reasons):
    """What an expression names that there is not."""
    selectors = re.findall(r"([A-Za-z_:][\w:]*)\s*\{([^}]*)\}", text)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", " ", text)
    grouped = [label for part in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", bare) for label in part.split(",")]
    bare = re.sub(r"\b(?:by|on|group_left)\s*\([^)]*\)", " ", bare)
    names = {name for name in re.findall(r"[A-Za-z_:][\w:]*", bare) if name not in WORDS and not re.fullmatch(r"e\d+", name)}
    for name in names - recorded:
        if base(name, metrics) is None:
            yield f"{place}: no metric is called {name}"
    known = TARGET | RARE | {"le"} | {label for labels in metrics.values() if labels for label in labels}
    for label in {label.strip() for label in grouped} - known - {""}:
        yield f"{place}: no label is called {label}"
    for name, body in selectors:
        of = base(name, metrics)
        for label, value in re.findall(r'(\w+)\s*(?:=~|!=|=|!~)\s*"([^"]*)"', body):
            labels = metrics.get(of) if of else None
            allowed = TARGET | (RARE if labels is None else set(labels)) | ({"model"} if name in recorded else set())
            if label not in allowed:
                yield f"{place}: {name} has no label {label}"
            listed = {"outcome": LOADS if of in LOADING else OUTCOMES, "reason": reasons}.get(label)
            if label in ("state", "event") and labels:
                listed = labels[label]
            for each in value.split("|") if listed else []:
                if each not in listed:
                    yield f"{place}: {label} is never {each!r}"


def base(name, metrics):
    """The metric that a series belongs to."""
    for suffix in ("", *SUFFIXES):
        plain = name.removesuffix(suffix)
        if name.endswith(suffix) and plain in metrics and (not suffix or metrics[plain] is None or "le" in metrics[plain]):
            return plain
    return None


def parsed(promtool, found):
    """Whether Prometheus reads the expressions of the dashboard, with Grafana's words in place of what it fills in."""
    rules = []
    for number, (_, text) in enumerate(found):
        text = text.replace("$__rate_interval", "5m").replace("$namespace", "a").replace("$model", "m")
        rules.append({"record": f"expression:{number}", "expr": text})
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True)
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def main(promtool=None):
    """Says what is wrong."""
    metrics = documented()
    reasons = set(ERRORS.findall((DEPLOY.parent / "docs/errors.md").read_text()))
    found, recorded = expressions()
    bad = [problem for place, text in found for problem in problems(place, text, metrics, recorded, reasons)]
    if promtool:
        bad += parsed(promtool, found)
    if bad:
        sys.exit("\n".join(bad))
    print(f"  ok  {len(found)} expressions, {len(metrics)} metrics known")


if __name__ == "__main__":
    main(*sys.argv[1:])
