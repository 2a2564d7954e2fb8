#!/usr/bin/env python3
"""Copies that kustomize and Helm want inside of their own folders, each made from one original.

Neither may read a file outside of its folder, and neither can put a file's text into an object of the Prometheus
operator. `deploy/derive.py` writes the copies, `--check` fails where one is stale.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
RULE = """# Made from deploy/prometheus/rules.yaml by deploy/derive.py.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: parm
  labels:
    app.kubernetes.io/name: parm
spec:
"""


def indented(text):
    """The text as the value of a key."""
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def copies():
    """Every copy's path and text."""
    kubernetes, chart = HERE / "kubernetes", HERE / "helm/parm/files"
    rules = (HERE / "prometheus/rules.yaml").read_text()
    script = HERE / "grafana/dashboard.py"
    dashboard = subprocess.run([sys.executable, script, "--stdout"], check=True, capture_output=True, text=True).stdout
    return {
        HERE / "grafana/parm.json": dashboard,
        kubernetes / "components/monitoring/parm.json": dashboard,
        kubernetes / "components/monitoring/rules.yaml": RULE + indented(rules),
        chart / "dashboard.json": dashboard,
        chart / "rules.yaml": rules,
        chart / "frontend.toml": (kubernetes / "frontend/frontend.toml").read_text(),
        chart / "worker.toml": (kubernetes / "worker/worker.toml").read_text(),
    }


def main():
    """Writes the copies, or compares them."""
    stale = []
    for path, text in copies().items():
        if sys.argv[1:] != ["--check"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(HERE.parent)))
    if stale:
        sys.exit(f"stale: {', '.join(stale)}: run deploy/derive.py")


if __name__ == "__main__":
    main()
