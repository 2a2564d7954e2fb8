"""Everything that kustomize and the chart make, as objects: {name of the rendering: [object]}."""

import os
import pathlib
import subprocess

import yaml
from helm_python import Chart
from helm_python.chart import lint

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
KUSTOMIZATIONS = ["base", "overlays/triton", "overlays/kserve", "overlays/gateway"]
# What components add, and to what.
COMPOSITIONS = {
    "base with all components": ("base", ["monitoring", "models-claim", "autoscale-workers", "endpoint-slices"]),
    "base with endpoint slices": ("base", ["endpoint-slices"]),
    "base with TLS": ("base", ["tls", "monitoring"]),
    "triton with monitoring": ("overlays/triton", ["monitoring"]),
    "kserve with monitoring": ("overlays/kserve", ["monitoring"]),
}
# Name of the release and values.
CHARTS = {
    "chart": ("parm", {}),
    "chart, called otherwise": ("inference", {"networkPolicy": {"enabled": False}}),
    "chart with endpoint slices": ("parm", {"frontend": {"endpointSlices": True}}),
    "chart with everything": (
        "parm",
        {
            "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
            "worker": {
                "autoscaling": {"enabled": True},
                "models": {"claim": "parm-models"},
                "settings": {"backend.batching.max_batch": 8},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            },
            "frontend": {
                "bundles": True,
                "settings": {"frontend.dispatch.policy": "stand-in", "log.level": "warn"},
                "nodeSelector": {"pool": "cpu"},
            },
            "imagePullSecrets": [{"name": "pull"}],
            "networkPolicy": {"egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 4317}]}]},
        },
    ),
    "chart with TLS": (
        "parm",
        {
            "tls": {"mode": "require", "secret": "parm-tls"},
            "monitoring": {"enabled": True},
            "frontend": {"settings": {"server.max_connection_age_ms": 600000}},
        },
    ),
    "chart with mutual TLS": (
        "parm",
        {"tls": {"mode": "require", "secret": "parm-tls", "clients": ["parm-workers.ml.svc", "spiffe://prod/gateway/*"]}},
    ),
    "chart with keys and lists": (
        "parm",
        {
            "frontend": {
                "settings": {
                    "server.keys_file": "/etc/parm-keys/keys.toml",
                    "frontend.instances.models": ["digits"],
                    "server.max_body_bytes": 134217728,
                    "log.otlp_sample": 0.25,
                },
                "extraVolumes": [{"name": "keys", "secret": {"secretName": "parm-keys", "defaultMode": 0o440}}],
                "extraVolumeMounts": [{"name": "keys", "mountPath": "/etc/parm-keys", "readOnly": True}],
                "podAnnotations": {"team": "ml"},
                "priorityClassName": "high",
            },
            "monitoring": {"enabled": True, "keySecret": "parm-key-of-prometheus"},
            "worker": {"extraEnv": [{"name": "A", "value": "b"}], "affinity": {"nodeAffinity": {}}},
        },
    ),
    "chart before other servers": (
        "parm",
        {
            "worker": {"enabled": False},
            "frontend": {"workers": ["dns+grpc://triton:8001"], "settings": {"frontend.instances.slots": 4}},
        },
    ),
}
# Values that the chart must refuse.
REFUSED = [
    {"frontend": {"settings": {"frontent.dispatch.policy": "hedge"}}},
    {"frontend": {"worker": ["http://a:1"]}},
    {"frontend": {"workers": ["a:8000"]}},
    {"frontend": {"workers": ["kubernetes://a:8000"]}},
    {"frontend": {"endpointSlices": "yes"}},
    {"frontend": {"settings": {"frontend.dispatch.policy": "stand-in"}}},
    {"worker": {"replicas": 0}},
    {"tls": {"mode": "always", "secret": "parm-tls"}},
    {"tls": {"mode": "require"}},
    {"frontend": {"settings": {"server.keys_file": "/etc/parm-keys/keys.toml"}}, "monitoring": {"enabled": True}},
    {"worker": {"settings": {"server.keys_file": "/keys"}}, "monitoring": {"enabled": True, "keySecret": ""}},
]


def kustomized(folder):
    """What a folder renders to."""
    command = [os.environ.get("KUBECTL", "kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise SystemExit(f"{folder}: {done.stderr}")
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def composition(scratch, name, base, components):
    """A kustomization of a base and components, as a user would write it."""
    folder = scratch / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    here = pathlib.Path(os.path.relpath(DEPLOY / "kubernetes", folder))
    text = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(here / base)],
        "components": [str(here / "components" / component) for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return kustomized(folder)


def chart(release, values):
    """What the chart renders to; its notes are no objects."""
    with Chart.load(DEPLOY / "helm/parm") as loaded:
        files = loaded.render(values=values, name=release, namespace="ml")
    texts = [text for name, text in sorted(files.items()) if not name.endswith("NOTES.txt")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def problems_of_the_chart():
    """What Helm's own lint says, and values that should have been refused."""
    for name, (_, values) in CHARTS.items():
        report = lint(DEPLOY / "helm/parm", values, strict=True)
        said = [message for message in report["messages"] if message["severity"] > 1]
        for problem in report["errors"] + said:
            yield f"{name}: {problem}"
    for values in REFUSED:
        with Chart.load(DEPLOY / "helm/parm") as loaded:
            try:
                loaded.validate_schema(values)
            except Exception:  # noqa: BLE001, whatever it is called: refused is what it should be
                continue
        yield f"the chart takes {values}"


def everything(scratch):
    """All renderings."""
    made = {name: kustomized(DEPLOY / "kubernetes" / name) for name in KUSTOMIZATIONS}
    for name, (base, components) in COMPOSITIONS.items():
        made[name] = composition(scratch, name, base, components)
    for name, (release, values) in CHARTS.items():
        made[name] = chart(release, values)
    made["grid"] = list(yaml.safe_load_all((DEPLOY / "grids/kubernetes.yaml").read_text()))
    return made
