#!/usr/bin/env bash
# Installs Triton into .parm/interop and measures one and two frontends over twelve of them, with agents and without.
set -euo pipefail
cd "$(dirname "$0")/.."
source interop/environment.sh
environment triton nvidia-pytriton 'tritonclient[http,grpc]' numpy
[ -n "${PARM_BINARY:-}" ] || cargo build --release -p parm
PYTHONPATH=interop:bench "$VENV/bin/python" bench/tritons.py "$@"
