"""Trains a short wide residual network on pictures: pictures.py DATA FOLDER [SEED] [EPOCHS]

DATA is a folder of CIFAR-10 as JPEG files (train/CLASS/NNNN.jpg, test/CLASS/NNNN.jpg; lossy, so accuracies are slightly
below those on the original) or of Fashion-MNIST (idx files, gzipped). FOLDER gets model.onnx, rows that the network was not
trained on with their labels (held-pictures.npy, held-labels.npy: to make stand-ins from and to choose by), those of the
test set (test-pictures.npy, test-labels.npy: to report only), and a checkpoint (model.pt).

It is fast on one thread because of a fixed first layer that whitens patches, bfloat16 if the processor has it, one cycle of
a high rate with momentum, label smoothing, and augmentation by shifts and a flip in every second epoch. In long runs, early
epochs show only a part of each picture, and later ones hide a square of it.
"""

import gzip
import pathlib
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

WIDTHS, HELD = (64, 256, 256), 2_000
BATCH, RATE, MOMENTUM, DECAY, SMOOTHING = 512, 11.5, 0.85, 0.0153, 0.2
BIASES, WHITENED_EPOCHS = 64.0, 3
# The largest shift in pixels, and the side of the hidden square: larger in long runs.
SHORT, LONG, LONG_EPOCHS = (2, 0), (4, 8), 16
# In long runs this share of the epochs shows three quarters of each side: half the work, and another part every time.
PARTS_SHARE = 0.6

# Other processors compute these numbers in software, eight times as slowly as 32-bit floats.
HALVES = any(name in pathlib.Path("/proc/cpuinfo").read_text() for name in ("avx512_bf16", "amx_bf16"))


def jpegs(folder):
    from PIL import Image

    classes = sorted(entry.name for entry in folder.iterdir())
    files = [(file, at) for at, name in enumerate(classes) for file in sorted((folder / name).iterdir())]
    pixels = numpy.stack([numpy.asarray(Image.open(file).convert("RGB")) for file, _ in files])
    return pixels.transpose(0, 3, 1, 2), numpy.array([label for _, label in files], numpy.int64)


def idx(folder, name):
    read = lambda kind, offset: numpy.frombuffer(gzip.open(folder / f"{name}-{kind}-ubyte.gz").read(), numpy.uint8, offset=offset)
    return read("images-idx3", 16).reshape(-1, 1, 28, 28), read("labels-idx1", 8).astype(numpy.int64)


def sets(data):
    if (data / "train-images-idx3-ubyte.gz").exists():
        return idx(data, "train"), idx(data, "t10k")
    return jpegs(data / "train"), jpegs(data / "test")


class Block(nn.Module):
    def __init__(self, read, width):
        super().__init__()
        self.first = nn.Conv2d(read, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, momentum=0.4) for _ in range(2))
        nn.init.dirac_(self.first.weight[:read])
        for norm in self.norms:
            # The weights of the next layer scale as well; only the bias is learned, and quickly.
            norm.weight.requires_grad = False

    def forward(self, values):
        values = functional.relu(self.norms[0](functional.max_pool2d(self.first(values), 2)))
        return values + functional.relu(self.norms[1](self.second(values)))


class Network(nn.Module):
    def __init__(self, channels):
        super().__init__()
        patches = 2 * channels * 4
        self.whitening = nn.Conv2d(channels, patches, 2)
        self.whitening.weight.requires_grad = False
        self.blocks = nn.Sequential(*(Block(*pair) for pair in zip((patches, *WIDTHS), WIDTHS)))
        self.head = nn.Linear(WIDTHS[-1], 10, bias=False)

    def whiten(self, pictures):
        size, channels = 2, pictures.shape[1]
        patches = pictures.unfold(2, size, 1).unfold(3, size, 1).transpose(1, 3).reshape(-1, channels * size * size)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors.T / torch.sqrt(values + 5e-4)[:, None]).reshape(-1, channels, size, size)
        self.whitening.weight.data[:] = torch.cat((filters, -filters))
        self.whitening.bias.data.zero_()

    def forward(self, pictures):
        values = self.blocks(functional.relu(self.whitening(pictures)))
        return self.head(values.amax((2, 3))) / 9


class Served(nn.Module):
    """Maps pixels from 0 to 1 to the classes' scores."""

    def __init__(self, network, mean, deviation):
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, pictures):
        return self.network((pictures - self.mean) / self.deviation)


