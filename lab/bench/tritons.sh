#!/usr/bin/env bash
# Installs Triton into .parm/interop and measures one and two frontends over twelve of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment triton nvidia-pytriton 'tritonclient[http,grpc]' numpy
[ -n "${PARM_BINARY:-}" ] || cargo build --release -p parm
PYTHONPATH=lab/interop:lab/bench "$VENV/bin/python" lab/bench/tritons.py "$@"
