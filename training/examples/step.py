"""Milliseconds of a training step of the same networks in PyTorch: python3 step.py [THREADS|cuda [MODEL..]].

A name ending in +K is a parity model for groups of K: K images as channels, a prediction for each out.
"""
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if sys.argv[1:2] == ["cuda"] else "cpu"
torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 and DEVICE == "cpu" else 1)
torch.set_default_device(DEVICE)
ROWS, BATCH, CLASSES, EPOCHS = 3840, 64, 10, 4


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )
        self.around = nn.Identity()
        if (inputs, stride) != (outputs, 1):
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.way(x) + self.around(x))


def mlp(channels, outputs):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784 * channels, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(),
        nn.Linear(100, outputs),
    )


def lenet(channels, outputs):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, outputs),
    )


def resnet_small(channels, outputs):
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, outputs),
    )


def resnet18(channels, outputs):
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Block(before, after, 1 + (before != after)) for before, after in zip([64, *widths], widths)]
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, outputs),
    )


BUILD = {"mlp": mlp, "lenet": lenet, "resnet-small": resnet_small, "resnet18": resnet18}
pixels = torch.rand(ROWS, 1, 28, 28)
sure = functional.one_hot(torch.arange(ROWS) % CLASSES, CLASSES).float()
soft = torch.softmax(torch.randn(ROWS, CLASSES), 1)


def sentences(folder):
    """Fine-tuning of the encoder that lab/interop/teachers/sections.py left there, without dropout."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "lab/interop/teachers"))
    import numpy
    import sections

    network = sections.Classifier(sections.Encoder().take(folder / "encoder.onnx")).eval()
    ids, mask, labels = (torch.tensor(numpy.load(folder / f"train-{part}.npy")[: 8 * BATCH]) for part in ("ids", "mask", "labels"))
    adam = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    fastest = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        for rows in torch.randperm(len(ids)).split(BATCH):
            adam.zero_grad()
            functional.cross_entropy(network(ids[rows], mask[rows]), labels[rows]).backward()
            adam.step()
        fastest = min(fastest, (time.perf_counter() - start) / (len(ids) / BATCH))
    return fastest


for name in sys.argv[2:] or ["mlp", "lenet", "resnet-small", "lenet+4", "resnet-small+4"]:
    if name.startswith("sentences:"):
        fastest = sentences(pathlib.Path(name.removeprefix("sentences:")))
        print(f"{name}: {1e3 * fastest:.2f} ms a step, {BATCH / fastest:.0f} rows a second")
        continue
    model, _, k = name.partition("+")
    k, targets = (int(k), soft) if k else (1, sure)
    network = BUILD[model](k, k * CLASSES)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    fastest = float("inf")
    for _ in range(EPOCHS):
        groups = torch.cat([torch.randperm(ROWS) for _ in range(k)]).view(-1, k)
        start = time.perf_counter()
        for members in groups.split(BATCH):
            adam.zero_grad()
            outputs = network(pixels[members].view(-1, k, 28, 28)).view(-1, CLASSES)
            loss = functional.kl_div(functional.log_softmax(outputs, 1), targets[members].view(-1, CLASSES),
                                     reduction="batchmean")
            loss.backward()
            adam.step()
        loss.item()  # waits for the card
        fastest = min(fastest, (time.perf_counter() - start) / (len(groups) / BATCH))
    print(f"{name}: {1e3 * fastest:.2f} ms a step, {BATCH / fastest:.0f} rows a second")
