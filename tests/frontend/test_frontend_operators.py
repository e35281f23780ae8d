# ruff: noqa: E501 - a table with one model a line
"""Every importer against onnxruntime: the imported graph, interpreted, gives the same numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model

from saccade.frontend import onnx as frontend
from saccade.ir import DType, Graph
from saccade.testing.interpret import interpret
from saccade.testing.tolerance import assert_close


@dataclass(frozen=True)
class Case:
    body: str
    inputs: str = "float[N, 3, H, W] x"
    shape: tuple[int, ...] = (2, 3, 7, 10)
    opset: int = 17
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: str = "float y"
    k: int = 64
    low: float = -2.0


def _w(*shape: int) -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    return generator.normal(size=shape).astype(np.float32)


def _i(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def _f(*values: float) -> np.ndarray:
    return np.asarray(values, np.float32)


def _s(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


CONV = {"w": _w(4, 3, 3, 3), "b": _w(4)}
LINE = "float[N, 3, L] x"
BLOCKS = "float[N, 12, L] x"
VOLUME = "float[N, 4, D, H, W] x"
BOXES = np.array([[0, 0, 9, 6], [-3, 2.5, 4, 11], [3, 1, 3.5, 4]], np.float32)

CASES = {
    "conv": Case("y = Conv<pads=[1,1,1,1]>(x, w, b)", weights=CONV),
    "conv_asymmetric": Case("y = Conv<pads=[0,1,2,0], strides=[2,3]>(x, w, b)", weights=CONV),
    "conv_dilated": Case("y = Conv<dilations=[2,3]>(x, w)", weights=CONV),
    "conv_groups": Case("y = Conv<group=3>(x, w)", weights={"w": _w(6, 1, 3, 3)}),
    "conv_same_upper": Case('y = Conv<auto_pad="SAME_UPPER">(x, w, b)', weights=CONV),
    "conv_same_lower_stride": Case(
        'y = Conv<auto_pad="SAME_LOWER", strides=[2,2]>(x, w, b)', weights=CONV
    ),
    "conv_valid": Case('y = Conv<auto_pad="VALID">(x, w, b)', weights=CONV),
    "deform_conv": Case(
        "o = Conv<pads=[1,1,1,1]>(x, v)\ny = DeformConv<pads=[1,1,1,1], kernel_shape=[3,3]>(x, w, o)",
        opset=19, weights={"w": _w(4, 3, 3, 3), "v": _w(18, 3, 3, 3)},
    ),
    "deform_conv_open": Case(
        "o = Conv<pads=[1,1,1,1]>(x, v)\ny = DeformConv<pads=[1,1,1,1], offset_group=3>(x, w, o)",
        "float[N, C, H, W] x", opset=19, weights={"w": _w(4, 3, 3, 3), "v": _w(54, 3, 3, 3)},
    ),
    "deform_conv_mask": Case(
        "o = Conv<strides=[2,1], pads=[0,1,1,0]>(x, v)\nm = Conv<strides=[2,1], pads=[0,1,1,0]>(x, u)\n"
        "y = DeformConv<strides=[2,1], pads=[0,1,1,0], group=3, offset_group=3>(x, w, o, b, m)",
        opset=22, weights={"w": _w(6, 1, 2, 2), "v": _w(24, 3, 2, 2), "u": _w(12, 3, 2, 2), "b": _w(6)},
    ),
    "conv_1d": Case(
        "y = Conv<pads=[1,0], strides=[2]>(x, w, b)",
        LINE,
        (2, 3, 11),
        weights={"w": _w(4, 3, 3), "b": _w(4)},
    ),
    "conv_3d": Case(
        "y = Conv<pads=[1,0,1,0,1,2]>(x, w, b)", VOLUME, (2, 4, 5, 6, 7),
        weights={"w": _w(8, 4, 3, 2, 3), "b": _w(8)},
    ),
    "conv_3d_strided_groups": Case(
        "y = Conv<pads=[2,0,1,1,1,0], strides=[2,1,2], dilations=[2,1,1], group=2>(x, w)",
        VOLUME, (1, 4, 9, 7, 9), weights={"w": _w(6, 2, 2, 3, 1)},
    ),
    "conv_3d_depthwise": Case(
        "y = Conv<pads=[1,1,1,1,1,1], group=4>(x, w, b)", VOLUME, (2, 4, 5, 6, 7),
        weights={"w": _w(4, 1, 3, 3, 3), "b": _w(4)},
    ),
    "conv_3d_same": Case(
        'y = Conv<auto_pad="SAME_UPPER", strides=[2,2,3]>(x, w)', VOLUME, (1, 4, 5, 6, 7),
        weights={"w": _w(3, 4, 3, 1, 2)},
    ),
    "conv_3d_pointwise": Case(
        "y = Conv(x, w)", VOLUME, (2, 4, 1, 3, 5), weights={"w": _w(7, 4, 1, 1, 1)}
    ),
    "conv_transpose_3d": Case(
        "y = ConvTranspose<strides=[2,2,2], pads=[1,1,1,1,1,1], output_padding=[1,1,1]>(x, w, b)",
        VOLUME, (2, 4, 3, 4, 5), weights={"w": _w(4, 5, 3, 3, 3), "b": _w(5)},
    ),
    "conv_transpose_3d_gaps": Case(
        "y = ConvTranspose<strides=[3,1,2], pads=[0,0,1,0,1,0]>(x, w, b)",
        VOLUME, (1, 4, 3, 4, 5), weights={"w": _w(4, 5, 1, 2, 3), "b": _w(5)},
    ),
    "conv_transpose_3d_groups": Case(
        "y = ConvTranspose<strides=[3,2,2], group=2, dilations=[2,1,1], pads=[1,0,0,0,0,0]>(x, w)",
        VOLUME, (2, 4, 4, 3, 2), weights={"w": _w(4, 3, 2, 2, 2)},
    ),
    "conv_transpose_3d_plain": Case(
        "y = ConvTranspose<pads=[2,0,0,1,1,1]>(x, w)",
        VOLUME, (1, 4, 4, 3, 2), weights={"w": _w(4, 3, 3, 2, 2)},
    ),
    "col2im": Case(
        "y = Col2Im<strides=[2,1], pads=[0,1,1,0], dilations=[1,2]>(x, i, b)", BLOCKS, (2, 12, 16),
        18, weights={"i": _i(5, 9), "b": _i(3, 2)},
    ),
    "col2im_1d": Case(
        "y = Col2Im<strides=[2], pads=[1,0]>(x, i, b)", BLOCKS, (2, 12, 4), 18,
        weights={"i": _i(9), "b": _i(3)},
    ),
    "col2im_3d": Case(
        "y = Col2Im<strides=[1,2,1], pads=[1,0,0,0,1,0]>(x, i, b)", BLOCKS, (2, 12, 24), 18,
        weights={"i": _i(4, 5, 3), "b": _i(2, 3, 1)},
    ),
    "conv_transpose": Case(
        "y = ConvTranspose<strides=[2,2], pads=[1,1,1,1], output_padding=[1,0]>(x, w, b)",
        weights={"w": _w(3, 4, 3, 3), "b": _w(4)},
    ),
    "conv_transpose_groups": Case(
        "y = ConvTranspose<group=3, dilations=[1,2]>(x, w)", weights={"w": _w(3, 2, 3, 3)}
    ),
    "conv_transpose_same": Case(
        'y = ConvTranspose<strides=[2,2], auto_pad="SAME_UPPER">(x, w)',
        weights={"w": _w(3, 4, 3, 3)},
    ),
    "conv_transpose_shape": Case(
        "y = ConvTranspose<strides=[3,2], output_shape=[20,21]>(x, w)",
        "float[2, 3, 7, 10] x",
        weights={"w": _w(3, 4, 3, 3)},
    ),
    "conv_transpose_1d": Case(
        "y = ConvTranspose<strides=[2]>(x, w)", LINE, (2, 3, 9), weights={"w": _w(3, 4, 3)}
    ),
    "max_pool": Case("y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)"),
    "max_pool_ceil": Case("y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)"),
    "max_pool_dilated": Case("y = MaxPool<kernel_shape=[2,3], dilations=[2,2]>(x)"),
    "max_pool_same": Case('y = MaxPool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">(x)'),
    "max_pool_1d": Case("y = MaxPool<kernel_shape=[3], strides=[2]>(x)", LINE, (2, 3, 9)),
    "max_roi_pool": Case(
        "y = MaxRoiPool<pooled_shape=[3,2], spatial_scale=0.5>(x, b)",
        weights={"b": np.asarray([[1, 0, 2, 9, 11], [0, 3, 3, 3, 3], [1, -9, -9, 40, 7], [0, 30, 30, 50, 50]], np.float32)},
    ),
    "gather_elements": Case(
        "y = GatherElements<axis=2>(x, i)", "float[2, 3, 7, 10] x",
        weights={"i": np.random.default_rng(5).integers(-7, 7, (2, 2, 9, 10))},
    ),
    "gather_elements_computed": Case(
        "i = ArgMax<axis=3>(x)\nn = Sub(i, ten)\ny = GatherElements<axis=-1>(x, n)", "float[2, 3, 7, 10] x",
        weights={"ten": np.asarray(10)},
    ),
    "trilu": Case("y = Trilu(x)", "float[N, 3, 7, 10] x"),
    "trilu_lower": Case("y = Trilu<upper=0>(x, k)", "float[N, 3, 7, 10] x", weights={"k": np.asarray(-2)}),
    "trilu_upper": Case("y = Trilu<upper=1>(x, k)", "float[N, 3, 7, 10] x", weights={"k": np.asarray(3)}),
    "trilu_nothing": Case("y = Trilu<upper=1>(x, k)", "float[N, 3, 7, 10] x", weights={"k": np.asarray(99)}),
    "hardmax": Case("y = Hardmax<axis=2>(x)", "float[N, 3, 7, W] x"),
    "hardmax_flat": Case("y = Hardmax(x)", "float[N, 3, 7, 10] x", opset=11),
    "is_inf": Case("r = Relu(x)\na = Div(one, r)\nb = IsInf<detect_negative=0>(a)\ny = Cast<to=1>(b)", weights={"one": _s(1)}),
    "is_negative_inf": Case("r = Relu(x)\na = Div(one, r)\nb = IsInf<detect_positive=0>(a)\ny = Cast<to=1>(b)", weights={"one": _s(-1)}),
    "one_hot": Case(
        "a = ArgMax<axis=2, keepdims=0>(x)\nb = Sub(a, two)\ny = OneHot<axis=1>(b, depth, values)",
        weights={"two": np.asarray(2), "depth": _i(4), "values": _f(-1, 2)},
    ),
    "eye_like": Case("m = Reshape(x, s)\ne = EyeLike<k=1>(m)\ny = Add(m, e)", "float[2, 3, 7, 10] x", weights={"s": _i(21, 20)}),
    "statistics_of_a_layer_normalization": Case(
        "z, m, d = LayerNormalization<axis=2>(x, w)\na = Add(z, m)\ny = Mul(a, d)", weights={"w": _w(7, 10)},
    ),
    "a_loss": Case(
        "y = SoftmaxCrossEntropyLoss<ignore_index=1>(x, t)", "float[2, 3, 7, 10] x", opset=13, outputs="float[] y",
        weights={"t": np.random.default_rng(3).integers(0, 3, (2, 7, 10))},
    ),
    "a_loss_of_each": Case(
        'y, p = SoftmaxCrossEntropyLoss<reduction="none">(x, t, w)', "float[2, 3, 7, 10] x", opset=13,
        weights={"t": np.random.default_rng(3).integers(0, 3, (2, 7, 10)), "w": _f(0.5, 2, 1)},
    ),
    "center_crop_pad": Case("y = CenterCropPad<axes=[2,3]>(x, s)", opset=18, weights={"s": _i(4, 13)}, shape=(2, 3, 7, 10), inputs="float[2, 3, 7, 10] x"),
    "average_pool": Case("y = AveragePool<kernel_shape=[3,2], pads=[1,1,1,0]>(x)"),
    "average_pool_padding": Case(
        "y = AveragePool<kernel_shape=[3,2], pads=[1,1,1,0], count_include_pad=1>(x)"
    ),
    "average_pool_ceil": Case(
        "y = AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)", opset=19
    ),
    "global_average_pool": Case("y = GlobalAveragePool(x)", k=128),
    "global_max_pool": Case("y = GlobalMaxPool(x)"),
    "gemm": Case(
        "y = Gemm<transB=1, alpha=0.5, beta=2.0>(x, w, b)",
        "float[N, 5] x",
        (3, 5),
        weights={"w": _w(4, 5), "b": _w(4)},
    ),
    "gemm_transposed": Case(
        "y = Gemm<transA=1>(x, w, b)", "float[5, N] x", (5, 3), weights={"w": _w(5, 4), "b": _w(1, 4)}
    ),
    "matmul": Case("y = MatMul(x, w)", weights={"w": _w(10, 4)}),
    "matmul_vector": Case("y = MatMul(x, w)", weights={"w": _w(10)}),
    "matmul_from_vector": Case("y = MatMul(w, x)", weights={"w": _w(7)}),
    "batch_normalization": Case(
        "y = BatchNormalization<epsilon=0.01>(x, s, b, m, v)",
        weights={"s": _w(3), "b": _w(3) + 1, "m": _w(3) * 2, "v": np.abs(_w(3)) + 0.1},
    ),
    "layer_normalization": Case(
        "y = LayerNormalization<axis=-2>(x, s, b)",
        "float[N, 3, 7, 10] x",
        weights={"s": _w(7, 10), "b": _w(7, 10)},
    ),
    "instance_normalization": Case(
        "y = InstanceNormalization(x, s, b)", weights={"s": _w(3), "b": _w(3)}
    ),
    "group_normalization": Case(
        "y = GroupNormalization<num_groups=2>(x, s, b)",
        "float[N, 4, H, W] x",
        (2, 4, 5, 6),
        opset=21,
        weights={"s": _w(4), "b": _w(4)},
    ),
    "lp_normalization": Case("a = LpNormalization<axis=1>(x) y = LpNormalization<p=1>(a)"),
    "lrn": Case("y = LRN<size=3, alpha=0.1, bias=2.0>(x)"),
    "relu": Case("y = Relu(x)"),
    "leaky_relu": Case("y = LeakyRelu<alpha=0.3>(x)"),
    "prelu": Case("y = PRelu(x, s)", weights={"s": _w(3, 1, 1)}),
    "clip": Case("y = Clip(x, l, h)", weights={"l": _s(-0.5), "h": _s(1.5)}),
    "clip_low": Case("y = Clip(x, l)", weights={"l": _s(-0.5)}),
    "clip_high": Case("y = Clip(x, , h)", weights={"h": _s(0.5)}),
    "clip_6": Case("y = Clip<min=-0.5, max=1.0>(x)", opset=7),
    "clip_operands": Case("m = ReduceMin<keepdims=0>(x) z = Neg(m) y = Clip(x, m, z)"),
    "elu": Case("y = Elu<alpha=0.7>(x)"),
    "selu": Case("y = Selu(x)"),
    "celu": Case("y = Celu<alpha=0.7>(x)"),
    "thresholded_relu": Case("y = ThresholdedRelu<alpha=0.7>(x)"),
    "shrink": Case("y = Shrink<lambd=0.7, bias=0.3>(x)"),
    "hard_sigmoid": Case("y = HardSigmoid<alpha=0.3>(x)"),
    "hard_swish": Case("y = HardSwish(x)"),
    "sigmoid": Case("y = Sigmoid(x)"),
    "softplus": Case("y = Softplus(x)"),
    "softsign": Case("y = Softsign(x)"),
    "mish": Case("y = Mish(x)", opset=18),
    "gelu": Case("y = Gelu(x)", opset=20),
    "gelu_tanh": Case('y = Gelu<approximate="tanh">(x)', opset=20),
    "erf": Case("y = Erf(x)"),
    "trigonometry": Case("a = Sin(x) b = Cos(x) c = Tan(x) d = Add(a, b) y = Add(d, c)", low=-1),
    "hyperbolic": Case("a = Sinh(x) b = Cosh(x) c = Tanh(x) d = Add(a, b) y = Add(d, c)"),
    "exp_log_sqrt": Case("a = Exp(x) b = Log(a) c = Sqrt(a) y = Sub(c, b)"),
    "rounding": Case("a = Floor(x) b = Ceil(x) c = Round(x) d = Sub(a, b) y = Add(d, c)"),
    "sign_abs_neg": Case("a = Sign(x) b = Abs(x) c = Neg(b) d = Reciprocal(c) y = Mul(a, d)"),
    "pow": Case("a = Abs(x) y = Pow(a, e)", weights={"e": _w(10)}),
    "pow_square": Case("y = Pow(x, e)", weights={"e": _s(2)}),
    "pow_integer": Case("y = Pow(x, e)", weights={"e": np.asarray(3, np.int64)}),
    "mod": Case("y = Mod<fmod=1>(x, e)", weights={"e": _s(0.7)}),
    "broadcast": Case("a = Add(x, w) b = Div(v, a) y = Mul(b, w)", weights={"w": _w(3, 1, 1) + 9, "v": _f(3)}),
    "minmax": Case("a = Min(x, w, v) b = Max(a, v) y = Sum(b, x, w)", weights={"w": _w(10), "v": _w(7, 1)}),
    "mean": Case("y = Mean(x, w)", weights={"w": _w(10)}),
    "where": Case("c = Greater(x, z) y = Where(c, x, w)", weights={"z": _s(0.2), "w": _w(10)}),
    "logic": Case(
        "a = Less(x, z) b = GreaterOrEqual(x, w) c = And(a, b) d = Xor(a, c) e = Not(d) f = Or(e, b) "
        "y = Where(f, x, z)",
        weights={"z": _s(0.2), "w": _w(10)},
    ),
    "comparison_output": Case("y = LessOrEqual(x, z)", weights={"z": _s(0)}, outputs="bool y"),
    "cast_integer": Case("a = Cast<to=6>(x) b = Add(a, a) y = Cast<to=1>(b)"),
    "cast_bool": Case("a = Cast<to=6>(x) b = Cast<to=9>(a) y = Cast<to=1>(b)"),
    "dropout": Case("y = Dropout(x)"),
    "reduce_mean": Case("y = ReduceMean<axes=[-1,1]>(x)"),
    "reduce_mean_18": Case("y = ReduceMean<keepdims=0>(x, a)", opset=18, weights={"a": _i(2, 3)}),
    "reduce_none": Case("y = ReduceMax<noop_with_empty_axes=1>(x)", opset=18),
    "reduce_none_l1": Case("y = ReduceL1<noop_with_empty_axes=1>(x)", opset=18),
    "reduce_none_l2": Case("y = ReduceL2<noop_with_empty_axes=1>(x, a)", opset=18, weights={"a": _i()}),
    "reduce_none_sum_square": Case("y = ReduceSumSquare<noop_with_empty_axes=1>(x)", opset=18),
    "reduce_none_log_sum": Case("y = ReduceLogSum<noop_with_empty_axes=1>(x)", opset=18, low=0.5),
    "reduce_none_log_sum_exp": Case("y = ReduceLogSumExp<noop_with_empty_axes=1>(x)", opset=18),
    "reduce_scalar": Case(
        "a = ReduceL1(x)\nb = ReduceL2<keepdims=0>(x)\nc = ReduceSumSquare(x)\nd = ReduceLogSum(b)\n"
        "e = Reshape(a, one)\nf = Reshape(b, one)\ng = Reshape(c, one)\nh = Reshape(d, one)\n"
        "y = Concat<axis=0>(e, f, g, h)",
        "float x", (), weights={"one": _i(1)},
    ),
    "reduce_all": Case("y = ReduceL2<keepdims=0>(x)", k=512),
    "reduce_kinds": Case(
        "a = ReduceSum(x, i) b = ReduceL1<axes=[1]>(x) c = ReduceProd<axes=[1]>(x) "
        "d = ReduceSumSquare<axes=[1]>(x) e = ReduceLogSumExp<axes=[1]>(x) y = Sum(a, b, c, d, e)",
        weights={"i": _i(1)},
    ),
    "argmax": Case("y = ArgMax<axis=1, keepdims=0>(x)", outputs="int64 y"),
    "argmin": Case("y = ArgMin<axis=-1, select_last_index=1>(x)", outputs="int64 y"),
    "softmax": Case("y = Softmax<axis=1>(x)"),
    "softmax_11": Case("y = Softmax<axis=2>(x)", opset=11, k=256),
    "log_softmax": Case("y = LogSoftmax(x)"),
    "cumsum": Case("y = CumSum<exclusive=1, reverse=1>(x, a)", weights={"a": np.asarray(2)}),
    "reshape": Case("y = Reshape(x, s)", weights={"s": _i(0, -1, 5)}, inputs="float[N, 3, 7, 10] x"),
    "reshape_two_steps": Case("y = Reshape(x, s)", "float[N, 6, 4] x", (2, 6, 4), weights={"s": _i(0, 4, 6)}),
    "flatten": Case("y = Flatten<axis=2>(x)"),
    "squeeze": Case("a = Unsqueeze(x, i) b = Squeeze(a, j) y = Relu(b)", weights={"i": _i(0, -1), "j": _i(0)}),
    "transpose": Case("y = Transpose<perm=[2,0,3,1]>(x)"),
    "transpose_default": Case("y = Transpose(x)"),
    "slice": Case("y = Slice(x, s, e, a, t)", weights={"s": _i(1, -5), "e": _i(2**31 - 1, -1), "a": _i(2, 3), "t": _i(2, 1)}),
    "slice_backwards": Case(
        "y = Slice(x, s, e, a, t)",
        weights={"s": _i(-1, 5), "e": _i(-(2**62), 1), "a": _i(2, -1), "t": _i(-1, -2)},
    ),
    "slice_short": Case("y = Slice(x, s, e, a)", weights={"s": _i(0), "e": _i(100), "a": _i(2)}),
    "slice_1": Case("y = Slice<starts=[1,2], ends=[-1,6], axes=[2,3]>(x)", opset=9),
    "expand": Case("a = ReduceMax<axes=[1]>(x) y = Expand(a, s)", weights={"s": _i(5, 1, 4, 1, 1)}),
    "tile": Case("y = Tile(x, r)", weights={"r": _i(1, 2, 3, 1)}),
    "split": Case("a, b, y = Split<axis=3>(x, s) z = Concat<axis=3>(y, a, b)", weights={"s": _i(2, 5, 3)},
                  inputs="float[N, 3, H, 10] x", outputs="float z"),
    "split_18": Case("a, b, c = Split<axis=3, num_outputs=3>(x) y = Concat<axis=3>(c, b, a)", opset=18,
                     inputs="float[N, 3, H, 10] x"),
    "concat": Case("a = Relu(x) y = Concat<axis=-3>(x, a, x)"),
    "depth_to_space": Case('y = DepthToSpace<blocksize=2, mode="CRD">(x)', "float[N, 8, H, W] x", (2, 8, 3, 5)),
    "depth_to_space_dcr": Case("y = DepthToSpace<blocksize=2>(x)", "float[N, 8, H, W] x", (2, 8, 3, 5)),
    "depth_to_space_open": Case("y = DepthToSpace<blocksize=2>(x)", "float[N, C, H, W] x", (2, 8, 3, 5)),
    "space_to_depth": Case("y = SpaceToDepth<blocksize=2>(x)", "float[N, 3, 4, 6] x", (2, 3, 4, 6)),
    "pad": Case("y = Pad(x, p, v)", weights={"p": _i(0, 0, 1, 2, 0, 1, 0, 3), "v": _s(1.5)}),
    "pad_reflect": Case('y = Pad<mode="reflect">(x, p)', weights={"p": _i(0, 0, 1, 2, 0, 0, 0, 3)}),
    "pad_edge": Case('y = Pad<mode="edge">(x, p)', weights={"p": _i(0, 0, 1, 2, 0, 0, 0, 3)}),
    "pad_crops": Case("y = Pad(x, p)", weights={"p": _i(0, 0, -1, 2, 0, 0, 0, -3)}),
    "pad_axes": Case("y = Pad(x, p, , a)", opset=18, weights={"p": _i(1, 2), "a": _i(-1)}),
    "pad_2": Case("y = Pad<pads=[0,0,1,2,0,0,0,3], value=2.0>(x)", opset=9),
    "gather": Case("y = Gather<axis=3>(x, i)", weights={"i": np.asarray([[0, -1], [3, 3]])}),
    "gather_one": Case("y = Gather<axis=1>(x, i)", weights={"i": np.asarray(-1)}),
    "gather_evenly": Case("y = Gather<axis=2>(x, i)", weights={"i": _i(5, 3, 1)}, inputs="float[N, 3, 7, W] x"),
    "resize_nearest": Case('y = Resize<mode="nearest">(x, , s)', weights={"s": _f(1, 1, 2, 1.5)}),
    "resize_nearest_floor": Case(
        'y = Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">(x, , s)',
        weights={"s": _f(1, 1, 2, 2)},
    ),
    "resize_linear": Case('y = Resize<mode="linear">(x, , s)', weights={"s": _f(1, 1, 1.7, 0.6)}),
    "resize_align_corners": Case(
        'y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , , s)',
        "float[2, 3, 7, 10] x",
        weights={"s": _i(2, 3, 4, 15)},
    ),
    "resize_pytorch": Case(
        'y = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(x, , , s)',
        "float[2, 3, 7, 10] x",
        weights={"s": _i(2, 3, 1, 15)},
    ),
    "resize_cubic": Case(
        'y = Resize<mode="cubic", cubic_coeff_a=-0.5>(x, , s)', weights={"s": _f(1, 1, 2, 1.5)}
    ),
    "resize_axes": Case('y = Resize<mode="linear", axes=[3]>(x, , , s)', opset=18, weights={"s": _i(17)},
                        inputs="float[2, 3, 7, 10] x"),
    "roi_align": Case("y = RoiAlign<output_height=2, output_width=3, sampling_ratio=2, spatial_scale=0.75>(x, b, n)",
                      weights={"b": BOXES, "n": _i(0, 1, 1)}),
    "roi_align_10": Case("y = RoiAlign<output_height=3, output_width=2>(x, b, n)", opset=10,
                         weights={"b": BOXES, "n": _i(1, 0, 1)}),
    "roi_align_max": Case('y = RoiAlign<mode="max", coordinate_transformation_mode="output_half_pixel">(x, b, n)',
                          weights={"b": BOXES, "n": _i(1, 0, 0)}),
    "resize_10": Case('y = Resize<mode="nearest">(x, s)', opset=10, weights={"s": _f(1, 1, 2, 3)}),
    "upsample": Case('y = Upsample<mode="nearest">(x, s)', opset=9, weights={"s": _f(1, 1, 2, 3)}),
    "upsample_7": Case('y = Upsample<mode="linear", scales=[1.0, 1.0, 2.0, 2.0]>(x)', opset=7),
    "constants": Case(
        "a = Constant<value_float=0.5>() b = Constant<value_floats=[1.0,2.0]>() c = Constant<value_int=2>() "
        "d = Cast<to=1>(c) e = Constant<value_ints=[1]>() f = Squeeze(b) g = ReduceSum(b, e0) "
        "h = Mul(x, a) i = Add(h, d) y = Mul(i, g)",
        weights={"e0": _i(0)},
    ),
    "range": Case("r = Range(s, l, d) y = Add(x, r)", weights={"s": _s(0), "l": _s(5), "d": _s(0.5)}),
    "if_known": Case(
        "c = Constant<value_int=1>() b = Cast<to=9>(c) "
        "y = If(b) <then_branch = t () => (float t1) { t1 = Relu(x) }, "
        "else_branch = e () => (float e1) { n = NonZero(x) e1 = Cast<to=1>(n) }>"
    ),
}  # fmt: skip


def _operand(case: Case) -> np.ndarray:
    generator = np.random.default_rng(7)
    return generator.uniform(case.low, 2, size=case.shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_imported_graph_computes_what_onnxruntime_computes(name: str) -> None:
    case = CASES[name]
    model = text_model(case.body, case.inputs, case.outputs, case.opset, case.weights)
    graph = frontend.load(model)
    x = _operand(case)
    (expected,) = run_onnxruntime(model, {"x": x}).values()
    (actual,) = interpret(graph, {"x": x}).values()
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if expected.dtype == np.float32:
        assert_close(actual, expected.astype(np.float64), dtype=DType.F32, k=case.k)
    else:
        np.testing.assert_array_equal(actual, expected)


def test_negative_padding_of_a_convolution_crops() -> None:
    x = _operand(CASES["conv"])
    padded = frontend.load(text_model("y = Conv<pads=[-1,1,0,-2]>(x, w, b)", weights=CONV))
    plain = frontend.load(text_model("y = Conv<pads=[0,1,0,0]>(x, w, b)", weights=CONV))
    (actual,) = interpret(padded, {"x": x}).values()
    (expected,) = interpret(plain, {"x": x[:, :, 1:, :-2]}).values()
    np.testing.assert_array_equal(actual, expected)


def _families(graph: Graph) -> list[str]:
    return [node.op.family for node in graph.nodes]


@pytest.mark.parametrize("name", ["split", "transpose", "slice", "gather_one", "depth_to_space"])
def test_movement_is_index_maps_only(name: str) -> None:
    case = CASES[name]
    graph = frontend.load(
        text_model(case.body, case.inputs, case.outputs, case.opset, case.weights)
    )
    assert set(_families(graph)) <= {"Move", "Concat"}


def test_bias_and_gemm_terms_are_epilogues() -> None:
    conv = frontend.load(text_model(CASES["conv"].body, weights=CONV)).nodes[0]
    assert str(conv.op.epilogue) == "add($0, $1)"  # type: ignore[attr-defined]
    assert conv.inputs[2].shape == (1, 4, 1, 1)
    case = CASES["gemm"]
    (gemm,) = frontend.load(text_model(case.body, case.inputs, weights=case.weights)).nodes
    assert str(gemm.op.epilogue) == "add(mul($0, 0.5), mul($1, 2.0))"  # type: ignore[attr-defined]


def test_scalar_constants_are_literals_and_shared_operands_appear_once() -> None:
    (node,) = frontend.load(text_model("y = Mul(x, x)")).nodes
    assert len(node.inputs) == 1
    (node,) = frontend.load(text_model("y = Add(x, w)", weights={"w": _f(3)})).nodes
    assert str(node.op.expr) == "add($0, 3.0)"  # type: ignore[attr-defined]


def test_known_operands_are_folded() -> None:
    body = "a = Exp(w) b = Transpose(a) c = Concat<axis=0>(b, b) y = Add(x, c)"
    graph = frontend.load(text_model(body, "float[6, 3] x", weights={"w": _w(3, 3)}))
    assert _families(graph) == ["Pointwise"]


def test_large_results_are_not_folded() -> None:
    body = "a = ConstantOfShape(s) y = Mul(x, a)"
    model = text_model(body, "float[1] x", weights={"s": _i(1 << 16, 1 << 16)})
    graph = frontend.load(model)
    assert graph.outputs[0].shape == (1 << 16, 1 << 16)
    assert max(array.size for array in graph.constants.values()) == 1
