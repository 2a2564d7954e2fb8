"""Makes cases.bin: small ONNX models, inputs, and what ONNX Runtime computes from them.

    pip install numpy onnx onnxruntime && python make.py

Each case is one operator in one setting. Weights are initialisers, so that the tests can also take gradients with
respect to them. Numbers are spaced wide enough that no small step crosses a kink or changes which element is largest.

Layout, little-endian: per case `name, model, inputs, outputs`; strings and models as u32 length and bytes; lists as
u32 count; a tensor is u8 kind (0 f32, 1 i64, 2 bool), u32 rank, u32 dims, elements.
"""

import struct
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(20190)
cases = []


def spaced(*shape, low=-1.5, high=1.5):
    """Distinct numbers, none close to 0 or to another where there are few, in random order."""
    count = int(np.prod(shape)) if shape else 1
    grid = np.linspace(low, high, count + 2)[1:-1]
    grid[np.abs(grid) < 0.02] = 0.02
    return rng.permutation(grid).reshape(shape).astype(np.float32)


def ints(*values):
    return np.array(values, dtype=np.int64)


def case(name, op, inputs, weights=(), opset=17, outputs=1, **attributes):
    """One node. `inputs` are fed, `weights` are initialisers behind them; None leaves an input out."""
    graph(name, [(op, inputs, weights, outputs, attributes)], opset)


