"""Teaches `fashion-perceptron`, the stand-in of `fashion-lenet`: a perceptron with 64 hidden units that learns what LeNet-5
says of the training images of Fashion-MNIST (distillation), so that the two agree more often than labels alone would make
them.

Needs numpy, onnx, onnxruntime and the data set (Debian's package dataset-fashion-mnist); takes a minute. Learns from the
60,000 training images and says how it does on the 10,000 test images.
"""

import gzip
import pathlib

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
HERE = pathlib.Path(__file__).parent
HIDDEN, EPOCHS, BATCH, RATE, AVERAGE = 64, 20, 128, 0.002, 0.999


def images(name):
    raw = gzip.decompress((DATA / f"{name}-images-idx3-ubyte.gz").read_bytes())
    return numpy.frombuffer(raw, numpy.uint8, offset=16).reshape(-1, 784).astype(numpy.float32) / 255.0


def labels(name):
    return numpy.frombuffer(gzip.decompress((DATA / f"{name}-labels-idx1-ubyte.gz").read_bytes()), numpy.uint8, offset=8)


def softmax(logits):
    powers = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def perceptron(weights, x):
    return numpy.maximum(x @ weights[0] + weights[1], 0.0) @ weights[2] + weights[3]


teacher = onnxruntime.InferenceSession(HERE.parent / "fashion-lenet" / "1" / "model.onnx")


def lenet(x):
    parts = [x[at : at + 500].reshape(-1, 1, 28, 28) for at in range(0, len(x), 500)]
    return numpy.concatenate([teacher.run(None, {"input": part})[0] for part in parts])


def learn(x, targets):
    """Adam with a rate that falls as a cosine; the weights' running average is what is kept."""
    draw = numpy.random.default_rng(1)
    shapes = [(784, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
    scales = [(2.0 / 784) ** 0.5, 0.0, (1.0 / HIDDEN) ** 0.5, 0.0]
    weights = [(scale * draw.standard_normal(shape)).astype(numpy.float32) for shape, scale in zip(shapes, scales)]
    first, second = ([numpy.zeros_like(w) for w in weights] for _ in range(2))
    kept = [w.copy() for w in weights]
    steps, step = EPOCHS * (len(x) // BATCH), 0
    for _ in range(EPOCHS):
        order = draw.permutation(len(x))
        for at in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[at : at + BATCH]
            sums = x[rows] @ weights[0] + weights[1]
            hidden = numpy.maximum(sums, 0.0)
            error = (softmax(hidden @ weights[2] + weights[3]) - targets[rows]) / BATCH
            back = (error @ weights[2].T) * (sums > 0.0)
            gradients = [x[rows].T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
            step += 1
            rate = RATE * 0.5 * (1.0 + numpy.cos(numpy.pi * step / steps))
            for w, g, m, v, average in zip(weights, gradients, first, second, kept):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                w -= rate * (m / (1.0 - 0.9**step)) / (numpy.sqrt(v / (1.0 - 0.999**step)) + 1e-8)
                average += (1.0 - AVERAGE) * (w - average)
    return kept


x = images("train")
weights = learn(x, softmax(lenet(x)))
graph = helper.make_graph(
    [
        helper.make_node("Flatten", ["input"], ["pixels"], name="flatten", axis=1),
        helper.make_node("Gemm", ["pixels", "weights.0", "weights.1"], ["sums"], name="hidden"),
        helper.make_node("Relu", ["sums"], ["hidden"], name="relu"),
        helper.make_node("Gemm", ["hidden", "weights.2", "weights.3"], ["output"], name="classes"),
    ],
    "fashion-perceptron",
    [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 1, 28, 28])],
    [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", 10])],
    [numpy_helper.from_array(w.astype(numpy.float32), f"weights.{number}") for number, w in enumerate(weights)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="parm")
model.ir_version = 9
onnx.checker.check_model(model)
onnx.save(model, HERE / "1" / "model.onnx")

own, deployed, right = perceptron(weights, images("t10k")).argmax(1), lenet(images("t10k")).argmax(1), labels("t10k")
print(f"right: {100 * (own == right).mean():.2f} %, the deployed model {100 * (deployed == right).mean():.2f} %")
print(f"agreement: {100 * (own == deployed).mean():.2f} %")
