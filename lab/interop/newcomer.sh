#!/usr/bin/env bash
# Plays newcomers in a copy of the files that git tracks. `pages` follows README.md, docs/quickstart.md and
# docs/bring-your-own-model.md literally and checks each page's promises; `sre` breaks a pool of six workers; `researcher`
# simulates and records with files of their own. Debian's Chromium opens the operators' page. Arguments choose players.
# PARM_BINARY is the binary; otherwise it is built. PICTURES=FOLDER receives pictures of the page; with PAGE=frontend/page
# they show these files instead of those in the binary. Missing tools are reported, and their part is skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
source lab/interop/chromium.sh
source lab/interop/environment.sh
WANTED="${*:-researcher sre pages}"
plays() { [[ " $WANTED " == *" $1 "* ]]; }
# Whether the tools of the players with a browser are there; otherwise sets WHY.
browses() {
    major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
    WHY="it needs node 20 or newer"
    [ "${major:-0}" -ge 20 ] || return 1
    WHY="it needs curl and openssl"
    command -v curl >/dev/null && command -v openssl >/dev/null || return 1
    have_chromium
}
if [ -z "${PARM_BINARY:-}" ]; then
    cargo build --release -p parm --example classify --bin parm
    PARM_BINARY=$PWD/target/release/parm
fi
PARM_BINARY=$(realpath "$PARM_BINARY")
CLASSIFY=$(dirname "$PARM_BINARY")/examples/classify
[ -x "$CLASSIFY" ] || CLASSIFY=
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$SCRATCH"
export PARM_BINARY CLASSIFY SCRATCH
if plays researcher; then
    environment newcomer pandas==3.1.1
    "$VENV/bin/python" lab/interop/newcomer/researcher.py
fi
if plays sre || plays pages; then
    if browses; then
        export CHROMIUM PAGE_TOOLS
        if plays sre; then node lab/interop/newcomer/sre.mjs; fi
        if plays pages; then node lab/interop/newcomer/main.mjs; fi
    else
        echo "newcomer: sre and pages skipped: $WHY"
    fi
fi
