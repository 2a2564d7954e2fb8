#!/usr/bin/env python3
"""Writes parm.json, the dashboard. Panels are rows of tables here, so that a change is a line and not a page of JSON."""

import json
import pathlib
import sys

FRONTEND = 'namespace=~"$namespace"'
MODEL = f'{FRONTEND},model=~"$model"'
SERVED = f'app_kubernetes_io_component="frontend",{MODEL}'
RATE = "$__rate_interval"


def rate(metric, labels=MODEL, by=""):
    """The rate of a counter, added up."""
    by = f" by ({by})" if by else ""
    return f"sum{by} (rate({metric}{{{labels}}}[{RATE}]))"


def quantile(q, metric, by, labels):
    """A quantile of a histogram, over all frontends."""
    return f"histogram_quantile({q}, sum by (le{by and ', ' + by}) (rate({metric}_bucket{{{labels}}}[{RATE}])))"


ANSWERS = "parm_request_duration_seconds_count"
APPROXIMATE = f'{MODEL},outcome=~"reconstructed|stand-in|backup|default"'

# Title, unit, width of 24, kind, and expressions with their legends. A row has a title only.
PANELS = [
    ("At a glance",),
    ("p99.9", "s", 4, "stat", [(quantile(0.999, "parm_request_duration_seconds", "", MODEL), "")]),
    ("p50", "s", 4, "stat", [(quantile(0.5, "parm_request_duration_seconds", "", MODEL), "")]),
    ("Answers a second", "reqps", 4, "stat", [(rate(ANSWERS), "")]),
    ("Approximate answers", "percentunit", 4, "stat", [(f"({rate(ANSWERS, APPROXIMATE)} or vector(0)) / {rate(ANSWERS)}", "")]),
    ("Refused or failed", "percentunit", 4, "stat", [
        (f"({rate('nv_inference_request_failure', SERVED)} or vector(0)) / "
         f"({rate('nv_inference_request_success', SERVED)} + ({rate('nv_inference_request_failure', SERVED)} or vector(0)))", ""),
    ]),
    ("Instances held", "percentunit", 4, "stat", [(f"max(parm:utilisation:ratio2m{{{FRONTEND}}})", "")]),
    ("What clients see",),
    ("Time from arrival to answer", "s", 12, "timeseries", [
        (quantile(q, "parm_request_duration_seconds", "", MODEL), f"p{name}")
        for q, name in [(0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9")]
    ]),
    ("p99 by how the answer came about", "s", 12, "timeseries", [
        (quantile(0.99, "parm_request_duration_seconds", "outcome", MODEL), "{{outcome}}"),
    ]),
    ("Answers by how they came about", "reqps", 12, "stacked", [(rate(ANSWERS, MODEL, "outcome"), "{{outcome}}")]),
    ("Requests refused or failed", "reqps", 12, "timeseries", [
        (rate("nv_inference_request_failure", SERVED, "reason"), "{{reason}}"),
    ]),
    ("Workers: who is slow",),
    ("Time of a worker's jobs beside the usual time", "none", 12, "timeseries", [
        (f"max by (exported_instance) (parm_instance_slow{{{FRONTEND}}})", "{{exported_instance}}"),
    ]),
    ("p99 of jobs by worker", "s", 12, "timeseries", [
        (f"topk(10, {quantile(0.99, 'parm_instance_service_seconds', 'exported_instance', FRONTEND)})",
         "{{exported_instance}}"),
    ]),
    ("Time in the model by node, beside the usual pod's", "none", 12, "timeseries", [
        ("parm:node_slowness:ratio10m", "{{node}}"),
    ]),
    ("Jobs that workers failed", "reqps", 12, "timeseries", [
        (rate("parm_instance_failures_total", FRONTEND, "exported_instance"), "{{exported_instance}}"),
    ]),
    ("Instances by state, the least that a frontend sees", "none", 12, "stacked", [
        (f"min by (state) (parm_instances{{{FRONTEND}}})", "{{state}}"),
    ]),
    ("Ejections", "reqps", 12, "timeseries", [(rate("parm_ejections_total", MODEL, "reason"), "{{reason}}")]),
    ("What redundancy costs and saves",),
    ("Jobs for one query", "none", 8, "timeseries", [
        (f'{rate("parm_dispatch_total", MODEL + ",event=" + chr(34) + "job" + chr(34), "model")} / '
         f'{rate("parm_dispatch_total", MODEL + ",event=" + chr(34) + "arrived" + chr(34), "model")}', "{{model}}"),
    ]),
    ("Hedges", "reqps", 8, "timeseries", [
        (rate("parm_hedges_total"), "sent"),
        (rate("parm_hedges_won_total"), "answered first"),
        (rate("parm_hedges_refused_total"), "not sent: budget spent"),
    ]),
    ("Retries", "reqps", 8, "timeseries", [
        (rate("parm_retries_total"), "tried again"),
        (rate("parm_retries_refused_total"), "not tried: budget spent"),
    ]),
    ("Stand-ins", "reqps", 8, "timeseries", [(rate("parm_stand_ins_total", MODEL, "event"), "{{event}}")]),
    ("Agreement of stand-ins", "percentunit", 8, "timeseries", [
        (f"min by (model) (parm_stand_in_agreement{{{MODEL}}})", "{{model}}"),
        (f"max by (model) (parm_stand_ins_withheld{{{MODEL}}})", "{{model}} withheld"),
    ]),
    ("Groups and reconstructions", "reqps", 8, "timeseries", [
        (rate("parm_groups_total", MODEL, "kind"), "groups, {{kind}}"),
        (rate("parm_reconstructions_total", MODEL, "event"), "reconstructions, {{event}}"),
        (rate("parm_parities_total", MODEL, "event"), "parities, {{event}}"),
    ]),
    ("Room",),
    ("Instances held", "percentunit", 8, "timeseries", [(f"parm:utilisation:ratio2m{{{FRONTEND}}}", "{{namespace}}")]),
    ("Queries that wait", "none", 8, "timeseries", [
        (f"sum by (model) (parm_queue_depth{{{MODEL}}})", "{{model}}"),
    ]),
    ("Mean wait for an instance", "µs", 8, "timeseries", [
        (f'{rate("nv_inference_queue_duration_us", SERVED, "model")} / {rate("nv_inference_request_success", SERVED, "model")}',
         "{{model}}"),
    ]),
]

COLOURS = {"stat": {"colorMode": "none", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}}}
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number, title, unit, width, kind, targets, at):
    """One panel of the dashboard."""
    stacked = kind == "stacked"
    shape = "timeseries" if stacked else kind
    custom = {"lineWidth": 1, "fillOpacity": 30 if stacked else 0}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    return {
        "id": number,
        "title": title,
        "type": shape,
        "datasource": SOURCE,
        "gridPos": {"x": at[0], "y": at[1], "w": width, "h": 4 if shape == "stat" else 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {} if shape == "stat" else custom}, "overrides": []},
        "options": COLOURS.get(shape, {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}),
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto"}
            for place, (expression, legend) in enumerate(targets)
        ],
    }


