#!/usr/bin/env python3
"""Makes a wheel of the binary and the Python module, so that `pip install` (or a requirements file) gives `parm` and `import parm`.

A wheel is a zip with four files that describe it; making one of a binary that exists needs no build system. The name is
`parm-rs`, for `parm` is somebody else's; the script `parm-rs` lets `uvx parm-rs` find the program. The platform tag says the oldest C library that the binary runs with, read from the
versions of the symbols that it asks for. Usage: build.py BINARY FOLDER
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAME = "parm-rs"


# The architectures by their numbers in the head of a binary.
MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}


def tag(binary):
    """The platforms that the binary runs on; pip knows none older than that of glibc 2.17 by this name."""
    oldest = max(17, *(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", binary)))
    return f"py3-none-manylinux_2_{oldest}_{MACHINES[binary[18]]}"


def metadata(version):
    """What the package says of itself; the description is the README."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return (
        f"Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\nSummary: {manifest['package']['description']}\n"
        f"Home-page: {manifest['workspace']['package']['repository']}\n"
        f"License-Expression: {manifest['workspace']['package']['license']}\n"
        "License-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\nRequires-Python: >=3.8\n"
        # Of the module only what takes arrays needs it, and the program nothing.
        "Provides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
        "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text()
    )


def main(binary, folder):
    """Writes the wheel: the same bytes for the same binary."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    program = pathlib.Path(binary).read_bytes()
    platform = tag(program)
    stem = f"{NAME.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    module = sorted((ROOT / "python").glob("parm/*.py")) + [ROOT / "python/parm/py.typed"]
    contents = {
        **{f"parm/{file.name}": file.read_bytes() for file in module},
        f"{stem}.data/scripts/parm": program,
        f"{info}/METADATA": metadata(version).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: parm\nRoot-Is-Purelib: false\nTag: {platform}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\nparm-rs = parm.__main__:main\n",
        f"{info}/licenses/LICENSE-APACHE": (ROOT / "LICENSE-APACHE").read_bytes(),
        f"{info}/licenses/LICENSE-MIT": (ROOT / "LICENSE-MIT").read_bytes(),
    }
    record = []
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    contents[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()
    # Zips know no time before 1980.
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(pathlib.Path(folder) / f"{stem}-{platform}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, data)


if __name__ == "__main__":
    main(*sys.argv[1:])
