# Sourced by the recipes.

# `environment NAME PACKAGE...` creates (once) a Python environment under .parm/interop and sets VENV to it.
environment() {
    VENV=$PWD/.parm/interop/$1
    shift
    if [ ! -e "$VENV/complete" ]; then
        python3 -m venv "$VENV"
        "$VENV/bin/pip" install -q --disable-pip-version-check setuptools wheel "$@"
        touch "$VENV/complete"
    fi
}

# `binary FLAG...` sets PARM_BINARY to a given binary or to this tree's, built with these flags.
binary() {
    if [ -z "${PARM_BINARY:-}" ]; then
        cargo build --release -p parm "$@"
        PARM_BINARY=$PWD/target/release/parm
    fi
    PARM_BINARY=$(realpath "$PARM_BINARY")
    export PARM_BINARY
}
