"""Small networks of the kinds that are served in practice, with random weights, written in PyTorch without downloads.

A query of each takes about a millisecond or more, so that a stand-in could be worthwhile. `NETWORKS` maps each name to the
network and its inputs, as shapes of a row with the kind of numbers.
"""

import torch
import torch.nn.functional as F
from torch import nn

PICTURE = (3, 64, 64)


def conv_norm(read, made, kernel=3, stride=1, groups=1, activation=nn.ReLU):
    layers = [nn.Conv2d(read, made, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(made)]
    return nn.Sequential(*layers, activation()) if activation else nn.Sequential(*layers)


def head(read, classes=20):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(read, classes))


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels, squeeze, gate):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeeze, 1), nn.Conv2d(squeeze, channels, 1)
        self.gate = gate

    def forward(self, x):
        small = F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))
        return x * self.gate(self.up(small))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3 and EfficientNet."""

    def __init__(self, read, made, stride, activation, gate, kernel=3, expand=4):
        super().__init__()
        inner = read * expand
        self.body = nn.Sequential(
            conv_norm(read, inner, 1, activation=activation),
            conv_norm(inner, inner, kernel, stride, inner, activation),
            Gate(inner, max(inner // 4, 8), gate()),
            conv_norm(inner, made, 1, activation=None),
        )
        self.is_residual = stride == 1 and read == made

    def forward(self, x):
        return x + self.body(x) if self.is_residual else self.body(x)


def mobilenet():
    block = lambda *sizes: Inverted(*sizes, nn.Hardswish, nn.Hardsigmoid)
    body = [conv_norm(3, 24, 3, 2, activation=nn.Hardswish), block(24, 24, 1), block(24, 40, 2), block(40, 40, 1)]
    body += [block(40, 80, 2), block(80, 80, 1), conv_norm(80, 320, 1, activation=nn.Hardswish)]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(320, 512), nn.Hardswish(), nn.Linear(512, 20)]
    return nn.Sequential(*body, *tail)


def efficientnet():
    block = lambda *sizes: Inverted(*sizes, nn.SiLU, nn.Sigmoid)
    body = [conv_norm(3, 32, 3, 2, activation=nn.SiLU), block(32, 32, 1), block(32, 48, 2), block(48, 48, 1)]
    return nn.Sequential(*body, block(48, 96, 2), block(96, 96, 1), conv_norm(96, 384, 1, activation=nn.SiLU), head(384))


class Separable(nn.Module):
    """PP-LCNet's block: depthwise, optionally a gate, pointwise."""

    def __init__(self, read, made, stride=1, kernel=3, has_gate=False):
        super().__init__()
        self.depth = conv_norm(read, read, kernel, stride, read, nn.Hardswish)
        self.gate = Gate(read, read // 4, nn.Hardsigmoid()) if has_gate else nn.Identity()
        self.point = conv_norm(read, made, 1, activation=nn.Hardswish)

    def forward(self, x):
        return self.point(self.gate(self.depth(x)))


def lcnet():
    body = [conv_norm(3, 32, 3, 2, activation=nn.Hardswish), Separable(32, 64), Separable(64, 128, 2), Separable(128, 128)]
    body += [Separable(128, 256, 2, 5), Separable(256, 256, 1, 5), Separable(256, 512, 2, 5, True), Separable(512, 512, 1, 5, True)]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(512, 1024, 1), nn.Hardswish(), nn.Flatten(), nn.Linear(1024, 20), nn.Softmax(-1)]
    return nn.Sequential(*body, *tail)


class Attention(nn.Module):
    """Queries, keys and values from one product, as in vision transformers; in parts, or as PyTorch's own operator."""

    def __init__(self, width, heads, is_fused=False, is_causal=False):
        super().__init__()
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.is_fused, self.is_causal = heads, is_fused, is_causal

    def forward(self, x, mask=None):
        rows, length, width = x.shape
        q, k, v = self.parts(x).reshape(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.is_fused:
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.is_causal)
        else:
            scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
            if mask is not None:
                scores = scores + mask
            seen = scores.softmax(-1) @ v
        return self.out(seen.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    """A transformer's block, normalised before (vision models and GPT) or after (BERT)."""

    def __init__(self, width, heads, is_before=True, **settings):
        super().__init__()
        self.attention = Attention(width, heads, **settings)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.first, self.second, self.is_before = nn.LayerNorm(width), nn.LayerNorm(width), is_before

    def forward(self, x, mask=None):
        if self.is_before:
            x = x + self.attention(self.first(x), mask)
            return x + self.feed(self.second(x))
        x = self.first(x + self.attention(x, mask))
        return self.second(x + self.feed(x))


class Svtr(nn.Module):
    """A recogniser of a line of text: convolutions, attention over places, a class for each column."""

    def __init__(self, width=96):
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, width // 2, 3, 2, activation=nn.GELU), conv_norm(width // 2, width, 3, 2, activation=nn.GELU))
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(3))
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, 40)

    def forward(self, picture):
        x = self.stem(picture)
        rows, width, height, length = x.shape
        x = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).transpose(1, 2).reshape(rows, width, height, length)
        return self.classes(x.mean(2).transpose(1, 2)).softmax(-1)


