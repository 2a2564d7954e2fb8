"""Milliseconds of a training step of the same networks in PyTorch: python3 step.py [threads]."""
import sys
import time

import torch
from torch import nn

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
NETWORKS = {
    "mlp": nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10)
    ),
    "lenet": nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ),
}
inputs, labels = torch.rand(7680, 1, 28, 28), torch.arange(7680) % 10
for name, network in NETWORKS.items():
    adam = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    fastest = float("inf")
    for _ in range(4):
        order = torch.randperm(len(inputs))
        start = time.perf_counter()
        for rows in order.split(64):
            adam.zero_grad()
            nn.functional.cross_entropy(network(inputs[rows]), labels[rows]).backward()
            adam.step()
        fastest = min(fastest, (time.perf_counter() - start) / (len(inputs) / 64))
    print(f"{name}: {1e3 * fastest:.2f} ms a step, {64 / fastest:.0f} rows a second")
