#!/usr/bin/env python3
"""Writes a model repository with ResNet-18 for 224 x 224 pixels, a parity model for k = 2 and a stand-in.

    lab/gpu/networks.py FOLDER [--pixels N]

The weights are random: the networks serve to measure time and memory, not accuracy. The parity model is another ResNet-18,
as in the paper; the stand-in has a quarter of its channels. Needs `onnx` and `numpy`.
"""

import argparse
import hashlib
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKS = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
CLASSES = 1000


class Graph:
    """A graph in the making."""

    def __init__(self, seed):
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(seed)

    def node(self, kind, inputs, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def weight(self, *shape, fan_in):
        name = f"weight{len(self.weights)}"
        values = self.random.standard_normal(shape, np.float32) * np.sqrt(2 / fan_in)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def convolution(self, value, channels_in, channels, size, stride):
        weight = self.weight(channels, channels_in, size, size, fan_in=channels_in * size * size)
        bias = self.weight(channels, fan_in=1e6)
        pads = [size // 2] * 4
        return self.node("Conv", [value, weight, bias], kernel_shape=[size, size], strides=[stride] * 2, pads=pads)


def resnet(seed, width, pixels):
    """Returns ResNet-18 with its batch normalisation folded; `width` scales the channels."""
    graph = Graph(seed)
    channels = int(64 * width)
    value = graph.node("Relu", [graph.convolution("input", 3, channels, 7, 2)])
    value = graph.node("MaxPool", [value], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for full, stride in BLOCKS:
        before, channels_in, channels = value, channels, int(full * width)
        value = graph.node("Relu", [graph.convolution(value, channels_in, channels, 3, stride)])
        value = graph.convolution(value, channels, channels, 3, 1)
        if stride != 1:
            before = graph.convolution(before, channels_in, channels, 1, stride)
        value = graph.node("Relu", [graph.node("Add", [value, before])])
    value = graph.node("Flatten", [graph.node("GlobalAveragePool", [value])])
    last = graph.weight(CLASSES, channels, fan_in=channels)
    graph.nodes.append(helper.make_node("Gemm", [value, last], ["output"], transB=1))
    shape = ["batch", 3, pixels, pixels]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", CLASSES])]
    made = helper.make_graph(graph.nodes, "resnet18", inputs, outputs, graph.weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


BUNDLE = """format = 1

[deployed]
version = 1
sha256 = "{resnet18}"

[[deployed.inputs]]
name = "input"
datatype = "FP32"
shape = [-1, 3, {pixels}, {pixels}]

[[deployed.outputs]]
name = "output"
datatype = "FP32"
shape = [-1, {classes}]
meaning = "logits"

[[stand_in]]
model = {{ name = "small", version = 1, sha256 = "{small}" }}

[[parity]]
code = {{ kind = "sum", k = 2, r = 1 }}
models = [{{ name = "parity", version = 1, sha256 = "{parity}" }}]
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--pixels", type=int, default=224)
    arguments = parser.parse_args()
    digests = {}
    for name, seed, width in (("resnet18", 1, 1), ("parity", 2, 1), ("small", 3, 0.25)):
        path = arguments.folder / name / "1" / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(resnet(seed, width, arguments.pixels), path)
        digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    bundle = BUNDLE.format(pixels=arguments.pixels, classes=CLASSES, **digests)
    (arguments.folder / "resnet18" / "parm.toml").write_text(bundle)


if __name__ == "__main__":
    main()