class Residual(nn.Module):
    def __init__(self, read, made, stride=1):
        super().__init__()
        self.body = nn.Sequential(conv_norm(read, made, 3, stride), conv_norm(made, made, activation=None))
        self.short = conv_norm(read, made, 1, stride, activation=None) if stride > 1 or read != made else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet():
    body = [conv_norm(3, 64, 3, 2), Residual(64, 64), Residual(64, 128, 2), Residual(128, 128), Residual(128, 256, 2)]
    return nn.Sequential(*body, head(256))


def vgg():
    layers, read = [], 3
    for made in [32, 64, 128, 128]:
        layers += [nn.Conv2d(read, made, 3, padding=1), nn.ReLU(), nn.Conv2d(made, made, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        read = made
    tail = [nn.Flatten(), nn.Linear(128 * 16, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 20)]
    return nn.Sequential(*layers, *tail)


class Dense(nn.Module):
    """A block of DenseNet: each layer reads all previous ones."""

    def __init__(self, read, growth, count):
        super().__init__()
        layer = lambda read: nn.Sequential(
            nn.BatchNorm2d(read), nn.ReLU(), nn.Conv2d(read, 4 * growth, 1, bias=False), nn.BatchNorm2d(4 * growth), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))
        self.layers = nn.ModuleList(layer(read + at * growth) for at in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet():
    step = lambda read, made: nn.Sequential(nn.BatchNorm2d(read), nn.ReLU(), nn.Conv2d(read, made, 1, bias=False), nn.AvgPool2d(2))
    body = [conv_norm(3, 48, 3, 2), Dense(48, 24, 4), step(144, 72), Dense(72, 24, 4), step(168, 84), Dense(84, 24, 4)]
    return nn.Sequential(*body, nn.BatchNorm2d(180), nn.ReLU(), head(180))


class Squeeze(nn.Module):
    """SqueezeNet's block: two branches that are joined."""

    def __init__(self, read, squeeze, made):
        super().__init__()
        self.down = nn.Conv2d(read, squeeze, 1)
        self.small, self.large = nn.Conv2d(squeeze, made, 1), nn.Conv2d(squeeze, made, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.down(x))
        return torch.cat([F.relu(self.small(x)), F.relu(self.large(x))], 1)


def squeezenet():
    body = [nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Squeeze(64, 32, 96), Squeeze(192, 32, 96)]
    body += [nn.MaxPool2d(3, 2, ceil_mode=True), Squeeze(192, 64, 160), Squeeze(320, 64, 160), nn.Conv2d(320, 20, 1), nn.ReLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Shuffle(nn.Module):
    """ShuffleNetV2's block: half of the channels bypass it, then all are shuffled."""

    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(conv_norm(half, half, 1), conv_norm(half, half, 3, 1, half, None), conv_norm(half, half, 1))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        x = torch.cat([a, self.body(b)], 1)
        rows, width, height, length = x.shape
        return x.reshape(rows, 2, width // 2, height, length).transpose(1, 2).reshape(rows, width, height, length)


def shufflenet():
    return nn.Sequential(conv_norm(3, 96, 3, 2), *[Shuffle(96) for _ in range(3)], conv_norm(96, 192, 3, 2), *[Shuffle(192) for _ in range(3)], conv_norm(192, 512, 1), head(512))


class Next(nn.Module):
    """ConvNeXt's block: depthwise, then features last, a layer normalisation and a feed-forward."""

    def __init__(self, width):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


def convnext():
    step = lambda read, made: nn.Sequential(nn.GroupNorm(1, read), nn.Conv2d(read, made, 2, 2))
    return nn.Sequential(nn.Conv2d(3, 64, 4, 4), Next(64), Next(64), step(64, 128), Next(128), Next(128), Next(128), head(128))


class Vit(nn.Module):
    def __init__(self, width=128, is_fused=True):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.first, self.places = nn.Parameter(torch.randn(1, 1, width) * 0.1), nn.Parameter(torch.randn(1, 65, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, 4, is_fused=is_fused) for _ in range(4))
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, 20)

    def forward(self, picture):
        x = self.patches(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.classes(self.norm(x)[:, 0])


class Bert(nn.Module):
    """Two inputs of any length: words and their mask."""

    def __init__(self, width=192):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(1000, width), nn.Embedding(128, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, 6, is_before=False) for _ in range(4))

    def forward(self, input_ids, attention_mask):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.places(places))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for block in self.blocks:
            x = block(x, mask)
        weights = attention_mask[:, :, None].to(x.dtype)
        return (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


class Gpt(nn.Module):
    """Scores of the next word after each word, with causal attention."""

    def __init__(self, width=192):
        super().__init__()
        self.words, self.places = nn.Embedding(500, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, 6, is_fused=True, is_causal=True) for _ in range(4))
        self.norm, self.next = nn.LayerNorm(width), nn.Linear(width, 500, bias=False)

    def forward(self, input_ids):
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            x = block(x)
        return self.next(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self, kind, width=192):
        super().__init__()
        self.words, self.body = nn.Embedding(1000, 128), kind(128, width, 2, batch_first=True, bidirectional=True)
        self.classes = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, 20))

    def forward(self, input_ids):
        states, _ = self.body(self.words(input_ids))
        return self.classes(states.mean(1))


