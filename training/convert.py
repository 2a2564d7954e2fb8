"""Saves folders of images, CIFAR batches, recordings (WAV), sequences (npz) or photos with boxes (Pascal VOC) as numpy
arrays for `parm train`.

    python3 training/convert.py images photos train --size 32x32
    python3 training/convert.py cifar data_batch_*.bin train
    python3 training/convert.py wav recordings words --features mfcc
    python3 training/convert.py npz digits.npz digits --inputs X --labels y --lengths lengths
    python3 training/convert.py voc BCCD train --split trainval --object WBC --size 64x64
    parm train base --model boxes --data npy:train/inputs.npy,train/values.npy ...

The last path is a new folder for `inputs.npy` with `labels.npy` (classes) or `values.npy` (boxes). It needs numpy, and
Pillow for images.
"""

import argparse
import pathlib
import sys
import wave
import xml.etree.ElementTree

import numpy as np


class Unusable(Exception):
    """A file that cannot be converted, with its name and the reason."""


def save(folder, inputs, **targets):
    """Writes the arrays to a new folder, so that targets of other rows never lie beside them."""
    folder.mkdir(parents=True)
    for name, array in {"inputs": inputs, **targets}.items():
        np.save(folder / f"{name}.npy", array)
    print(f"{folder}: {len(inputs)} rows of {list(inputs.shape[1:])}")


def images(flags):
    """Images of any format that Pillow reads, one folder for each class, in order of names."""
    from PIL import Image

    classes = sorted(path for path in flags.source.iterdir() if path.is_dir())
    rows, labels = [], []
    for label, folder in enumerate(classes):
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".png", ".jpg", ".jpeg"))
        if not files:
            raise Unusable(f"{folder}: no file that ends in png, jpg or jpeg")
        for path in files:
            with Image.open(path) as image:
                image = image.convert("L" if flags.gray else "RGB")
                if flags.size:
                    image = image.resize(flags.size, Image.Resampling.BILINEAR)
                pixels = np.asarray(image, np.float32).reshape(image.height, image.width, -1).transpose(2, 0, 1) / 255
            if rows and pixels.shape != rows[0].shape:
                raise Unusable(f"{path}: shape {pixels.shape}, but other files have {rows[0].shape}: give a common --size")
            rows.append(pixels)
            labels.append(label)
    if not rows:
        raise Unusable(f"{flags.source}: no folder of a class")
    save(flags.to, np.stack(rows), labels=np.array(labels))


def cifar(flags):
    """Binary batches: records of one label (CIFAR-100: a coarse label, then the fine one that is used) and 3x32x32 bytes."""
    head = 1 if flags.classes == 10 else 2
    pixels, labels = [], []
    for path in flags.batches:
        content = np.fromfile(path, np.uint8)
        if content.size == 0 or content.size % (head + 3072):
            raise Unusable(f"{path}: {content.size} bytes are not a multiple of a record's {head + 3072}")
        records = content.reshape(-1, head + 3072)
        labels.append(records[:, head - 1].astype(np.int64))
        if labels[-1].max() >= flags.classes:
            raise Unusable(f"{path}: label {labels[-1].max()} of {flags.classes} classes: set --classes")
        pixels.append(records[:, head:].reshape(-1, 3, 32, 32).astype(np.float32) / 255)
    save(flags.to, np.concatenate(pixels), labels=np.concatenate(labels))


