# Sourced by the recipes: `environment NAME PACKAGE...` makes (once) a Python environment under .parm/interop.
environment() {
    VENV=$PWD/.parm/interop/$1
    shift
    if [ ! -e "$VENV/complete" ]; then
        python3 -m venv "$VENV"
        "$VENV/bin/pip" install -q --disable-pip-version-check setuptools wheel "$@"
        touch "$VENV/complete"
    fi
}
