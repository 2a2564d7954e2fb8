#!/usr/bin/env bash
# Makes what a release is: a folder of archive, Debian package, wheels, chart, bill of materials and their sums. Builds the
# binary unless PARM names one. The same commit and binary give the same bytes.
#
# Problem: a binary asks for the C library of the machine that linked it, so it runs on few others. Choice: zig links against
# glibc 2.17, that of every distribution since 2014, and is a Python package, as cargo-zigbuild is. The wheel for aarch64 is
# made where rustup has that target.
#
#   deploy/release/release.sh [FOLDER]        default: target/release-files
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/release-files}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
if [ -z "${PARM:-}" ]; then
    tools=$PWD/.parm/zig
    if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" install -q --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.1
    fi
    for architecture in x86_64 aarch64; do
        target=$architecture-unknown-linux-gnu
        if [ ! -d "$(rustc --print target-libdir --target $target)" ]; then
            printf 'skipped: %s, which needs rustup target add %s\n' $architecture $target >&2
            continue
        fi
        PATH=$tools/bin:$PATH cargo zigbuild --profile dist --locked -p parm --target $target.2.17
        [ $architecture = "$machine" ] || others=target/$target/dist/parm
    done
    PARM=target/$machine-unknown-linux-gnu/dist/parm
fi
[ "$("$PARM" --version)" = "parm $version" ] || { printf '%s is not version %s\n' "$PARM" "$version" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"

# Packs a folder, so that it is the same whoever packs it: `archive FILE PARENT NAME`.
archive() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$2" -cf - "$3" | gzip -9n >"$1"
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
name=parm-$version-$machine-linux
mkdir -p "$stage/$name/systemd"
install -m 755 "$PARM" "$stage/$name/parm"
cp -R models "$stage/$name/models"
"$PARM" man "$stage/$name/man/man1" >/dev/null
mkdir "$stage/$name/completions"
for shell in bash zsh fish; do
    "$PARM" completions $shell >"$stage/$name/completions/parm.$shell"
done
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$stage/$name/"
cp deploy/systemd/* "$stage/$name/systemd/"
chmod -R u=rwX,go=rX "$stage/$name"
archive "$out/$name.tar.gz" "$stage" "$name"

cp -R deploy/helm/parm "$stage/parm"
archive "$out/parm-chart-$version.tgz" "$stage" parm

for binary in "$PARM" ${others:-}; do
    python3 deploy/wheel/build.py "$binary" "$out"
done
if command -v dpkg-deb >/dev/null; then
    python3 deploy/debian/package.py "$PARM" "$out"
else
    printf 'skipped: the Debian package, for dpkg-deb is not here\n' >&2
fi
cargo metadata --locked --format-version 1 --filter-platform "$machine-unknown-linux-gnu" |
    python3 deploy/release/sbom.py >"$out/parm-$version.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
