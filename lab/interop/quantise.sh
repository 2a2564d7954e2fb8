#!/usr/bin/env bash
# Compares the 8-bit copies of `parm stand-in` with those of Python's onnxruntime, made from the same rows.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment quantise onnxruntime onnx numpy
ORT_DYLIB_PATH=$(ls "$VENV"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
export ORT_DYLIB_PATH
cargo build -q -p parm
"$VENV/bin/python" lab/interop/quantise.py target/debug/parm
