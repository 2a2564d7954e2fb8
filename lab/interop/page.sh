#!/usr/bin/env bash
# Tests the operators' page: its modules in node, then the page in Debian's Chromium over a scripted frontend, and over real
# ones if there is a binary (PARM, or one that was built). Installs its tools into .parm/interop/page (and Chromium with apt
# if permitted), and reports missing ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
skipped() {
    echo "page: skipped, $1"
    exit 0
}
major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
[ "${major:-0}" -ge 20 ] || skipped "it needs node 20 or newer"
node --test frontend/page/test/units.test.mjs frontend/page/test/fuzz.test.mjs

source lab/interop/chromium.sh
have_chromium || skipped "$WHY; its modules were tested"
export CHROMIUM PAGE_TOOLS
node --test frontend/page/test/page.test.mjs
PARM=${PARM:-$(ls -t "$PWD"/target/{release,debug}/parm 2>/dev/null | head -1)}
if [ -x "${PARM:-}" ]; then
    export PARM
    node --test frontend/page/test/real.test.mjs
else
    echo "page: skipped real frontends: no binary was built: run cargo build or set PARM"
fi
