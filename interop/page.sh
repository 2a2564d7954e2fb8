#!/usr/bin/env bash
# The operators' page: its modules in node, then all of it in Debian's Chromium over a frontend that is played, and over real ones where
# there is a binary (PARM, or one that was built). Installs what it needs
# into .parm/interop/page (and Chromium with apt where it may), and says so where it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."
skipped() {
    echo "page: skipped, $1"
    exit 0
}
major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
[ "${major:-0}" -ge 20 ] || skipped "it needs node 20 or newer"
node --test frontend/page/test/units.test.mjs

find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! find_chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 || true
fi
CHROMIUM=$(find_chromium) || skipped "Chromium is not installed and could not be; its modules were tested"

PAGE_TOOLS=$PWD/.parm/interop/page
if [ ! -e "$PAGE_TOOLS/complete" ]; then
    mkdir -p "$PAGE_TOOLS"
    npm install --prefix "$PAGE_TOOLS" --ignore-scripts --no-audit --no-fund --silent playwright-core@1.65.1 axe-core@4.14.1 ||
        skipped "playwright-core and axe-core could not be installed; its modules were tested"
    touch "$PAGE_TOOLS/complete"
fi
export CHROMIUM PAGE_TOOLS
node --test frontend/page/test/page.test.mjs
PARM=${PARM:-$(ls -t "$PWD"/target/{release,debug}/parm 2>/dev/null | head -1)}
if [ -x "${PARM:-}" ]; then
    export PARM
    node --test frontend/page/test/real.test.mjs
else
    echo "page: not tried over real frontends, as no binary was built (cargo build) and none is named (PARM)"
fi