def batches(pictures, labels, epoch, flips, sides, shift, hidden):
    """Yields each picture once: a part of these sides, flipped in every second epoch (a random one), with a hidden
    square."""
    order = torch.randperm(len(pictures))
    height, width = sides
    padded = functional.pad(pictures, (shift,) * 4, "reflect")
    parts = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows_of, columns_of = torch.arange(height)[None, :, None], torch.arange(width)[None, None, :]
    for rows in order[: len(order) // BATCH * BATCH].split(BATCH):
        down, right = (torch.randint(places, (BATCH,)) for places in parts.shape[2:4])
        batch = parts[rows, :, down, right]
        flipped = flips[rows] ^ (epoch % 2 == 1)
        batch[flipped] = batch[flipped].flip(3)
        if hidden:
            top, left = (torch.randint(side - hidden + 1, (BATCH, 1, 1)) for side in (height, width))
            inside = (rows_of >= top) & (rows_of < top + hidden) & (columns_of >= left) & (columns_of < left + hidden)
            batch.masked_fill_(inside[:, None], 0.0)
        yield batch, labels[rows]


def seen(sides, epoch, epochs):
    """Returns an epoch's view of each picture: the sides of the part, the largest shift, and the hidden square."""
    if epochs < LONG_EPOCHS:
        return sides, *SHORT
    if epoch < PARTS_SHARE * epochs:
        return tuple(3 * side // 4 for side in sides), 0, 0
    return sides, *LONG


def right(model, pictures, labels):
    model.eval()
    with torch.no_grad():
        best = torch.cat([model(rows.contiguous(memory_format=torch.channels_last)).argmax(1) for rows in pictures.split(500)])
    return (best == labels).float().mean().item()


def train(model, pictures, labels, held, epochs, report):
    steps = len(pictures) // BATCH * epochs
    rate = RATE / (1024 * (1 + 1 / (1 - MOMENTUM)))
    decay = DECAY * BATCH / (1024 * (1 + 1 / (1 - MOMENTUM)))
    biases = [p for name, p in model.named_parameters() if "norms" in name and p.requires_grad]
    others = [p for name, p in model.named_parameters() if "norms" not in name and p.requires_grad]
    groups = [{"params": biases, "lr": rate * BIASES, "weight_decay": decay / (rate * BIASES)}, {"params": others, "lr": rate, "weight_decay": decay / rate}]
    optimiser = torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True)
    peak = int(0.23 * steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda at: 0.2 + 0.8 * at / peak if at < peak else 1 - 0.93 * (at - peak) / (steps - peak)
    )
    flips = torch.rand(len(pictures)) < 0.5
    slow = {name: value.clone() for name, value in model.state_dict().items() if value.is_floating_point()}
    began, done = time.time(), 0
    for epoch in range(epochs):
        model.train()
        model.whitening.bias.requires_grad = epoch < WHITENED_EPOCHS
        for batch, classes in batches(pictures, labels, epoch, flips, *seen(pictures.shape[2:], epoch, epochs)):
            with torch.autocast("cpu", torch.bfloat16, enabled=HALVES):
                scores = model(batch.contiguous(memory_format=torch.channels_last))
            loss = functional.cross_entropy(scores.float(), classes, label_smoothing=SMOOTHING, reduction="sum")
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            done += 1
            # A slow copy of the weights follows the fast one, which continues from it.
            if done % 5 == 0 or done == steps:
                keep = 0.0 if done == steps else 0.95**5 * (done / steps) ** 3
                for name, value in model.state_dict().items():
                    if name in slow:
                        slow[name].lerp_(value, 1 - keep)
                        value.copy_(slow[name])
        report(f"epoch {epoch + 1}: loss {loss.item() / BATCH:.3f}, held out {100 * right(model, *held):.2f} %, {time.time() - began:.0f} s")


def main(data, folder, seed=1, epochs=10):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    (pixels, labels), (test_pixels, test_labels) = sets(data)
    # The held-out set does not depend on the seed, so that seeds are compared on the same pictures.
    order = numpy.random.default_rng(0).permutation(len(pixels))
    to_float = lambda pixels: torch.tensor(pixels).float() / 255
    held = to_float(pixels[order[:HELD]]), torch.tensor(labels[order[:HELD]])
    pictures, classes = to_float(pixels[order[HELD:]]), torch.tensor(labels[order[HELD:]])
    test = to_float(test_pixels), torch.tensor(test_labels)
    mean, deviation = pictures.mean((0, 2, 3))[:, None, None], pictures.std((0, 2, 3))[:, None, None]
    normal = lambda pictures: (pictures - mean) / deviation
    model = Network(pictures.shape[1]).to(memory_format=torch.channels_last)
    model.whiten(normal(pictures[:5_000]))
    train(model, normal(pictures), classes, (normal(held[0]), held[1]), epochs, lambda line: print(line, flush=True))
    served = Served(model, mean, deviation).eval()
    print(f"seed {seed}: held out {100 * right(served, *held):.2f} %, test {100 * right(served, *test):.2f} %", flush=True)
    torch.save(served.state_dict(), folder / "model.pt")
    for name, (rows, classes) in {"held": held, "test": test}.items():
        numpy.save(folder / f"{name}-pictures.npy", rows.numpy())
        numpy.save(folder / f"{name}-labels.npy", classes.numpy())
    served = served.to(memory_format=torch.contiguous_format)
    axes = {"pictures": {0: "rows"}, "scores": {0: "rows"}}
    torch.onnx.export(served, held[0][:2], str(folder / "model.onnx"), dynamo=False, opset_version=17, input_names=["pictures"],
                      output_names=["scores"], dynamic_axes=axes)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:]))
