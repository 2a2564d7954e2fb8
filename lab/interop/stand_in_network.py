"""Trains a wide convolutional network briefly on Fashion-MNIST and exports it: stand_in_network.py DATA FOLDER

DATA has the set's files. FOLDER gets model.onnx, and rows and labels that it was not trained on: for the captured traffic
(traffic.npy), and for grading (asked.npy, labels.npy).
"""

import gzip
import pathlib
import sys

import numpy
import torch
from torch import nn

WIDTHS, TRAINED, BATCH, EPOCHS = (48, 96, 128, 192), 12_000, 64, 2
TRAFFIC = 1_500


def read(path, offset):
    return numpy.frombuffer(gzip.open(path).read(), numpy.uint8, offset=offset)


def part(data, name):
    pixels = read(data / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    return torch.tensor(pixels).float() / 255, torch.tensor(read(data / f"{name}-labels-idx1-ubyte.gz", 8)).long()


def network():
    layers, read = [], 1
    for at, made in enumerate(WIDTHS):
        layers += [nn.Conv2d(read, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if at in (1, 2) else []
        read = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(read, 10))


def main(data, folder):
    torch.manual_seed(1)
    images, labels = part(data, "train")
    order, model = torch.randperm(len(images))[:TRAINED], network()
    steps = EPOCHS * TRAINED // BATCH
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=steps + 1)
    for _ in range(EPOCHS):
        for rows in order[torch.randperm(TRAINED)][: TRAINED // BATCH * BATCH].split(BATCH):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    model.eval()
    images, labels = part(data, "t10k")
    numpy.save(folder / "traffic.npy", images[:TRAFFIC].numpy())
    numpy.save(folder / "asked.npy", images[TRAFFIC:].numpy())
    numpy.save(folder / "labels.npy", labels[TRAFFIC:].numpy())
    with torch.no_grad():
        right = (model(images[TRAFFIC:]).argmax(1) == labels[TRAFFIC:]).float().mean()
    print(f"trained on {TRAINED} pictures, {EPOCHS} times; {100 * right:.1f} % of {len(images) - TRAFFIC} others are right")
    axes = {"pictures": {0: "rows"}, "scores": {0: "rows"}}
    torch.onnx.export(model, images[:2], str(folder / "model.onnx"), dynamo=False, opset_version=17, input_names=["pictures"],
                      output_names=["scores"], dynamic_axes=axes)


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