class TextCnn(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.kernels = nn.ModuleList(nn.Conv1d(width, 128, kernel) for kernel in [3, 4, 5])
        self.classes = nn.Linear(3 * 128, 20)

    def forward(self, input_ids):
        x = self.words(input_ids).transpose(1, 2)
        return self.classes(torch.cat([F.relu(kernel(x)).amax(2) for kernel in self.kernels], 1))


class Unet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        two = lambda read, made: nn.Sequential(conv_norm(read, made), conv_norm(made, made))
        self.a, self.b, self.c = two(3, width), two(width, 2 * width), two(2 * width, 4 * width)
        self.up_b, self.up_a = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.down_b, self.down_a, self.classes = two(4 * width, 2 * width), two(2 * width, width), nn.Conv2d(width, 4, 1)

    def forward(self, picture):
        a = self.a(picture)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        b = self.down_b(torch.cat([self.up_b(c), b], 1))
        return self.classes(self.down_a(torch.cat([self.up_a(b), a], 1)))


class Mixer(nn.Module):
    class Layer(nn.Module):
        def __init__(self, width, places):
            super().__init__()
            feed = lambda size, inner: nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Linear(inner, size))
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.places, self.channels = feed(places, 2 * places), feed(width, 4 * width)

        def forward(self, x):
            x = x + self.places(self.first(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.second(x))

    def __init__(self, width=128):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.layers = nn.Sequential(*[self.Layer(width, 64) for _ in range(4)])
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, 20)

    def forward(self, picture):
        x = self.layers(self.patches(picture).flatten(2).transpose(1, 2))
        return self.classes(self.norm(x).mean(1))


def tabular():
    layers, read = [], 64
    for made in [1024, 1024, 512]:
        layers += [nn.Linear(read, made), nn.BatchNorm1d(made), nn.ReLU(), nn.Dropout(0.1)]
        read = made
    return nn.Sequential(*layers, nn.Linear(read, 5))


