#!/usr/bin/env bash
# Trains a parity model for a network that PyTorch wrote, runs it in Python's onnxruntime and serves it.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
binary --features train
environment parity onnxruntime numpy
PYTHONPATH=lab/interop "$VENV/bin/python" lab/interop/parity.py
