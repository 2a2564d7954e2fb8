#!/usr/bin/env bash
# Trains a parity model for a network that PyTorch wrote, runs it in Python's onnxruntime and serves it.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${PARM_BINARY:-}" ]; then
    cargo build --release -p parm --features train
    export PARM_BINARY=$PWD/target/release/parm
fi
source interop/environment.sh
environment parity onnxruntime numpy
PYTHONPATH=interop "$VENV/bin/python" interop/parity.py
