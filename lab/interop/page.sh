#!/usr/bin/env bash
# The operators' page: its modules in node, then all of it in Debian's Chromium over a frontend that is played, and over real ones where
# there is a binary (PARM, or one that was built). Installs what it needs into .parm/interop/page (and
# Chromium with apt where it may), and says so where it cannot.
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
    echo "page: not tried over real frontends, as no binary was built (cargo build) and none is named (PARM)"
fi