def graph(name, nodes, opset=17):
    """Nodes one behind the other: the first reads the inputs, each other its predecessor and its weights."""
    feeds, initializers, made = {}, [], []
    previous = None
    for at, (op, inputs, weights, outputs, attributes) in enumerate(nodes):
        names = [previous] if previous else []
        for value in inputs:
            names.append("" if value is None else f"x{len(feeds)}")
            if value is not None:
                feeds[names[-1]] = np.asarray(value)
        for value in weights:
            names.append("" if value is None else f"w{len(initializers)}")
            if value is not None:
                initializers.append(numpy_helper.from_array(np.asarray(value), names[-1]))
        results = [f"y{at}_{i}" for i in range(outputs)]
        made.append(helper.make_node(op, names, results, name=f"n{at}", **attributes))
        previous = results[0]
    kind = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
    model = helper.make_model(
        helper.make_graph(
            made, name,
            [helper.make_tensor_value_info(n, kind(a), a.shape) for n, a in feeds.items()],
            [helper.make_empty_tensor_value_info(n) for n in results],
            initializers,
        ),
        opset_imports=[helper.make_opsetid("", opset)], ir_version=8,
    )
    model = onnx.shape_inference.infer_shapes(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    model.graph.ClearField("value_info")
    cases.append((name, model.SerializeToString(), list(feeds.values()), session.run(None, feeds)))


def convolutions():
    x = spaced(2, 4, 6, 5)
    case("conv", "Conv", [x], [spaced(3, 4, 3, 3), spaced(3)], kernel_shape=[3, 3])
    case("conv_strided_asymmetric", "Conv", [x], [spaced(2, 4, 3, 2), spaced(2)], strides=[2, 1], pads=[1, 0, 2, 1])
    case("conv_grouped", "Conv", [x], [spaced(4, 2, 3, 3)], group=2, pads=[1, 1, 1, 1])
    case("conv_depthwise", "Conv", [x], [spaced(4, 1, 3, 3), spaced(4)], group=4, pads=[1, 1, 1, 1])
    case("conv_dilated", "Conv", [x], [spaced(2, 4, 2, 2)], dilations=[2, 3])
    case("conv_same_upper", "Conv", [x], [spaced(2, 4, 3, 2)], auto_pad="SAME_UPPER", strides=[2, 2])
    case("conv_same_lower", "Conv", [x], [spaced(2, 4, 2, 2)], auto_pad="SAME_LOWER")
    case("conv_valid", "Conv", [x], [spaced(2, 4, 3, 3)], auto_pad="VALID")
    case("conv_1d", "Conv", [spaced(2, 3, 9)], [spaced(2, 3, 3), spaced(2)], strides=[2], pads=[1, 2], dilations=[2])
    case("conv_3d", "Conv", [spaced(1, 2, 4, 3, 4)], [spaced(2, 2, 2, 2, 2)], pads=[0, 1, 0, 1, 0, 1])


def poolings():
    x = spaced(2, 2, 6, 5)
    case("max_pool", "MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    case("max_pool_padded", "MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case("max_pool_asymmetric", "MaxPool", [x], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1])
    case("max_pool_ceil", "MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    case("max_pool_1d", "MaxPool", [spaced(2, 2, 7)], kernel_shape=[3], strides=[2])
    case("average_pool", "AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
    case("average_pool_padded", "AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case("average_pool_counted", "AveragePool", [x], kernel_shape=[3, 3], pads=[1, 0, 1, 1], count_include_pad=1)
    case("average_pool_same", "AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    case("average_pool_1d", "AveragePool", [spaced(2, 2, 7)], kernel_shape=[3], strides=[2])
    case("global_average_pool", "GlobalAveragePool", [x])
    case("global_max_pool", "GlobalMaxPool", [x])


def normalizations():
    x, scale, bias = spaced(3, 4, 3, 2), spaced(4), spaced(4)
    statistics = [spaced(4), spaced(4, low=0.5, high=2)]
    case("batch_norm", "BatchNormalization", [x], [scale, bias, *statistics], epsilon=1e-3)
    case("batch_norm_2d", "BatchNormalization", [spaced(5, 4)], [scale, bias, *statistics])
    case("layer_norm", "LayerNormalization", [spaced(2, 3, 4)], [scale, bias])
    case("layer_norm_two_axes", "LayerNormalization", [spaced(2, 3, 4)], [spaced(3, 4)], axis=-2)
    case("instance_norm", "InstanceNormalization", [x], [scale, bias])
    case("group_norm", "GroupNormalization", [x], [scale, bias], opset=21, num_groups=2)


def products():
    a, b = spaced(3, 4), spaced(4, 5)
    case("gemm", "Gemm", [a], [b, spaced(5)])
    case("gemm_transposed", "Gemm", [spaced(4, 3)], [spaced(5, 4), spaced(3, 1)], alpha=0.5, beta=2.0, transA=1, transB=1)
    case("gemm_without_bias", "Gemm", [a], [b])
    case("matmul", "MatMul", [a], [b])
    case("matmul_batch", "MatMul", [spaced(2, 3, 3, 4), spaced(3, 4, 2)])
    case("matmul_batch_by_matrix", "MatMul", [spaced(2, 3, 4)], [b])
    case("matmul_vectors", "MatMul", [spaced(4), spaced(4)])
    case("matmul_row", "MatMul", [spaced(4)], [b])
    case("matmul_column", "MatMul", [spaced(2, 3, 4), spaced(4)])


def elementwise():
    a, b, row, positive = spaced(2, 3, 4), spaced(3, 1), spaced(4), spaced(2, 3, low=0.3, high=2)
    for op in ["Add", "Sub", "Mul"]:
        case(op.lower(), op, [a, b])
    case("div", "Div", [a, positive[:, :, None][:1]])
    case("add_scalar", "Add", [a, np.float32(0.7)])
    apart = spaced(4, low=-1.43, high=1.37)  # equal elements have no gradient
    case("min", "Min", [a, b, apart])
    case("max", "Max", [a, b, apart])
    case("sum", "Sum", [a, b, row])
    case("mean", "Mean", [a, b, row])
    case("pow_square", "Pow", [a], [np.float32(2)])
    case("pow_cube", "Pow", [a], [np.float32(3)])
    case("pow_root", "Pow", [positive], [np.float32(0.5)])
    case("pow_tensor", "Pow", [positive, spaced(3)])
    case("pow_integer", "Pow", [a], [ints(3)])
    for op in ["Sqrt", "Log", "Reciprocal"]:
        case(op.lower(), op, [positive])
    for op in ["Abs", "Neg", "Exp", "Erf", "Tanh", "Sin", "Cos", "Sign", "Floor", "Ceil", "Round"]:
        case(op.lower(), op, [a])
    case("add_integers", "Add", [ints(1, -2, 3), ints(4)])
    case("div_integers", "Div", [ints(7, -7, 9), ints(2, 2, -4)])
    case("mod_integers", "Mod", [ints(7, -7, 9), ints(4, 4, -4)])
    case("fmod_integers", "Mod", [ints(7, -7, 9), ints(4, 4, -4)], fmod=1)


def comparisons():
    a, b = spaced(2, 3), spaced(3)
    for op in ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"]:
        case(op.lower(), op, [a, b])
    case("equal", "Equal", [ints(1, 2, 3), ints(2)])
    yes, no = np.array([[True], [False]]), np.array([True, False])
    for op in ["And", "Or", "Xor"]:
        case(op.lower(), op, [yes, no])
    case("not", "Not", [yes])
    case("where", "Where", [yes, a, b])
    case("where_integers", "Where", [no, ints(1), ints(5, 6)])


def reductions():
    a, positive = spaced(2, 3, 4), spaced(2, 3, 4, low=0.3, high=2)
    for op in ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]:
        case(op.lower(), op, [a], axes=[1, -1], keepdims=0)
    case("reducelogsum", "ReduceLogSum", [positive], axes=[1])
    case("reducesum", "ReduceSum", [a], [ints(1)], keepdims=0)
    case("reducesum_all", "ReduceSum", [a], keepdims=0)
    case("reducesum_none", "ReduceSum", [a], noop_with_empty_axes=1)
    case("reducemean_axes_as_input", "ReduceMean", [a], [ints(0, 2)], opset=18)
    case("reduceprod_integers", "ReduceProd", [ints(2, 3, 4)], keepdims=0)
    case("argmax", "ArgMax", [a], axis=1, keepdims=0)
    case("argmin", "ArgMin", [a], axis=-1)


def layouts():
    a = spaced(2, 3, 4)
    case("reshape", "Reshape", [a], [ints(0, -1, 2)])
    case("flatten", "Flatten", [a], axis=2)
    case("transpose", "Transpose", [a], perm=[2, 0, 1])
    case("transpose_default", "Transpose", [a])
    case("squeeze", "Squeeze", [spaced(1, 3, 1)], [ints(0)])
    case("squeeze_all", "Squeeze", [spaced(1, 3, 1)])
    case("squeeze_attribute", "Squeeze", [spaced(1, 3, 1)], opset=11, axes=[-1])
    case("unsqueeze", "Unsqueeze", [a], [ints(0, -1)])
    case("expand", "Expand", [spaced(3, 1)], [ints(2, 1, 4)])
    case("tile", "Tile", [spaced(2, 3)], [ints(2, 1)])
    case("identity", "Identity", [a])
    case("dropout", "Dropout", [a])
    case("concat", "Concat", [a, spaced(2, 1, 4)], axis=-2)
    case("concat_integers", "Concat", [ints(1, 2), ints(3)], axis=0)
    case("slice", "Slice", [a], [ints(0, -3), ints(2, 9**9), ints(1, -1), ints(1, 2)])
    case("slice_backwards", "Slice", [a], [ints(-1), ints(-9**9), ints(2), ints(-1)])
    case("slice_attributes", "Slice", [a], opset=9, starts=[1], ends=[3], axes=[1])
    case("split", "Split", [a], [ints(1, 3)], axis=2, outputs=2)
    case("split_even", "Split", [spaced(5, 2)], opset=18, axis=0, outputs=2, num_outputs=2)
    case("pad", "Pad", [a], [ints(0, 1, 0, 0, 0, 2), np.float32(0.5)])
    case("pad_cutting", "Pad", [a], [ints(0, -1, 0, 0, 0, 1)])
    case("pad_reflect", "Pad", [a], [ints(0, 1, 2, 0, 2, 1)], mode="reflect")
    case("pad_edge", "Pad", [a], [ints(0, 1, 2, 1, 2, 1)], mode="edge")
    case("gather", "Gather", [a], [ints(2, 0, -1)], axis=1)
    case("gather_embedding", "Gather", [], [spaced(5, 3), np.array([[1, 4], [0, 1]])])
    case("gather_scalar", "Gather", [a], [np.int64(1)], axis=2)


def shapes():
    a = spaced(2, 3, 4)
    case("shape", "Shape", [a])
    case("shape_part", "Shape", [a], start=1, end=-1)
    case("size", "Size", [a])
    case("constant_of_shape", "ConstantOfShape", [ints(2, 3)], value=numpy_helper.from_array(np.array([7], np.int64)))
    case("range", "Range", [np.int64(10), np.int64(1), np.int64(-4)])
    case("cast_to_integers", "Cast", [spaced(4, low=-4, high=4)], to=TensorProto.INT64)
    case("cast_to_floats", "Cast", [ints(1, -2)], to=TensorProto.FLOAT)
    case("cast_to_bools", "Cast", [ints(1, 0)], to=TensorProto.BOOL)


def resizings():
    x = spaced(1, 2, 4, 3)
    region = np.array([], np.float32)
    twice, sizes = np.array([1, 1, 2, 2], np.float32), ints(1, 2, 3, 7)
    for mode in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]:
        case(f"resize_linear_{mode}", "Resize", [x], [None, None, sizes], mode="linear", coordinate_transformation_mode=mode)
    for mode in ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]:
        case(f"resize_nearest_{mode}", "Resize", [x], [None, None, sizes], mode="nearest", nearest_mode=mode)
    case("resize_scales", "Resize", [x], [region, twice], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def activations():
    a = spaced(2, 3, 4, low=-4, high=4)
    for op in ["Relu", "LeakyRelu", "Elu", "Celu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish", "Softplus", "Softsign"]:
        case(op.lower(), op, [a])
    case("mish", "Mish", [a], opset=18)
    case("gelu", "Gelu", [a], opset=20)
    case("gelu_tanh", "Gelu", [a], opset=20, approximate="tanh")
    case("prelu", "PRelu", [a], [spaced(3, 1)])
    case("clip", "Clip", [a], [np.float32(-1), np.float32(2.5)])
    case("clip_above", "Clip", [a], [None, np.float32(1.0)])
    case("clip_attributes", "Clip", [a], opset=10, min=0.0, max=6.0)
    case("softmax", "Softmax", [a], axis=1)
    case("softmax_flattened", "Softmax", [a], opset=11)
    case("log_softmax", "LogSoftmax", [a])
    graph("silu_pattern", [("Sigmoid", [a], [], 1, {}), ("Mul", [], [spaced(4)], 1, {})])


def small_network():
    graph("small_network", [
        ("Conv", [spaced(2, 1, 8, 8)], [spaced(3, 1, 3, 3), spaced(3)], 1, {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", [], [spaced(3), spaced(3), spaced(3), spaced(3, low=0.5, high=2)], 1, {}),
        ("Tanh", [], [], 1, {}),  # no kinks: differences are taken through the whole network
        ("AveragePool", [], [], 1, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Flatten", [], [], 1, {}),
        ("Gemm", [], [spaced(5, 48), spaced(5)], 1, {"transB": 1}),
    ])


def packed(data):
    return struct.pack("<I", len(data)) + data


def tensor(array):
    kind = {"f": 0, "i": 1, "b": 2}[array.dtype.kind]
    array = array.astype([np.float32, np.int64, np.uint8][kind])
    return struct.pack(f"<BI{array.ndim}I", kind, array.ndim, *array.shape) + array.tobytes()


def main():
    for make in [convolutions, poolings, normalizations, products, elementwise, comparisons, reductions, layouts,
                 shapes, resizings, activations, small_network]:
        make()
    out = b""
    for name, model, inputs, outputs in cases:
        out += packed(name.encode()) + packed(model)
        for tensors in (inputs, outputs):
            out += struct.pack("<I", len(tensors)) + b"".join(tensor(np.asarray(t)) for t in tensors)
    path = Path(__file__).with_name("cases.bin")
    path.write_bytes(out)
    print(f"{len(cases)} cases, {len(out)} bytes")


main()
