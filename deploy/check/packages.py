#!/usr/bin/env python3
"""Makes each package of a binary and uses it: Debian package, wheel, root of the image, units, bill of materials.

Usage: packages.py TOOLS PARM
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What `systemd-analyze security` may say at most, of 10.0; 2.0 is where it stops to call a unit "OK".
EXPOSURE = 2.0


def run(*command, **more):
    """A command that must succeed; its output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def fresh(folder):
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def same_twice(make, folder):
    """What a script makes twice has the same bytes; its path."""
    sums = []
    for _ in range(2):
        run(*make, fresh(folder), env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
        (made,) = folder.iterdir()
        sums.append(hashlib.sha256(made.read_bytes()).hexdigest())
    if len(set(sums)) > 1:
        raise SystemExit(f"{made.name} is another file every time")
    return made


def debian(scratch, parm):
    """The package unpacks to a program that lists its models, and to configurations and units that hold."""
    if not shutil.which("dpkg-deb"):
        return "skipped: the Debian package, for dpkg-deb is not here"
    made = same_twice([sys.executable, ROOT / "deploy/debian/package.py", parm], scratch / "deb")
    root = fresh(scratch / "deb-root")
    run("dpkg-deb", "-x", made, root)
    program = root / "usr/bin/parm"
    models = json.loads(run(program, "models", "list", "--models", root / "usr/share/parm/models", "--output", "json"))
    run(program, "models", "verify", "--models", root / "usr/share/parm/models")
    units(root, program)
    return f"ok  {made.name}: {len(models['models'] if isinstance(models, dict) else models)} models, units, configurations"


def units(root, program):
    """Units name programs and flags that there are, and are as closed as they should be."""
    folder = root / "usr/lib/systemd/system"
    for file in (root / "etc/parm").glob("*.toml"):
        # The package is unpacked, not installed.
        file.write_text(file.read_text().replace('"/usr/share/parm', f'"{root}/usr/share/parm'))
    for file in sorted(folder.glob("*.service")):
        text = file.read_text().replace("/usr/bin/parm", str(program))
        credential, source = re.search(r"^LoadCredential=(.*):(.*)$", text, re.M).groups()
        args = re.search(r"^ExecStart=\S+ ((?:.*\\\n)*.*)$", text, re.M)[1].replace("\\\n", " ")
        for old, new in {"${CREDENTIALS_DIRECTORY}/" + credential: str(root) + source, "${ADDRESS}": "127.0.0.1", "%i": "910"}.items():
            args = args.replace(old, new)
        dumped = tomllib.loads(run(program, *args.split(), "--dump-config"))
        stop = int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)[1])
        if stop < (dumped["server"]["drain_delay_ms"] + dumped["server"]["drain_timeout_ms"]) / 1000 + 5:
            raise SystemExit(f"{file.name}: is killed while it drains")
        if not shutil.which("systemd-analyze"):
            continue
        # An instance of the template, where it is one.
        unit = fresh(root.parent / "unit") / file.name.replace("@.", "@910.")
        unit.write_text(text)
        run("systemd-analyze", "verify", "--man=no", unit)
        said = run("systemd-analyze", "security", "--offline=yes", "--no-pager", unit)
        level = float(re.search(r"exposure level for \S+: (\S+)", said)[1])
        if level > EXPOSURE:
            raise SystemExit(f"{file.name}: systemd-analyze security says {level}, more than {EXPOSURE}")


def wheel(scratch, parm):
    """pip installs it, and then there is `parm`."""
    made = same_twice([sys.executable, ROOT / "deploy/wheel/build.py", parm], scratch / "wheel")
    venv = fresh(scratch / "venv")
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", made)
    said, want = run(venv / "bin/parm", "--version"), run(parm, "--version")
    if said != want:
        raise SystemExit(f"the wheel's parm is {said}, not {want}")
    audit = pathlib.Path(sys.executable).with_name("auditwheel")
    platform = made.stem.split("-")[-1]
    if f'"{platform}"' not in run(audit, "show", made).replace("\n", " "):
        raise SystemExit(f"auditwheel disagrees with {platform}")
    return f"ok  {made.name}: installed, {said.strip()}"


def image(scratch, parm):
    """The root of the image runs as nobody, read-only, without anything of this machine but its kernel."""
    version = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    if f"FROM rust:{version.rpartition('.')[0]}-" not in text:
        raise SystemExit(f"deploy/docker/Dockerfile builds with another compiler than {version}")
    left_out = {line.strip("/") for line in (ROOT / "deploy/docker/Dockerfile.dockerignore").read_text().splitlines()}
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    if left_out & {"src", "models", "examples", "deploy", *members}:
        raise SystemExit(f"deploy/docker/Dockerfile.dockerignore leaves out {left_out & {'src', 'models', 'deploy', *members}}")
    root = fresh(scratch / "image")
    run(ROOT / "deploy/docker/root.sh", parm, "models", root, cwd=ROOT)
    if os.geteuid():
        return f"skipped: running the image's root, for only root may change to it; it was made ({root})"
    command = json.loads(re.search(r"^CMD (.*)$", text, re.M)[1])
    # Free ports in place of the image's.
    command = [re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", part) for part in command]
    inside = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec chroot --userspec=65532:65532 "$0" /usr/bin/parm "$@"'
    arguments = ["unshare", "--mount", "sh", "-c", inside, str(root), *command, "--log-format", "json"]
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = []
        for line in server.stdout:
            lines.append(line)
            address = re.search(r'"http":"([\d.:]+)"', line)
            if address:
                break
        else:
            raise SystemExit(f"the image's root does not start: {''.join(lines)}")
        with urllib.request.urlopen(f"http://{address[1]}/v2/models/fashion-lenet/ready", timeout=30) as answer:
            assert answer.status == 200
        user = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        if not re.search(r"^Uid:\t65532\t", user, re.M):
            raise SystemExit("the image runs as somebody else")
    finally:
        server.terminate()
    if server.wait(timeout=60):
        raise SystemExit("the image's root does not drain")
    files = sum(1 for path in root.rglob("*") if path.is_file())
    return f"ok  root of the image: {files} files, serves as 65532 from a read-only root"


def bill(scratch):
    """The bill of materials keeps to its schema, and names every crate that is linked."""
    machine = os.uname().machine
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    command += ["--filter-platform", f"{machine}-unknown-linux-gnu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if shutil.which("cargo") else None
    if done is None or done.returncode:
        return "skipped: the bill of materials, for cargo is not here or has not fetched the crates"
    text = run(sys.executable, ROOT / "deploy/release/sbom.py", input=done.stdout)
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    if wrong:
        raise SystemExit(f"bill of materials: {wrong}")
    parts = json.loads(text)["components"]
    inside = {part["name"] for part in parts if part["scope"] == "required"}
    if not {"tokio", "hyper", "parm-dispatcher"} <= inside or "clap_derive" in inside:
        raise SystemExit("bill of materials: what is linked is not what it says")
    nameless = [part["name"] for part in parts if "licenses" not in part]
    if nameless:
        raise SystemExit(f"bill of materials: no licence of {nameless}")
    (scratch / "parm.cdx.json").write_text(text)
    return f"ok  bill of materials: {len(parts)} crates, {len(inside)} of them linked"


def main(tools, parm):
    """All of them, each with a line."""
    scratch = pathlib.Path(tools).resolve() / "packages"
    parm = pathlib.Path(parm).resolve()
    began = time.monotonic()
    for made in (debian(scratch, parm), wheel(scratch, parm), image(scratch, parm), bill(scratch)):
        print(f"  {made}")
    print(f"  ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main(*sys.argv[1:])
