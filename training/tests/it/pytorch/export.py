#!/usr/bin/env python3
"""Writes cnn.onnx, a network that is none of ours, as PyTorch exports it, with inputs and PyTorch's own outputs.

Needs PyTorch (Debian: python3-torch) and Fashion-MNIST (Debian: dataset-fashion-mnist). Trains for one epoch, so that
a parity model has something to learn from it.
"""

import gzip
import pathlib

import numpy
import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def images(name):
    raw = gzip.open(DATA / f"{name}-images-idx3-ubyte.gz").read()
    return torch.tensor(numpy.frombuffer(raw, numpy.uint8, offset=16).reshape(-1, 1, 28, 28) / 255.0).float()


def labels(name):
    raw = gzip.open(DATA / f"{name}-labels-idx1-ubyte.gz").read()
    return torch.tensor(numpy.frombuffer(raw, numpy.uint8, offset=8).astype(numpy.int64))


class Gate(nn.Module):
    """Weighs channels by what the whole image shows."""

    def __init__(self, channels):
        super().__init__()
        self.inner = nn.Conv2d(channels, channels // 4, 1)
        self.outer = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        seen = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.outer(nn.functional.silu(self.inner(seen))))


class Block(nn.Module):
    """A depthwise convolution, a gate, a pointwise convolution, and a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.depth = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.norm = nn.BatchNorm2d(inputs)
        self.gate = Gate(inputs)
        self.point = nn.Conv2d(inputs, outputs, 1)
        self.same = inputs == outputs and stride == 1

    def forward(self, x):
        y = self.point(self.gate(nn.functional.hardswish(self.norm(self.depth(x)))))
        return x + y if self.same else y


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.GELU())
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)).mean((2, 3))))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, x, y = Cnn(), images("train"), labels("train")
    steps = torch.randperm(len(x)).split(128)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, len(steps))
    for rows in steps:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        tested = torch.cat([model(rows) for rows in images("t10k").split(500)])
        accuracy = (tested.argmax(1) == labels("t10k")).float().mean().item()
        print(f"{sum(p.numel() for p in model.parameters())} weights, test accuracy {accuracy:.4f}")
        few = images("t10k")[:3]
        numpy.save(HERE / "inputs.npy", few.numpy())
        numpy.save(HERE / "outputs.npy", model(few).numpy())
    axes = {"image": {0: "batch"}, "scores": {0: "batch"}}
    torch.onnx.export(
        model, few, str(HERE / "cnn.onnx"), input_names=["image"], output_names=["scores"], dynamic_axes=axes,
        opset_version=17,
    )


if __name__ == "__main__":
    main()