def variable(name, label, metric):
    """A choice at the top, from the values of a label."""
    query = f"label_values({metric}, {name})"
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "refresh": 2, "multi": True, "includeAll": True,
        "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "query": {"query": query, "refId": name}, "definition": query,
    }


def dashboard():
    """The whole dashboard."""
    panels, x, y, high = [], 0, 0, 0
    for number, row in enumerate(PANELS, start=1):
        wide = 24 if len(row) == 1 else row[2]
        if x + wide > 24:
            x, y, high = 0, y + high, 0
        if len(row) == 1:
            panels.append({"id": number, "title": row[0], "type": "row", "collapsed": False, "panels": [],
                           "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
            x, y, high = 0, y + 1, 0
            continue
        panels.append(panel(number, *row, (x, y)))
        x, high = x + wide, max(high, panels[-1]["gridPos"]["h"])
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "uid": "parm", "title": "parm", "tags": ["parm", "inference"], "schemaVersion": 39, "version": 1, "editable": True,
        "timezone": "browser", "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, variable("namespace", "Namespace", "parm_instances"),
                                variable("model", "Model", "parm_usable_instances")]},
        "annotations": {"list": []}, "panels": panels,
    }


if __name__ == "__main__":
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if sys.argv[1:] == ["--stdout"]:
        sys.stdout.write(text)
    else:
        pathlib.Path(__file__).with_name("parm.json").write_text(text)
