#!/usr/bin/env bash
# Follows README.md, docs/quickstart.md and docs/bring-your-own-model.md literally, in a copy of the files that git tracks,
# and checks each page's promises; Debian's Chromium opens the operators' page. PARM_BINARY is the binary; otherwise it is
# built. PICTURES=FOLDER receives pictures of the page; with PAGE=frontend/page they show these files instead of those in
# the binary. Missing tools are reported, and their part is skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
skipped() {
    echo "newcomer: skipped, $1"
    exit 0
}
major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
[ "${major:-0}" -ge 20 ] || skipped "it needs node 20 or newer"
command -v curl >/dev/null || skipped "it needs curl"
source lab/interop/chromium.sh
have_chromium || skipped "$WHY"
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
export CHROMIUM PAGE_TOOLS PARM_BINARY CLASSIFY SCRATCH
node lab/interop/newcomer/main.mjs
