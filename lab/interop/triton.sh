#!/usr/bin/env bash
# Installs the server into .parm/interop and runs a frontend over it with the release binary.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment triton nvidia-pytriton 'tritonclient[http,grpc]' numpy
binary
PYTHONPATH=lab/interop "$VENV/bin/python" lab/interop/triton.py