def sound(path):
    """Samples per second, and samples from -1 to 1, the mean of all channels."""
    try:
        with wave.open(str(path)) as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            data = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    except (wave.Error, EOFError) as error:
        raise Unusable(f"{path}: {error or 'cut short'}: save it as PCM of 16 bits") from error
    data = data[: data.size // (channels * width) * channels * width].reshape(-1, width)
    if width == 1:
        samples = data[:, 0].astype(np.float32) / 128 - 1
    else:
        # Three bytes have no type of numpy, so every sample moves into the upper bytes of four.
        wide = np.zeros((len(data), 4), np.uint8)
        wide[:, 4 - width:] = data
        samples = (wide.view("<i4")[:, 0] / 2**31).astype(np.float32)
    return rate, samples.reshape(-1, channels).mean(axis=1)


def centred(samples, length):
    """The middle of a recording, where words are usually spoken; a short one gets silence on both sides."""
    if len(samples) >= length:
        return samples[(len(samples) - length) // 2:][:length]
    before = (length - len(samples)) // 2
    return np.pad(samples, (before, length - len(samples) - before))


def filters(rate, bands, padded):
    """Weights of triangular bands on a spectrum's powers, evenly spaced on the mel scale from 20 Hz to half the rate."""
    def mel(hertz):
        return 2595 * np.log10(1 + hertz / 700)

    corners = np.linspace(mel(20), mel(rate / 2), bands + 2)
    left, peak, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    at = mel(np.arange(padded // 2 + 1) * rate / padded)
    return np.maximum(np.minimum((at - left) / (peak - left), (right - at) / (right - peak)), 0)


def picture(samples, rate, bands, coefficients):
    """Log-mel bands (or the first coefficients of their orthonormal DCT-II) by windows of 25 ms every 10 ms."""
    length, step = max(rate // 40, 2), max(rate // 100, 1)
    padded = 1 << (length - 1).bit_length()
    samples = np.pad(samples, (0, max(length - len(samples), 0)))
    windows = np.lib.stride_tricks.sliding_window_view(samples, length)[::step]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    powers = np.abs(np.fft.rfft(windows * window, padded)) ** 2
    rows = np.log(np.maximum(filters(rate, bands, padded) @ powers.T, 1e-6))
    if coefficients:
        angles = np.pi / bands * np.outer(np.arange(coefficients), np.arange(bands) + 0.5)
        scale = np.sqrt(np.where(np.arange(coefficients) == 0, 1, 2) / bands)[:, None]
        rows = scale * np.cos(angles) @ rows
    return rows[None].astype(np.float32)


def recordings(folder):
    """Recordings and their classes: names like CLASS_whatever.wav, or else a folder for each class."""
    files = sorted(folder.glob("*.wav"))
    named = [(path, path.stem.split("_")[0]) for path in files]
    if not files:
        named = [(path, path.parent.name) for path in sorted(folder.glob("*/*.wav"))]
    if not named:
        raise Unusable(f"{folder}: no recording that ends in .wav: name another folder")
    return named


def wav(flags):
    """Recordings as pictures of their spectra, all of one length."""
    coefficients = flags.coefficients if flags.features == "mfcc" else 0
    named = recordings(flags.source)
    classes = sorted({name for _, name in named})
    rows, common = [], None
    for path, _ in named:
        rate, samples = sound(path)
        common = common or rate
        if rate != common:
            raise Unusable(f"{path}: {rate} samples per second, but other files have {common}: resample it")
        rows.append(picture(centred(samples, round(flags.seconds * rate)), rate, flags.bands, coefficients))
    save(flags.to, np.stack(rows), labels=np.array([classes.index(name) for _, name in named]))


def npz(flags):
    """Sequences of an archive, which lie end to end, as pictures of one length: features are brought to mean 0 and deviation
    1 over the whole file, and each sequence is resampled between its first and its last frame."""
    try:
        with np.load(flags.source) as archive:
            rows, lengths = archive[flags.inputs].astype(np.float64), archive[flags.lengths].astype(np.int64)
            labels = archive[flags.labels].astype(np.int64)
    except (KeyError, ValueError) as error:
        raise Unusable(f"{flags.source}: {error}") from error
    if rows.ndim != 2 or lengths.min() < 1 or lengths.sum() != len(rows) or len(labels) != len(lengths):
        raise Unusable(f"{flags.source}: {rows.shape} rows do not fit {len(lengths)} lengths and {len(labels)} labels")
    deviation = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(deviation > 1e-6, deviation, 1)
    pictures = []
    for sequence in np.split(rows, np.cumsum(lengths)[:-1]):
        at = np.linspace(0, len(sequence) - 1, flags.frames)
        features = [np.interp(at, np.arange(len(sequence)), feature) for feature in sequence.T]
        pictures.append(np.stack(features, axis=1)[None])
    save(flags.to, np.stack(pictures).astype(np.float32), labels=labels)


def only_box(path, wanted):
    """The box of the only object of this name, in pixels; None if there are none or several."""
    try:
        found = [item for item in xml.etree.ElementTree.parse(path).iter("object")
                 if wanted in (None, item.findtext("name"))]
        if len(found) != 1:
            return None
        box = [float(found[0].findtext(f"bndbox/{name}")) for name in ("xmin", "ymin", "xmax", "ymax")]
    except (xml.etree.ElementTree.ParseError, TypeError, ValueError) as error:
        raise Unusable(f"{path}: no valid box: {error}") from error
    if not (np.isfinite(box).all() and box[0] < box[2] and box[1] < box[3]):
        raise Unusable(f"{path}: the box {box} has no area")
    return box


def voc(flags):
    """Photos with exactly one object of a name, which is the task of a network with fixed outputs. A box is x_min, y_min,
    x_max, y_max in fractions of the photo."""
    from PIL import Image

    rows, boxes = [], []
    for line in (flags.source / "ImageSets/Main" / f"{flags.split}.txt").read_text().splitlines():
        if not line.strip():
            continue
        name = line.split()[0]
        box = only_box(flags.source / "Annotations" / f"{name}.xml", flags.object)
        if box is None:
            continue
        photos = [flags.source / "JPEGImages" / f"{name}.{ending}" for ending in ("jpg", "jpeg", "png")]
        photo = next((path for path in photos if path.is_file()), None)
        if photo is None:
            raise Unusable(f"{photos[0]}: no such photo, nor one that ends in jpeg or png")
        with Image.open(photo) as image:
            boxes.append(np.array(box, np.float32) / (image.size * 2))
            small = image.convert("RGB").resize(flags.size, Image.Resampling.BILINEAR)
        rows.append(np.asarray(small, np.float32).transpose(2, 0, 1) / 255)
    if not rows:
        raise Unusable(f"{flags.source}: no photo of '{flags.split}' with exactly one {flags.object or 'object'}")
    save(flags.to, np.stack(rows), values=np.array(boxes, np.float32))


def size(text):
    """HEIGHTxWIDTH, as (width, height)."""
    height, width = map(int, text.split("x"))
    return width, height


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kind = kinds.add_parser("images", help="folders of images, one for each class")
    kind.add_argument("source", type=pathlib.Path)
    kind.add_argument("--size", type=size, help="HEIGHTxWIDTH [default: as they are]")
    kind.add_argument("--gray", action="store_true", help="one channel of brightness")
    kind.set_defaults(run=images)
    kind = kinds.add_parser("cifar", help="CIFAR's binary batches")
    kind.add_argument("batches", nargs="+", type=pathlib.Path)
    kind.add_argument("--classes", type=int, choices=(10, 100), default=10)
    kind.set_defaults(run=cifar)
    kind = kinds.add_parser("wav", help="recordings, one folder for each class or names like CLASS_whatever.wav")
    kind.add_argument("source", type=pathlib.Path)
    kind.add_argument("--features", choices=("mel", "mfcc"), default="mel")
    kind.add_argument("--bands", type=int, default=40)
    kind.add_argument("--coefficients", type=int, default=13)
    kind.add_argument("--seconds", type=float, default=1.0)
    kind.set_defaults(run=wav)
    kind = kinds.add_parser("npz", help="sequences end to end in an archive of numpy")
    kind.add_argument("source", type=pathlib.Path)
    kind.add_argument("--inputs", default="x", help="name of the array of frames [default: x]")
    kind.add_argument("--labels", default="y", help="name of the array of classes [default: y]")
    kind.add_argument("--lengths", default="lengths", help="name of the array of lengths [default: lengths]")
    kind.add_argument("--frames", type=int, default=20, help="frames of each row [default: 20]")
    kind.set_defaults(run=npz)
    kind = kinds.add_parser("voc", help="Pascal VOC: photos with one object, and its box")
    kind.add_argument("source", type=pathlib.Path)
    kind.add_argument("--split", default="train")
    kind.add_argument("--object", help="name of the object [default: any]")
    kind.add_argument("--size", type=size, default=(64, 64), help="HEIGHTxWIDTH [default: 64x64]")
    kind.set_defaults(run=voc)
    for kind in kinds.choices.values():
        kind.add_argument("to", type=pathlib.Path, help="new folder for the arrays")
    flags = parser.parse_args()
    try:
        flags.run(flags)
    except (Unusable, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
