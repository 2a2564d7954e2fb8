#!/usr/bin/env bash
# A network that PyTorch trained and exported: captured, given a stand-in, served with a worker that stops, and graded. The
# first run installs PyTorch under .parm (gigabytes: its package includes libraries for graphics cards).
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
binary
environment torch torch onnx onnxscript onnxruntime numpy
folder=$PWD/.parm/interop/stand-in
mkdir -p "$folder"
data=/usr/share/datasets/fashion-mnist
if [ ! -d "$data" ]; then
    data=$folder/package/usr/share/datasets/fashion-mnist
    if [ ! -d "$data" ]; then
        (cd "$folder" && apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb package)
    fi
fi
if [ ! -e "$folder/complete" ]; then
    "$VENV/bin/python" lab/interop/stand_in_network.py "$data" "$folder"
    touch "$folder/complete"
fi
# The engine finds the library of the active environment.
VIRTUAL_ENV=$VENV PYTHONPATH=lab/interop PYTHONDONTWRITEBYTECODE=1 "$VENV/bin/python" lab/interop/stand_in.py "$folder"
