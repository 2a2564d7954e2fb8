"""Writes the models that the integration tests serve: `affine`, y = x W + b, whose answers a test can compute."""

import pathlib

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = numpy.array([[1, 2], [3, 4], [5, 6], [7, 8]], numpy.float32)
BIAS = numpy.array([0.5, -0.5], numpy.float32)

graph = helper.make_graph(
    [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="affine")],
    "affine",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
    [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(BIAS, "b")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="parm")
model.ir_version = 9
onnx.checker.check_model(model)
onnx.save(model, pathlib.Path(__file__).parent / "affine" / "1" / "model.onnx")
