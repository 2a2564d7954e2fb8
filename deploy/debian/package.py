#!/usr/bin/env python3
"""Makes the Debian package of [package.metadata.deb], with dpkg-deb alone.

`cargo deb` reads the same table; it has to be compiled first, which a release should not have to wait for. Patterns work as
there: what of a path lies below the pattern's first star stays below the target. Usage: package.py BINARY FOLDER
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHELLS = {
    "bash": "bash-completion/completions/parm",
    "zsh": "zsh/vendor-completions/_parm",
    "fish": "fish/vendor_completions.d/parm.fish",
}
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def files(pattern, binary):
    """Files that a pattern names, each with its path below the first star."""
    if pattern.startswith("target/"):
        return [(binary, pathlib.Path(binary).name)]
    fixed = pathlib.Path(*[part for part in pathlib.Path(pattern.split("*")[0] + "x").parts[:-1]])
    found = sorted(path for path in ROOT.glob(pattern) if path.is_file())
    if not found:
        raise SystemExit(f"[package.metadata.deb] assets: nothing is called {pattern}")
    return [(path, path.relative_to(ROOT / fixed) if "*" in pattern else path.name) for path in found]


def libraries(binary):
    """The packages that a binary needs: the C library's, at the version of the youngest symbol, and the compiler's."""
    needed = sorted({int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", pathlib.Path(binary).read_bytes())})
    return f"libc6 (>= 2.{needed[-1]}), libgcc-s1"


def control(package, table, binary, size):
    """The package's description of itself."""
    text = "\n".join(f" {line}" if line else " ." for line in table["extended-description"].splitlines())
    return (
        f"Package: {package['name']}\nVersion: {package['version']}-1\nArchitecture: {MACHINES[os.uname().machine]}\n"
        f"Maintainer: {table['maintainer']}\nInstalled-Size: {size // 1024}\n"
        f"Depends: {table['depends'].replace('$auto', libraries(binary))}\n"
        f"Section: {table['section']}\nPriority: {table['priority']}\nHomepage: {package['repository']}\n"
        f"Description: {package['description'].split(':')[0]}\n{text}\n"
    )


def manual(binary, stage):
    """What the binary says of itself to `man` and to shells."""
    pages = stage / "usr/share/man/man1"
    subprocess.run([binary, "man", pages], check=True, stdout=subprocess.DEVNULL)
    for page in sorted(pages.iterdir()):
        page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
    for shell, path in SHELLS.items():
        script = stage / "usr/share" / path
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes(subprocess.run([binary, "completions", shell], check=True, stdout=subprocess.PIPE).stdout)


def main(binary, folder):
    """Stages everything and packs it."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    package = manifest["workspace"]["package"] | manifest["package"]
    package |= {key: manifest["workspace"]["package"][key] for key in ("version", "repository")}
    table = package["metadata"]["deb"]
    with tempfile.TemporaryDirectory() as scratch:
        stage = pathlib.Path(scratch)
        stage.chmod(0o755)
        size = 0
        for pattern, target, mode in table["assets"]:
            for source, below in files(pattern, binary):
                path = stage / target / below
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, path)
                path.chmod(int(mode, 8))
                size += path.stat().st_size
        documents = stage / "usr/share/doc" / package["name"]
        (documents / "copyright").write_text(f"{table['copyright']}\n\n" + (ROOT / table["license-file"][0]).read_text())
        changes = documents / "CHANGELOG.md"
        (documents / "changelog.gz").write_bytes(gzip.compress(changes.read_bytes(), mtime=0))
        changes.unlink()
        manual(binary, stage)
        about = stage / "DEBIAN"
        about.mkdir()
        (about / "control").write_text(control(package, table, binary, size))
        (about / "conffiles").write_text("".join(f"{path}\n" for path in table["conf-files"]))
        for script in (ROOT / table["maintainer-scripts"]).iterdir():
            shutil.copyfile(script, about / script.name)
            (about / script.name).chmod(0o755)
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        # The lowest level of xz: a sixth more bytes (17.9 MB for 15.4), and far less time.
        pack = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(stage), folder]
        subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
