"""Trains a perceptron on images of this folder, and writes it as ONNX, with held-out rows: see docs/bring-your-own-model.md."""

import gzip

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.neural_network import MLPClassifier


def idx(name, skip, *shape):
    with gzip.open(f"examples/fashion-mnist/{name}-ubyte.gz") as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=skip).reshape(shape)


images = (idx("images-idx3", 16, -1, 784) / 255).astype(numpy.float32)
labels = idx("labels-idx1", 8, -1).astype(numpy.int64)
model = MLPClassifier((1024, 1024), max_iter=12, random_state=1).fit(images[:1000], labels[:1000])
print(f"accuracy on held-out images: {model.score(images[1000:], labels[1000:]):.2f}")

# A product, a sum and a rectifier per layer; the outputs are scores.
nodes, constants, last = [], [], "image"
for layer, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_)):
    out = "scores" if layer == 2 else f"sum{layer}"
    constants += [numpy_helper.from_array(numpy.float32(weights), f"w{layer}"), numpy_helper.from_array(numpy.float32(bias), f"b{layer}")]
    nodes += [helper.make_node("MatMul", [last, f"w{layer}"], [f"product{layer}"]), helper.make_node("Add", [f"product{layer}", f"b{layer}"], [out])]
    if layer < 2:
        last = f"hidden{layer}"
        nodes.append(helper.make_node("Relu", [out], [last]))
image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 784])
scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])
graph = helper.make_graph(nodes, "mine", [image], [scores], constants)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), "my-model.onnx")

# The held-out rows and their classes.
numpy.save("rows.npy", images[1000:])
numpy.save("labels.npy", labels[1000:])
