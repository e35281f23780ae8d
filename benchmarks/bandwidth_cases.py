"""Graphs of one operator whose time is that of the bytes which it moves.

The caller's arrays are row-major. Cases marked NHWC take and give [N, H, W, C], as files from
TensorFlow do, so that the operator in between reads and writes channels-last without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from saccade.ir import Array, DType, Factor, Graph, IndexMap, Node, Op, Value, storage
from saccade.ir.expr import parse
from saccade.opdefs import Concat, Conv2d, Move, Pointwise, Pool2d, Reduce, Resize

__all__ = ["CASES", "SWEEPS", "moved", "sized"]

CHANNELS = 128
NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass
class Build:
    """A graph under construction; every value has the elements `dtype`."""

    dtype: DType
    inputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[Value, Array] = field(default_factory=dict)

    def input(self, *shape: int) -> Value:
        """What the caller gives."""
        self.inputs.append(Value(f"x{len(self.inputs)}", self.dtype, shape))
        return self.inputs[-1]

    def constant(self, *shape: int) -> Value:
        """Random weights, float32."""
        value = Value(f"w{len(self.constants)}", DType.F32, shape)
        random = np.random.default_rng(len(self.constants))
        array = random.standard_normal(shape).astype(np.float32)
        array.flags.writeable = False
        self.constants[value] = array
        return value

    def op(self, op: Op, *operands: Value) -> Value:
        """The result of an operator."""
        (kind,) = storage.infer(op, [v.type for v in operands])
        name = f"v{len(self.nodes)}"
        value = Value(name, self.dtype, kind.shape)
        self.nodes.append(Node(op, operands, (value,), name))
        return value

    def expr(self, text: str, *operands: Value) -> Value:
        """Element by element."""
        return self.op(Pointwise(parse(text), self.dtype.arithmetic), *operands)

    def transpose(self, value: Value, order: tuple[int, ...]) -> Value:
        """Axes in another order."""
        factors = tuple(Factor(value.shape[p], p) for p in order)
        groups = tuple((size,) for size in value.shape)
        return self.op(Move(IndexMap(groups, factors, (1,) * len(order))), value)

    def graph(self, *outputs: Value) -> Graph:
        """All of it."""
        names = tuple(f"y{i}" for i in range(len(outputs)))
        return Graph(tuple(self.inputs), outputs, tuple(self.nodes), self.constants, names)


Maker = Callable[[Build, int], Value]
"""Builds a case over an image of so many rows and columns."""


def moved(graph: Graph, sweeps: int = 1) -> int:
    """Bytes that are read and written if every value of the caller moves once.

    Args:
        graph: A case.
        sweeps: How often its first operand has to be read.
    """
    again = graph.inputs[:1] * (sweeps - 1)
    return sum(
        math.prod(v.shape) * v.dtype.itemsize  # type: ignore[arg-type] - all are static
        for v in (*again, *graph.inputs, *graph.outputs)
    )


def sized(make: Maker, dtype: DType, nbytes: int, sweeps: int = 1) -> Graph:
    """The case over the square image, of an even side, that moves nearest to `nbytes`."""

    def graph(side: int) -> Graph:
        build = Build(dtype)
        return build.graph(make(build, side))

    per_pixel = moved(graph(64), sweeps) / 64**2
    return graph(max(4, 2 * round(math.sqrt(nbytes / per_pixel) / 2)))


def _planar(text: str, operands: int = 1) -> Maker:
    def make(b: Build, n: int) -> Value:
        return b.expr(text, *(b.input(1, CHANNELS, n, n) for _ in range(operands)))

    return make


def _scale_planar(b: Build, n: int) -> Value:
    return b.expr("mul($0, $1)", b.input(1, CHANNELS, n, n), b.input(1, CHANNELS, 1, 1))


def _scale_last(b: Build, n: int) -> Value:
    return b.expr("mul($0, $1)", b.input(1, n, n, CHANNELS), b.input(1, 1, 1, CHANNELS))


def _transposed(channels: int, order: tuple[int, ...], text: str = "") -> Maker:
    """A transposition, with an expression behind it."""

    def make(b: Build, n: int) -> Value:
        shape = (1, channels, n, n) if order == NHWC else (1, n, n, channels)
        value = b.transpose(b.input(*shape), order)
        return b.expr(text, value) if text else value

    return make


def _sum_transposed(b: Build, n: int) -> Value:
    """One operand in each order."""
    last = b.transpose(b.input(1, n, n, CHANNELS), NCHW)
    return b.expr("relu(add($0, $1))", last, b.input(1, CHANNELS, n, n))


def _last(op: Callable[[int], Op], channels: int = CHANNELS) -> Maker:
    """An operator over a channels-last image, whose result the caller gets channels-last."""

    def make(b: Build, n: int) -> Value:
        x = b.transpose(b.input(1, n, n, channels), NCHW)
        return b.transpose(b.op(op(n), x), NHWC)

    return make


def _pool(kind: str, side: int, stride: int) -> Maker:
    padding = (side // 2,) * 4 if side % 2 else (0,) * 4
    return _last(lambda _: Pool2d(kind, (side, side), (stride, stride), padding))


def _wider(channels: int, times: int) -> Callable[[int], Op]:
    return lambda n: Resize((1, channels, times * n, times * n), None, "linear")


def _mean_planar(b: Build, n: int) -> Value:
    return b.op(Reduce("mean", (2, 3)), b.input(1, CHANNELS, n, n))


def _excite(b: Build, n: int) -> Value:
    """The mean, two small products of it, and the image scaled by what they give."""
    x = b.transpose(b.input(1, n, n, CHANNELS), NCHW)
    hidden = CHANNELS // 4
    relu, sigmoid = (Conv2d(epilogue=parse(f"{name}($0)")) for name in ("relu", "sigmoid"))
    squeezed = b.op(relu, b.op(Reduce("mean", (2, 3)), x), b.constant(hidden, CHANNELS, 1, 1))
    gates = b.op(sigmoid, squeezed, b.constant(CHANNELS, hidden, 1, 1))
    return b.transpose(b.expr("mul($0, $1)", x, gates), NHWC)


def _concat(b: Build, n: int) -> Value:
    return b.op(Concat(3), b.input(1, n, n, CHANNELS // 2), b.input(1, n, n, CHANNELS // 2))


def _shuffle(b: Build, n: int) -> Value:
    """The channels of two groups in turns, as between the blocks of a ShuffleNet."""
    x, half = b.input(1, n, n, CHANNELS), CHANNELS // 2
    groups = ((1,), (n,), (n,), (2, half))
    factors = (Factor(1, 0), Factor(n, 1), Factor(n, 2), Factor(half, 4), Factor(2, 3))
    return b.op(Move(IndexMap(groups, factors, (1, 1, 1, 2))), x)


def _resize_to_planar(b: Build, n: int) -> Value:
    """The last step of a segmentation: few channels, eight times as wide, to the caller's order."""
    x = b.transpose(b.input(1, n, n, 21), NCHW)
    return b.op(_wider(21, 8)(n), x)


