"""Keras networks with random weights, exported by tf2onnx: keras_networks.py FOLDER [NAME..]

Pictures have their channels last. FOLDER/NAME-tf2onnx has the files that export.py describes.
"""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy
import tensorflow
import tf2onnx
from keras import Input, Model, layers, ops, utils

OPSET, ROWS, FRESH = 17, 320, 48
PICTURE, LENGTH, WORDS = (64, 64, 3), 32, 500


def conv_norm(x, made, kernel=3, stride=1, activation="relu"):
    x = layers.Conv2D(made, kernel, stride, "same", use_bias=False, kernel_initializer="he_normal")(x)
    return layers.Activation(activation)(layers.BatchNormalization()(x))


def residual():
    x = picture = Input(PICTURE)
    for made, stride in [(48, 2), (96, 2), (192, 2)]:
        short = layers.Conv2D(made, 1, stride)(x)
        x = conv_norm(conv_norm(x, made, 3, stride), made, activation="linear")
        x = layers.ReLU()(layers.Add()([x, short]))
        x = layers.ReLU()(layers.Add()([x, conv_norm(conv_norm(x, made), made, activation="linear")]))
    return Model(picture, layers.Dense(20)(layers.GlobalAveragePooling2D()(x)))


def separable():
    """Depthwise and pointwise, with squeeze and excitation."""
    picture = Input(PICTURE)
    x = conv_norm(picture, 32, 3, 2, "swish")
    for made, stride in [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1)]:
        x = layers.DepthwiseConv2D(3, stride, "same", use_bias=False)(x)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
        gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
        gate = layers.Conv2D(x.shape[-1], 1, activation="sigmoid")(layers.Conv2D(16, 1, activation="relu")(gate))
        x = conv_norm(layers.Multiply()([x, gate]), made, 1, 1, "swish")
    return Model(picture, layers.Dense(20, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def unet():
    picture = Input(PICTURE)
    a = conv_norm(conv_norm(picture, 24), 24)
    b = conv_norm(conv_norm(layers.MaxPooling2D()(a), 48), 48)
    c = conv_norm(conv_norm(layers.MaxPooling2D()(b), 96), 96)
    b = conv_norm(layers.Concatenate()([layers.Conv2DTranspose(48, 2, 2)(c), b]), 48)
    a = conv_norm(layers.Concatenate()([layers.UpSampling2D()(b), a]), 24)
    return Model(picture, layers.Conv2D(4, 1)(a))


def gelu(x):
    """GELU by the error function: tf2onnx does not support the operator Erfc of Keras's own."""
    return 0.5 * x * (1.0 + ops.erf(x / 2**0.5))


def transformer():
    words = Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, 192)(words)
    for _ in range(3):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(6, 32)(x, x)]))
        feed = layers.Dense(192)(layers.Activation(gelu)(layers.Dense(768)(x)))
        x = layers.LayerNormalization()(layers.Add()([x, feed]))
    return Model(words, layers.Dense(20)(layers.GlobalAveragePooling1D()(x)))


def recurrent():
    words = Input((LENGTH,), dtype="int32")
    x = layers.Bidirectional(layers.LSTM(192, return_sequences=True))(layers.Embedding(WORDS, 128)(words))
    return Model(words, layers.Dense(20)(layers.Bidirectional(layers.GRU(192))(x)))


def dense():
    x = row = Input((64,))
    for made in [1024, 1024, 512]:
        x = layers.BatchNormalization()(layers.Dense(made, activation="elu")(x))
    return Model(row, layers.Dense(1)(x))


def text():
    words = Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, 192)(words)
    found = [layers.GlobalMaxPooling1D()(layers.Conv1D(128, kernel, activation="relu")(x)) for kernel in (3, 4, 5)]
    return Model(words, layers.Dense(20)(layers.Concatenate()(found)))


def draw(model, count, seed):
    random = numpy.random.default_rng(seed)
    shape = (count, *model.input_shape[1:])
    if model.inputs[0].dtype == "int32":
        return random.integers(0, WORDS, shape, dtype=numpy.int32)
    rows = random.normal(0, 1, shape).astype(numpy.float32)
    if len(shape) == 4:
        # Noise with a few large waves: pictures are not white.
        waves = random.normal(0, 1, (count, 8, 8, 3)).astype(numpy.float32)
        rows = 0.5 * rows + waves.repeat(8, 1).repeat(8, 2)
    return rows


def main(folder, chosen):
    for make in [residual, separable, unet, transformer, recurrent, dense, text]:
        place = pathlib.Path(folder) / f"{make.__name__}-tf2onnx"
        if (place / "complete").exists() or (chosen and make.__name__ not in chosen):
            continue
        place.mkdir(parents=True, exist_ok=True)
        (place / "failed.txt").unlink(missing_ok=True)
        try:
            utils.set_random_seed(7)
            model = make()
            # Normalisations learn the statistics of their inputs.
            for _ in range(60):
                model(draw(model, 8, 3), training=True)
            signature = [tensorflow.TensorSpec((None, *model.input_shape[1:]), model.inputs[0].dtype, name="x")]
            function = tensorflow.function(lambda x, model=model: model(x, training=False))
            tf2onnx.convert.from_function(function, signature, opset=OPSET, output_path=str(place / "model.onnx"))
        except Exception as error:
            reason = [line.strip() for line in str(error).splitlines() if line.strip()]
            (place / "failed.txt").write_text(f"{type(error).__name__}: {reason[0] if reason else ''}"[:300])
            print(f"{make.__name__} by tf2onnx: {(place / 'failed.txt').read_text()}", file=sys.stderr)
            continue
        for kind, count, seed in [("rows", ROWS, 11), ("fresh", FRESH, 12)]:
            numpy.save(place / f"{kind}-0.npy", draw(model, count, seed))
        (place / "complete").touch()


main(sys.argv[1], sys.argv[2:])
