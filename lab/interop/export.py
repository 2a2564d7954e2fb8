"""Exports the networks of networks.py by one of PyTorch's exporters: export.py torchscript
dynamo FOLDER [NAME..]

FOLDER/NAME-EXPORTER gets model.onnx, random rows for every input to make stand-ins from (rows-0.npy, ..), and others to
compare answers on (fresh-0.npy, ..). If a network cannot be exported, the reason is in failed.txt.
"""

import logging
import pathlib
import sys
import warnings

import numpy
import torch

import networks

OPSET, ROWS, FRESH = 17, 320, 48


def export(exporter, name, path):
    network, inputs = networks.made(name), networks.rows(name, 2, 3)
    names = list(networks.NETWORKS[name][1])
    count = len(network(*inputs)) if isinstance(network(*inputs), tuple) else 1
    settings = {"input_names": names, "output_names": [f"output_{at}" for at in range(count)]}
    # The number of rows varies, and the length of lists of words too.
    is_list = [isinstance(shape[0], str) for shape in networks.NETWORKS[name][1].values()]
    if exporter == "torchscript":
        axes = {given: {0: "rows", 1: "length"} if long else {0: "rows"} for given, long in zip(names, is_list)}
        axes |= {output: {0: "rows"} for output in settings["output_names"]}
        torch.onnx.export(network, tuple(inputs), path, dynamo=False, opset_version=OPSET, dynamic_axes=axes, **settings)
        return
    rows, length = torch.export.Dim("rows", min=1, max=4096), torch.export.Dim("length", min=2, max=128)
    shapes = tuple({0: rows, 1: length} if long else {0: rows} for long in is_list)
    program = torch.onnx.export(network, tuple(inputs), dynamo=True, dynamic_shapes=shapes, verbose=False, **settings)
    program.save(path, external_data=False)


def main(exporter, folder, chosen):
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for name in chosen or networks.NETWORKS:
        place = pathlib.Path(folder) / f"{name}-{exporter}"
        if (place / "complete").exists():
            continue
        place.mkdir(parents=True, exist_ok=True)
        (place / "failed.txt").unlink(missing_ok=True)
        try:
            with torch.no_grad():
                export(exporter, name, str(place / "model.onnx"))
        except Exception as error:
            reason = [line.strip() for line in str(error).splitlines() if line.strip()]
            (place / "failed.txt").write_text(f"{type(error).__name__}: {reason[0] if reason else ''}"[:300])
            print(f"{name} by {exporter}: {(place / 'failed.txt').read_text()}", file=sys.stderr)
            continue
        for kind, count, seed in [("rows", ROWS, 11), ("fresh", FRESH, 12)]:
            for at, array in enumerate(networks.rows(name, count, seed)):
                numpy.save(place / f"{kind}-{at}.npy", array.numpy())
        (place / "complete").touch()


main(sys.argv[1], sys.argv[2], sys.argv[3:])
