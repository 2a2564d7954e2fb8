"""Objects against the schemas of their kinds, strictly: an unknown field is an error.

Kubernetes' own: `kubernetes-validate`, for the oldest version that we say and the newest that it knows. The Prometheus
operator's and the Gateway API's: npm packages, for values at run time and for unknown fields by TypeScript. KServe's: the
models in its Python package, read and not imported, for that would need all that it depends on.
"""

import ast
import json
import pathlib
import re
import subprocess

import kubernetes_validate

OLDEST = "1.27"
PACKAGES = {
    "monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
    "gateway.networking.k8s.io/v1": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1",
}
TSC = ["node_modules/.bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--types", "", "typed.mts"]


def of_kubernetes(named):
    """Problems of kinds that Kubernetes has itself. `named` are pairs of a name and an object."""
    for version in (OLDEST, kubernetes_validate.latest_version()):
        for name, found in named:
            try:
                kubernetes_validate.validate(found, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{name} under Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}"


def of_packages(named, tools):
    """Problems of kinds that npm packages know, and the kinds that they do not."""
    objects = [found for _, found in named]
    node = pathlib.Path(tools) / "npm"
    script = pathlib.Path(__file__).with_name("custom.mjs")
    (node / script.name).write_text(script.read_text())
    done = subprocess.run(["node", script.name], cwd=node, input=json.dumps(objects), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    skipped = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("skipped")}
    bad = [line for line in done.stdout.splitlines() if line.startswith("bad")]
    typed = []
    for number, found in enumerate(objects):
        if found["kind"] in skipped:
            continue
        body = {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}
        imported = f"import {{ {found['kind']} as K{number} }} from '{PACKAGES[found['apiVersion']]}';"
        typed.append(f"{imported}\nnew K{number}({json.dumps(body, indent=1)});")
    (node / "typed.mts").write_text("\n".join(typed))
    checked = subprocess.run(TSC, cwd=node, capture_output=True, text=True)
    return bad + (checked.stdout.splitlines() if checked.returncode else []), skipped


class KServe:
    """KServe's kinds, as the models of its package list their fields."""

    KINDS = {"ClusterServingRuntime": "V1alpha1ClusterServingRuntime", "InferenceService": "V1beta1InferenceService"}

    def __init__(self, folder):
        self.fields = {}
        for path in pathlib.Path(folder).glob("kserve/models/*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    maps = {
                        part.targets[0].id: ast.literal_eval(part.value)
                        for part in node.body
                        if isinstance(part, ast.Assign) and part.targets[0].id in ("openapi_types", "attribute_map")
                    }
                    if len(maps) == 2:
                        types = maps["openapi_types"]
                        self.fields[node.name] = {json: types[name] for name, json in maps["attribute_map"].items()}

    def problems(self, found, kind=None, at=""):
        """What is wrong with an object. Kubernetes' own types in it (pods' parts) are checked as a pod's."""
        kind = kind or self.KINDS[found["kind"]]
        if match := re.fullmatch(r"list\[(.*)\]", kind):
            if not isinstance(found, list):
                return [f"{at}: no list"]
            return [bad for place, each in enumerate(found) for bad in self.problems(each, match[1], f"{at}[{place}]")]
        if kind == "V1Container":
            return container(found, at)
        plain = {"str": str, "int": int, "bool": bool, "dict(str, str)": dict}.get(kind)
        if plain:
            return [] if isinstance(found, plain) else [f"{at}: {found!r} is no {kind}"]
        if kind not in self.fields:
            return []
        problems = []
        for name, value in found.items():
            known = self.fields[kind].get(name)
            if known is None:
                problems.append(f"{at}.{name}: {kind} has no such field")
            else:
                problems += self.problems(value, known, f"{at}.{name}")
        return problems


def container(found, at):
    """A container as the one of a pod."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [found]}}
    return [f"{at}: {problem}" for problem in of_kubernetes([("container", pod)])]
