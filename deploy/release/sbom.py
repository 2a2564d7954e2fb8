#!/usr/bin/env python3
"""The bill of materials of the binary, in CycloneDX 1.5: every crate that is compiled into it or builds it.

From `cargo metadata` (standard input) and the sums in Cargo.lock, so that nothing has to be installed. Crates that only
build (macros, build scripts) are marked `excluded`. Usage: cargo metadata ... | sbom.py > parm.cdx.json
"""

import datetime
import json
import os
import pathlib
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def reached(nodes, start, kinds):
    """Crates that one reaches over dependencies of these kinds (None is an ordinary one)."""
    found, ahead = set(), [start]
    while ahead:
        node = ahead.pop()
        if node in found:
            continue
        found.add(node)
        for dependency in nodes[node]["deps"]:
            if any(kind["kind"] in kinds for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    return found


def is_macro(package):
    """Whether a crate is a procedural macro: it runs in the compiler."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def linked(nodes, packages, start):
    """Crates whose code is in the binary: ordinary dependencies, but not those of macros."""
    found, ahead = set(), [start]
    while ahead:
        node = ahead.pop()
        if node in found or is_macro(packages[node]):
            continue
        found.add(node)
        for dependency in nodes[node]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    return found


def component(package, sums, is_linked):
    """A crate as CycloneDX has it."""
    name, version = package["name"], package["version"]
    made = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
        "scope": "required" if is_linked else "excluded",
    }
    if package.get("license"):
        # Cargo once let a slash stand for "or".
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in sums:
        made["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def main():
    """Reads the metadata and prints the bill."""
    metadata = json.load(sys.stdin)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(each["name"], each["version"]): each["checksum"] for each in lock if "checksum" in each}
    used = reached(nodes, root, {None, "build"})
    inside = linked(nodes, packages, root)
    names = {node: f"{packages[node]['name']}@{packages[node]['version']}" for node in used}
    main_component = component(packages[root], sums, True) | {"type": "application"}
    moment = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), datetime.timezone.utc)
    others = [component(packages[node], sums, node in inside) for node in sorted(used - {root}, key=names.get)]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same for the same content: a release can be made twice and compared.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(others, sort_keys=True))}",
        "version": 1,
        "metadata": {"timestamp": moment.isoformat().replace("+00:00", "Z"), "component": main_component},
        "components": others,
        "dependencies": [
            {
                "ref": names[node],
                "dependsOn": sorted(
                    {
                        names[each["pkg"]]
                        for each in nodes[node]["deps"]
                        if each["pkg"] in used and any(kind["kind"] in (None, "build") for kind in each["dep_kinds"])
                    }
                ),
            }
            for node in sorted(used, key=names.get)
        ],
    }
    json.dump(bill, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
