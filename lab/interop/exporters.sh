#!/usr/bin/env bash
# Networks of many kinds by PyTorch's two exporters and by tf2onnx, and a stand-in for each. The first run installs PyTorch
# and TensorFlow under .parm (gigabytes: PyTorch's package includes libraries for graphics cards).
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
binary
graphs=$PWD/.parm/interop/graphs
mkdir -p "$graphs"
environment torch torch onnx onnxscript onnxruntime numpy
export PYTHONPATH=lab/interop PYTHONDONTWRITEBYTECODE=1
for exporter in torchscript dynamo; do
    "$VENV/bin/python" lab/interop/export.py "$exporter" "$graphs"
done
library=$VENV
environment keras tensorflow-cpu tf2onnx onnx numpy
"$VENV/bin/python" lab/interop/keras_networks.py "$graphs"
# The engine finds the library of the active environment.
VIRTUAL_ENV=$library "$library/bin/python" lab/interop/exporters.py "$graphs" "$@"
