# Sourced by the recipes: `have_chromium` finds Debian's Chromium or installs it if permitted, and installs playwright-core
# and axe-core under .parm. Sets CHROMIUM and PAGE_TOOLS, or WHY on failure.
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

have_chromium() {
    if ! find_chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 || true
    fi
    WHY="Chromium is not installed and could not be"
    CHROMIUM=$(find_chromium) || return 1
    PAGE_TOOLS=$PWD/.parm/interop/page
    WHY="playwright-core and axe-core could not be installed"
    if [ ! -e "$PAGE_TOOLS/complete" ]; then
        mkdir -p "$PAGE_TOOLS"
        npm install --prefix "$PAGE_TOOLS" --ignore-scripts --no-audit --no-fund --silent playwright-core@1.65.1 axe-core@4.14.1 || return 1
        touch "$PAGE_TOOLS/complete"
    fi
}