def autoencoder():
    down = [nn.Conv2d(3, 32, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(32, 96, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(96, 128, 3, padding=1), nn.LeakyReLU(0.1)]
    up = [nn.Upsample(scale_factor=2), nn.Conv2d(128, 96, 3, padding=1), nn.ELU(), nn.Upsample(scale_factor=2), nn.Conv2d(96, 32, 3, padding=1), nn.ELU(), nn.Conv2d(32, 3, 3, padding=1), nn.Sigmoid()]
    return nn.Sequential(*down, *up)


def wave():
    layers, read = [], 1
    for made, stride in [(32, 4), (64, 4), (128, 2), (128, 2), (128, 1)]:
        layers += [nn.Conv1d(read, made, 9, stride, 4), nn.BatchNorm1d(made), nn.ReLU()]
        read = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(read, 12))


class Siamese(nn.Module):
    """Two inputs through the same weights, and their similarity."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_norm(3, 48, 3, 2), conv_norm(48, 96), conv_norm(96, 96, 3, 2), conv_norm(96, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 64))
        self.last = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, left, right):
        a, b = self.body(left), self.body(right)
        return self.last(torch.cat([(a - b).abs(), a * b], 1))


class Detector(nn.Module):
    """Two sizes of features; scores, and boxes from their distances, of each place: two outputs."""

    def __init__(self):
        super().__init__()
        block = lambda *sizes: conv_norm(*sizes, activation=nn.SiLU)
        self.stem = nn.Sequential(block(3, 32, 3, 2), block(32, 64, 3, 2), block(64, 96))
        self.down, self.neck = block(96, 128, 3, 2), block(128, 96, 1)
        self.merge = block(192, 96)
        self.scores = nn.ModuleList([nn.Conv2d(96, 6, 1), nn.Conv2d(128, 6, 1)])
        self.boxes = nn.ModuleList([nn.Sequential(block(96, 64), nn.Conv2d(64, 4, 1)), nn.Sequential(block(128, 64), nn.Conv2d(64, 4, 1))])

    def forward(self, picture):
        a = self.stem(picture)
        b = self.down(a)
        a = self.merge(torch.cat([a, F.interpolate(self.neck(b), scale_factor=2.0)], 1))
        scores = torch.cat([score(x).flatten(2) for score, x in zip(self.scores, [a, b])], 2).sigmoid()
        boxes = torch.cat([box(x).flatten(2) for box, x in zip(self.boxes, [a, b])], 2).exp()
        return scores.transpose(1, 2), boxes.transpose(1, 2)


WORDS, SEEN = ("words", 32), ("ones", 32)
NETWORKS = {
    "mobilenet": (mobilenet, {"x": PICTURE}),
    "lcnet": (lcnet, {"x": PICTURE}),
    "svtr": (Svtr, {"picture": (3, 32, 96)}),
    "resnet": (resnet, {"x": PICTURE}),
    "vgg": (vgg, {"x": PICTURE}),
    "densenet": (densenet, {"x": PICTURE}),
    "squeezenet": (squeezenet, {"x": PICTURE}),
    "shufflenet": (shufflenet, {"x": PICTURE}),
    "convnext": (convnext, {"x": PICTURE}),
    "efficientnet": (efficientnet, {"x": PICTURE}),
    "vit": (Vit, {"picture": PICTURE}),
    "bert": (Bert, {"input_ids": WORDS, "attention_mask": SEEN}),
    "gpt": (Gpt, {"input_ids": WORDS}),
    "lstm": (lambda: Recurrent(nn.LSTM), {"input_ids": WORDS}),
    "gru": (lambda: Recurrent(nn.GRU), {"input_ids": WORDS}),
    "textcnn": (TextCnn, {"input_ids": WORDS}),
    "unet": (Unet, {"picture": PICTURE}),
    "mixer": (Mixer, {"picture": PICTURE}),
    "tabular": (tabular, {"x": (64,)}),
    "autoencoder": (autoencoder, {"x": PICTURE}),
    "wave": (wave, {"x": (1, 8000)}),
    "siamese": (Siamese, {"left": PICTURE, "right": PICTURE}),
    "detector": (Detector, {"picture": PICTURE}),
}


def made(name, seed=7):
    """Prepares the network for export, with plausible means and variances of normalisations."""
    torch.manual_seed(seed)
    network = NETWORKS[name][0]().eval()
    for module in network.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d)):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(module.bias, 0, 0.1)
            # The scale that random weights give to a layer's input differs from layer to layer: one run measures it.
            module.momentum = 1.0
    inputs = rows(name, 32, seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.train()
        network(*inputs)
    return network.eval()


def rows(name, count, seed):
    """Returns random rows for every input, in the network's order."""
    draw = torch.Generator().manual_seed(seed)
    arrays = []
    for shape in NETWORKS[name][1].values():
        match shape:
            case ("words", length):
                arrays.append(torch.randint(0, 500, (count, length), generator=draw))
            case ("ones", length):
                ends = torch.randint(length // 2, length + 1, (count, 1), generator=draw)
                arrays.append((torch.arange(length)[None] < ends).to(torch.int64))
            case _:
                arrays.append(smooth(torch.randn(count, *shape, generator=draw)))
    return arrays


def smooth(noise):
    """Noise with a few large waves: pictures are not white."""
    if noise.dim() != 4:
        return noise
    large = F.interpolate(F.avg_pool2d(noise, 8) * 8, noise.shape[2:], mode="bilinear")
    return 0.5 * noise + large
