#!/usr/bin/env bash
# Runs real models in tract, in ONNX Runtime through `ort`, and in Python's onnxruntime, and compares.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment engines onnxruntime onnx numpy
models=$PWD/.parm/interop/models
if [ ! -e "$models/complete" ]; then
    mkdir -p "$models"
    "$VENV/bin/pip" download -q --disable-pip-version-check --no-deps -d "$models" silero-vad==6.2.3 speechmos==0.0.1.1
    for package in "$models"/*.whl; do
        "$VENV/bin/python" -m zipfile -e "$package" "$models"
    done
    touch "$models/complete"
fi
ORT_DYLIB_PATH=$(ls "$VENV"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
export ORT_DYLIB_PATH
cargo build -q -p parm-backend --example run_model
"$VENV/bin/python" lab/interop/engines.py "$models"
