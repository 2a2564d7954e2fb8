"""Compares an 8-bit copy by `parm stand-in` with one by Python's onnxruntime: the same weights, and answers as close."""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

SIDE, CLASSES = 32, 10
LAYERS = [(3, 64), (64, 128), (128, 128)]


def network(path):
    """Three convolutions with rectifiers, a mean, a product: random weights of a usual size."""
    draw = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for at, (read, made) in enumerate(LAYERS):
        weight = draw.normal(0, (2 / (9 * read)) ** 0.5, (made, read, 3, 3)).astype(np.float32)
        bias = draw.normal(0, 0.1, made).astype(np.float32)
        weights += [numpy_helper.from_array(weight, f"w{at}"), numpy_helper.from_array(bias, f"b{at}")]
        conv = helper.make_node("Conv", [last, f"w{at}", f"b{at}"], [f"c{at}"], kernel_shape=[3, 3], pads=[1] * 4)
        nodes += [conv, helper.make_node("Relu", [f"c{at}"], [f"r{at}"])]
        last = f"r{at}"
    head = draw.normal(0, 1, (LAYERS[-1][1], CLASSES)).astype(np.float32)
    weights.append(numpy_helper.from_array(head, "head"))
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    x = value("x", TensorProto.FLOAT, ["batch", LAYERS[0][0], SIDE, SIDE])
    y = value("y", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class Rows(CalibrationDataReader):
    def __init__(self, rows):
        self.rows = iter(rows)

    def get_next(self):
        row = next(self.rows, None)
        return None if row is None else {"x": row[None]}


def answers(path, rows):
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]


def bytes_of(path):
    """Returns the 8-bit weights of a file's convolutions, by their shapes."""
    tensors = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer if t.data_type == TensorProto.INT8]
    return {t.shape: t.astype(int) for t in tensors if t.ndim == 4}


def main(parm):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        deployed, rows = folder / "network.onnx", np.random.default_rng(2).normal(0, 1, (256, 3, SIDE, SIDE))
        rows = rows.astype(np.float32)
        network(deployed)
        np.save(folder / "rows.npy", rows)
        command = [parm, "stand-in", deployed, "--data", f"npy:{folder / 'rows.npy'}", "--engine", "ort", "--cost", "1"]
        command += ["--models", folder / "models", "--runs", folder / "runs", "--measure", "2"]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours, theirs = folder / "models/network-stand-in/1/model.onnx", folder / "theirs.onnx"
        quantize_static(
            deployed, theirs, Rows(rows[:64]), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.Percentile, extra_options={"CalibPercentile": 99.99},
        )
        mine, other = bytes_of(ours), bytes_of(theirs)
        assert mine.keys() == other.keys() and len(mine) == len(LAYERS), (mine.keys(), other.keys())
        for shape in mine:
            # If a weight lies between two steps, rounding of the scale decides.
            apart = np.abs(mine[shape] - other[shape])
            assert apart.max() <= 1 and (apart > 0).mean() < 1e-3, f"weights {shape} differ"
        said = answers(deployed, rows)
        off = {name: np.linalg.norm(answers(path, rows) - said) / np.linalg.norm(said) for name, path in
               {"parm": ours, "onnxruntime": theirs}.items()}
        print("relative distance of answers:", off)
        assert off["parm"] <= 1.1 * off["onnxruntime"], off


main(sys.argv[1])
