"""Graphs from an image of any size, run by the NumPy references on whole numbers: no rounding."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType

import numpy as np

from saccade.ir import DType, Graph, Node, Value
from saccade.ir import expr as e
from saccade.ir.dim import symbol
from saccade.ir.reshape_maps import reshape
from saccade.opdefs import Conv2d, ConvTranspose2d, Move, Pointwise
from saccade.tiling import Reach

H, W, N = symbol("H"), symbol("W"), symbol("N")


class Net:
    """Collects nodes behind one image; weights are small whole numbers."""

    def __init__(self, channels=2, seed=0, shape=None):
        self.random = np.random.default_rng(seed)
        self.image = Value("image", DType.F64, shape or (N, channels, H, W))
        self.nodes, self.constants = [], {}

    def const(self, array, dtype=np.float64):
        array = np.array(array, dtype)
        array.flags.writeable = False
        value = Value(f"c{len(self.constants)}", DType.of(array.dtype), array.shape)
        self.constants[value] = array
        return value

    def weights(self, *shape):
        return self.const(self.random.integers(-3, 4, shape))

    def op(self, op, *inputs):
        (kind,) = op.infer([value.type for value in inputs])
        value = Value(f"v{len(self.nodes)}", kind.dtype, kind.shape)
        self.nodes.append(Node(op, inputs, (value,), f"n{len(self.nodes)}"))
        return value

    def map(self, text, *inputs):
        return self.op(Pointwise(e.parse(text), DType.F64), *inputs)

    def conv(self, x, k, r=3, **attributes):
        w = self.weights(k, x.shape[1] // attributes.get("groups", 1), r, r)
        return self.op(Conv2d(**attributes), x, w)

    def transposed_conv(self, x, k, r, **attributes):
        return self.op(ConvTranspose2d(**attributes), x, self.weights(x.shape[1], k, r, r))

    def reshape(self, x, *shape):
        return self.op(Move(reshape(x.shape, shape)), x)

    def graph(self, out):
        constants = MappingProxyType(self.constants)
        return Graph((self.image,), (out,), tuple(self.nodes), constants)


def run(graph, x):
    """The result for an image."""
    sizes = {}
    for dim, size in zip(graph.inputs[0].shape, x.shape, strict=True):
        if not isinstance(dim, int):
            sizes[str(dim)] = size
    known = {graph.inputs[0]: x, **graph.constants}
    for node in graph.nodes:
        (known[node.output],) = node.op.bind(sizes).reference(*(known[v] for v in node.inputs))
    return known[graph.outputs[0]]


def image_for(graph, high, wide, seed=1):
    shape = [{"N": 1, "H": high, "W": wide}.get(str(d), d) for d in graph.inputs[0].shape]
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float64)


def in_tiles(graph, x, edge):
    """The same in tiles, and how many."""
    reach = Reach(graph)
    rows, columns = (reach.tiles(x.shape, axis, edge) for axis in (0, 1))
    out = np.full(reach.result_shape(x.shape), np.nan)
    places = reach.result_axes(x.shape)
    for row, column in product(rows, columns):
        part = x[
            _at(x.ndim, reach.axes, slice(row.first, row.stop), slice(column.first, column.stop))
        ]
        inner = run(graph, part)[_at(out.ndim, places, row.inner, column.inner)]
        target = (slice(one.out_first, one.out_stop) for one in (row, column))
        out[_at(out.ndim, places, *target)] = inner
    return out, len(rows) * len(columns)


def _at(rank, axes, *places):
    index = [slice(None)] * rank
    for axis, place in zip(axes, places, strict=True):
        index[axis] = place
    return tuple(index)
