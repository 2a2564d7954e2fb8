#!/usr/bin/env bash
# Installs Triton and MLServer into .parm/interop, each with ONNX Runtime, and compares them with a worker. wrk comes from
# the system.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
binary
environment servers-triton nvidia-pytriton onnxruntime numpy
triton=$VENV/bin/python
environment servers-mlserver mlserver onnxruntime numpy
PYTHONPATH=lab/interop:lab/bench python3 lab/bench/servers.py --triton "$triton" --mlserver "$VENV/bin/python" "$@"