CASES: Mapping[str, Maker] = {
    "relu": _planar("relu($0)"),
    "add, relu": _planar("relu(add($0, $1))", 2),
    "silu": _planar("silu($0)"),
    "scale by channel, NCHW": _scale_planar,
    "scale by channel, NHWC": _scale_last,
    "relu, NHWC to NCHW": _transposed(CHANNELS, NCHW, "relu($0)"),
    "relu, NCHW to NHWC": _transposed(CHANNELS, NHWC, "relu($0)"),
    "add, relu, one operand NHWC": _sum_transposed,
    "maximum 2x2, stride 2": _pool("max", 2, 2),
    "mean 2x2, stride 2": _pool("average", 2, 2),
    "maximum 3x3, stride 2": _pool("max", 3, 2),
    "maximum 3x3, stride 1": _pool("max", 3, 1),
    "mean 3x3, stride 1": _pool("average", 3, 1),
    "spatial mean, NHWC": _last(lambda _: Reduce("mean", (2, 3))),
    "spatial mean, NCHW": _mean_planar,
    "squeeze and excite, NHWC": _excite,
    "NCHW to NHWC": _transposed(CHANNELS, NHWC),
    "NHWC to NCHW": _transposed(CHANNELS, NCHW),
    "NCHW to NHWC, 3 channels": _transposed(3, NHWC),
    "NHWC to NCHW, 21 channels": _transposed(21, NCHW),
    "concatenation of channels": _concat,
    "shuffle of channels": _shuffle,
    "linear 2x": _last(_wider(CHANNELS, 2)),
    "linear 8x, 21 channels, to NCHW": _resize_to_planar,
}

SWEEPS: Mapping[str, int] = {"squeeze and excite, NHWC": 2}
"""How often the first operand has to be read, where more than once."""
