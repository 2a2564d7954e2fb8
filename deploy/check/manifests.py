#!/usr/bin/env python3
"""Renders every kustomization and the chart, and checks what comes out. Usage: manifests.py TOOLS [PARM]"""

import pathlib
import sys

import configs
import render
import rules_of_ours
import schemas


def main(tools, parm=None):
    """Says what is wrong with each rendering, and what could not be checked."""
    scratch = pathlib.Path(tools) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    made = render.everything(scratch)
    bad = list(render.problems_of_the_chart())
    bad += rules_of_ours.as_in_the_base(made["base"], made["chart"])
    bad += rules_of_ours.as_in_the_base(made["base with endpoint slices"], made["chart with endpoint slices"])
    kserve = schemas.KServe(pathlib.Path(tools) / "kserve")
    skipped = set()
    for name, objects in made.items():
        kinds = {"kubernetes": [], "packages": [], "kserve": []}
        for found in objects:
            group = found["apiVersion"]
            kind = "packages" if group in schemas.PACKAGES else "kserve" if "kserve" in group else "kubernetes"
            kinds[kind].append((f"{found['kind']} {found['metadata']['name']}", found))
        said = list(schemas.of_kubernetes(kinds["kubernetes"]))
        if kinds["packages"]:
            problems, unknown = schemas.of_packages(kinds["packages"], tools)
            said += problems
            skipped |= unknown
        for title, found in kinds["kserve"]:
            said += [f"{title}{problem}" for problem in kserve.problems(found)]
        said += rules_of_ours.problems(objects)
        if parm:
            said += configs.problems(parm, objects, scratch)
        bad += [f"{name}: {each}" for each in said]
        print(f"  {'bad' if said else 'ok '} {name}: {len(objects)} objects")
    for kind in sorted(skipped):
        print(f"  skipped: the schema of {kind}, which no package has; its references were checked")
    if not parm:
        print("  skipped: configurations, for there is no binary (PARM=FILE, or cargo build --release)")
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main(*sys.argv[1:])
