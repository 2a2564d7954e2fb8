"""Fits `fashion-linear`: ridge regression from Fashion-MNIST's pixels to the ten classes, in closed form.

An affine map, so that an MDS code reconstructs its answers exactly without any parity model. Needs numpy, onnx and the
data set (Debian's package dataset-fashion-mnist); fits on the 60,000 training images and says how many of the 10,000
test images come out right.
"""

import gzip
import pathlib

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
RIDGE = 100.0


def images(name):
    raw = gzip.decompress((DATA / f"{name}-images-idx3-ubyte.gz").read_bytes())
    return numpy.frombuffer(raw, numpy.uint8, offset=16).reshape(-1, 784).astype(numpy.float64) / 255.0


def labels(name):
    return numpy.frombuffer(gzip.decompress((DATA / f"{name}-labels-idx1-ubyte.gz").read_bytes()), numpy.uint8, offset=8)


x, y = images("train"), numpy.eye(10)[labels("train")]
mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
centred = x - mean_x
weights = numpy.linalg.solve(centred.T @ centred + RIDGE * numpy.eye(784), centred.T @ (y - mean_y))
bias = mean_y - mean_x @ weights

graph = helper.make_graph(
    [
        helper.make_node("Flatten", ["image"], ["pixels"], name="flatten", axis=1),
        helper.make_node("Gemm", ["pixels", "weights", "bias"], ["scores"], name="affine"),
    ],
    "fashion-linear",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 28, 28])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 10])],
    [
        numpy_helper.from_array(weights.astype(numpy.float32), "weights"),
        numpy_helper.from_array(bias.astype(numpy.float32), "bias"),
    ],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="parm")
model.ir_version = 9
onnx.checker.check_model(model)
onnx.save(model, pathlib.Path(__file__).parent / "1" / "model.onnx")

scores = images("t10k") @ weights + bias
right = (scores.argmax(axis=1) == labels("t10k")).mean()
print(f"{100 * right:.2f} % of the test images")
