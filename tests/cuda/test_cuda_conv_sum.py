"""Sums of two convolutions: the operator, the pairs that layout may join, and the kernel."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hopper_model import as_stored, nhwc, number, operands, reference, stored
from test_cuda_hopper import im2col

from saccade.backends.cuda.fusions import OPERATORS, Conv2dSum
from saccade.backends.cuda.fusions.sum_convs import sum_pairs
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import ModelError
from saccade.ir import DType, Graph, Node, TensorType, Value
from saccade.ir.expr import parse
from saccade.ir.serialize import decode_op, encode_op
from saccade.kernels.base import Call, In, View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.opdefs import Conv2d, DepthToSpaceStore

SUM = kernel_named("conv2d.hopper_sum")
WINDOW = Conv2d(padding=(1, 1, 1, 1), stride=(2, 1))
POINT = Conv2d(stride=(3, 2))


# The operator


def test_the_reference_adds_before_the_epilogue():
    rng = np.random.default_rng(0)
    x, w, x2, w2, bias = (
        rng.standard_normal(shape)
        for shape in ((2, 3, 9, 7), (5, 3, 3, 3), (2, 4, 13, 14), (5, 4, 1, 1), (5, 1, 1))
    )
    (first,), (second,) = WINDOW.reference(x, w), POINT.reference(x2, w2)
    assert first.shape == second.shape == (2, 5, 5, 7)
    op = Conv2dSum(replace(WINDOW, epilogue=parse("relu(add($0, $1))")), POINT)
    (found,) = op.reference(x, w, x2, w2, bias)
    np.testing.assert_allclose(found, np.maximum(first + second + bias, 0), rtol=1e-12)


def test_sums_of_16_bits_are_rounded_once():
    x, w = np.full((1, 1, 1, 1), 2048, np.float16), np.ones((1, 1, 1, 1), np.float16)
    # 2048 + 1 has no float16, 2048 + 1 + 1 has.
    op = Conv2dSum(Conv2d(epilogue=parse("add($0, $1)")), Conv2d())
    (found,) = op.reference(x, w, w, w, w)
    assert found.dtype == np.float16 and found.item() == 2050


def types(*shapes, dtype=DType.F32):
    return [TensorType(dtype, shape) for shape in shapes]


SHAPES = [(2, 3, 9, 7), (5, 3, 3, 3), (2, 4, 13, 14), (5, 4, 1, 1)]


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Conv2dSum(WINDOW, POINT), SHAPES[:3]),
        (Conv2dSum(WINDOW, POINT), [*SHAPES[:3], (6, 4, 1, 1)]),
        (Conv2dSum(WINDOW, POINT), [*SHAPES[:3], (5, 4, 1, 2)]),
        (Conv2dSum(WINDOW, Conv2d()), SHAPES),
        (Conv2dSum(WINDOW, replace(POINT, groups=2)), SHAPES),
        (Conv2dSum(WINDOW, replace(POINT, epilogue=parse("relu($0)"))), SHAPES),
        (Conv2dSum(replace(WINDOW, prologue=parse("relu($0)")), POINT), SHAPES),
        (Conv2dSum(replace(WINDOW, store=DepthToSpaceStore(1)), POINT), SHAPES),
    ],
)
def test_refuses_what_is_no_sum(op, shapes):
    assert Conv2dSum(WINDOW, POINT).infer(types(*SHAPES)) == tuple(types((2, 5, 5, 7)))
    with pytest.raises(ModelError):
        op.infer(types(*shapes))


def test_work_leaves_out_what_lies_between():
    kinds = types(*SHAPES)
    op = Conv2dSum(WINDOW, POINT)
    work = op.work(kinds, op.infer(kinds))
    flops = WINDOW.work(kinds[:2], op.infer(kinds)).flops + POINT.work(kinds[2:], ()).flops
    assert work.flops == flops + 2 * 5 * 5 * 7
    assert work.bytes == 4 * sum(int(np.prod(s)) for s in (*SHAPES, (2, 5, 5, 7)))
    narrow = types(*SHAPES, dtype=DType.BF16)
    assert op.work(narrow, op.infer(narrow)).flops == work.flops


def test_it_is_read_back_by_name():
    op = Conv2dSum(replace(WINDOW, epilogue=parse("relu($0)")), POINT)
    assert decode_op(encode_op(op), OPERATORS) == op


# Pairs


class Block:
    """A residual block's end: two convolutions of [2, 8, 6, 6] and [2, 4, 12, 12]."""

    def __init__(self):
        self.nodes, self.inputs, self.constants = [], [], {}

    def value(self, *shape):
        self.inputs.append(Value(f"x{len(self.inputs)}", DType.F32, shape))
        return self.inputs[-1]

    def constant(self, *shape):
        value = Value(f"c{len(self.constants)}", DType.F32, shape)
        rng = np.random.default_rng(len(self.constants))
        self.constants[value] = rng.standard_normal(shape).astype(np.float32)
        return value

    def add(self, op, *operands):
        (kind,) = op.infer([v.type for v in operands])
        result = Value(f"v{len(self.nodes)}", kind.dtype, kind.shape)
        self.nodes.append(Node(op, operands, (result,), f"n{len(self.nodes)}"))
        return result

    def graph(self, *outputs):
        return Graph(
            tuple(self.inputs), outputs, tuple(self.nodes), MappingProxyType(self.constants)
        )


PLUS = parse("add($0, $1)")
ENDS = parse("relu(add(add($0, $1), $2))")


BRANCH = Conv2d(padding=(1, 1, 1, 1), epilogue=PLUS)
SHORTCUT = Conv2d(stride=(2, 2), epilogue=ENDS)


def block(maker=BRANCH, taps=3, reader=SHORTCUT, taps2=1, flip=False, computed=False):
    """Maker and reader: a bias each, and the maker's result last among the reader's operands."""
    b = Block()
    weigh = b.value if computed else b.constant
    a = b.add(maker, b.value(2, 8, 6, 6), weigh(5, 8, taps, taps), b.constant(5, 1, 1))
    others = (a, b.constant(5, 1, 1)) if flip else (b.constant(5, 1, 1), a)
    y = b.add(reader, b.value(2, 4, 12, 12), b.constant(5, 4, taps2, taps2), *others)
    return b, a, y


def evaluated(graph, nodes):
    rng = np.random.default_rng(7)
    known = {v: rng.standard_normal(v.shape) for v in graph.inputs}
    known |= {v: array.astype(np.float64) for v, array in graph.constants.items()}
    for node in nodes:
        known |= zip(node.outputs, node.op.reference(*(known[v] for v in node.inputs)), strict=True)
    return known[graph.outputs[0]]


def assert_joined(b, y, first_taps):
    graph = b.graph(y)
    pairs = sum_pairs(graph)
    (pair,) = pairs.joint.values()
    assert (pair.first, pair.second) == (b.nodes[0], b.nodes[1]) and not pairs.apart
    assert pair.both.inputs[1].shape[2] == first_taps and pair.both.outputs == (y,)
    assert [v.type for v in pair.both.outputs] == list(
        pair.both.op.infer([v.type for v in pair.both.inputs])
    )
    np.testing.assert_allclose(
        evaluated(graph, [pair.both]), evaluated(graph, graph.nodes), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("flip", [False, True])
def test_a_shortcut_that_reads_the_branch_is_joined_to_it(flip):
    b, _, y = block(flip=flip)
    assert_joined(b, y, 3)


def test_a_branch_that_reads_the_shortcut_is_joined_to_it():
    b = Block()
    a = b.add(
        Conv2d(stride=(2, 2), epilogue=PLUS), b.value(2, 4, 12, 12), b.constant(5, 4, 1, 1),
        b.constant(5, 1, 1),
    )  # fmt: skip
    y = b.add(
        Conv2d(padding=(1, 1, 1, 1), epilogue=parse("relu(add($1, $0))")), b.value(2, 8, 6, 6),
        b.constant(5, 8, 3, 3), a,
    )  # fmt: skip
    assert_joined(b, y, 3)


def test_two_windows_of_one_tap_are_joined():
    b, _, y = block(Conv2d(epilogue=PLUS), 1)
    assert_joined(b, y, 1)


def test_the_longest_epilogue_keeps_its_operands_in_order():
    b = Block()
    a = b.add(
        Conv2d(epilogue=parse("add($2, add($1, $0))")), b.value(2, 8, 6, 6),
        b.constant(5, 8, 1, 1), b.constant(5, 1, 1), b.constant(1, 5, 1, 1),
    )  # fmt: skip
    ends = parse("min(add($4, add($2, add($1, $0))), $3)")
    y = b.add(
        Conv2d(stride=(2, 2), epilogue=ends), b.value(2, 4, 12, 12), b.constant(5, 4, 1, 1),
        b.constant(5, 1, 1), a, b.constant(5, 1, 1), b.constant(2, 5, 6, 6),
    )  # fmt: skip
    assert_joined(b, y, 1)


def first_refusal(b, *outputs):
    pairs = sum_pairs(b.graph(*outputs))
    assert not pairs.joint
    return pairs.apart[b.nodes[0]].reason


SAME = (1, 1, 1, 1)
REFUSED = {
    "the sums are not added: relu(mul(add($0, $1), $2)) of add($0, $1)": {
        "reader": Conv2d(stride=(2, 2), epilogue=parse("relu(mul(add($0, $1), $2))"))
    },
    "the sums are not added: relu(add(add($0, $1), $2)) of relu(add($0, $1))": {
        "maker": Conv2d(padding=SAME, epilogue=parse("relu(add($0, $1))"))
    },
    "the sums are not added: add(add($0, $1), mul($2, $0)) of add($0, $1)": {
        "reader": Conv2d(stride=(2, 2), epilogue=parse("add(add($0, $1), mul($2, $0))"))
    },
    "both windows have several taps": {
        "reader": Conv2d(stride=(2, 2), padding=SAME, epilogue=ENDS), "taps2": 3
    },
    "groups, a prologue or a store": {
        "maker": Conv2d(padding=SAME, prologue=parse("relu($0)"), epilogue=PLUS)
    },
    "sums are to be exact": {"maker": Conv2d(padding=SAME, epilogue=PLUS, integral=True)},
    "weights are no constant": {"computed": True},
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_stays_two_steps(reason):
    b, _, y = block(**REFUSED[reason])
    assert first_refusal(b, y) == reason


def test_what_is_read_elsewhere_stays():
    b, a, y = block()
    assert first_refusal(b, y, a) == "its result is read elsewhere"
    b, a, y = block()
    z = b.add(Conv2d(), a, b.constant(5, 5, 1, 1))
    assert first_refusal(b, y, z) == "its result is read elsewhere"


def test_a_result_that_repeats_stays():
    b = Block()
    a = b.add(Conv2d(), b.value(1, 8, 6, 6), b.constant(5, 8, 1, 1))
    y = b.add(Conv2d(epilogue=PLUS), b.value(2, 4, 6, 6), b.constant(5, 4, 1, 1), a)
    assert first_refusal(b, y) == "the results differ in shape or element type"


def test_of_three_that_are_added_two_are_joined():
    b, _, y = block()
    z = b.add(Conv2d(epilogue=PLUS), b.value(2, 8, 6, 6), b.constant(5, 8, 1, 1), y)
    pairs = sum_pairs(b.graph(z))
    assert [*pairs.joint] == [b.nodes[0]]
    assert pairs.apart[b.nodes[1]].reason == "it is the end of another sum"


# The kernel


def sum_call(op, n, c, size, k, c2, size2, *, arch=90, extra=()):
    taps = 3 if any(op.first.padding) else 1
    y = nhwc((n, k, *op.first.sum_shape((n, c, *size), (k, c, taps, taps))[2:]))
    w = View(DType.F16, (k, c, taps, taps), (c * taps * taps, taps * taps, taps, 1))
    w2 = View(DType.F16, (k, c2, 1, 1), (c2, 1, 1, 1))
    inputs = (nhwc((n, c, *size)), w, nhwc((n, c2, *size2)), w2, *extra)
    known = (False, True, False, True, *(False for _ in extra))
    return Call(op, inputs, (y,), known, GpuTarget(arch=arch, multiprocessors=1))


PLAIN = sum_call(Conv2dSum(WINDOW, POINT), 2, 72, (9, 11), 40, 136, (13, 22))
REFUSALS = {
    "sm_80": sum_call(Conv2dSum(WINDOW, POINT), 2, 72, (9, 11), 40, 136, (13, 22), arch=80),
    "steps of different depths": sum_call(
        Conv2dSum(WINDOW, POINT), 2, 72, (9, 11), 40, 16, (13, 22)
    ),
    "12 input channels": sum_call(Conv2dSum(WINDOW, POINT), 2, 72, (9, 11), 40, 12, (13, 22)),
    "weights are no constant": replace(PLAIN, constant=(False, True, False, False)),
    "x is a part of wider pixels": replace(
        PLAIN, inputs=(*PLAIN.inputs[:2], nhwc((2, 136, 13, 22), pitch=144), PLAIN.inputs[3])
    ),
    "element types": replace(
        PLAIN, inputs=(*PLAIN.inputs[:2], nhwc((2, 136, 13, 22), dtype=DType.F32), PLAIN.inputs[3])
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_it_refuses_what_it_cannot_do(reason):
    assert SUM.supports(PLAIN) is None
    assert SUM.supports(REFUSALS[reason]) == reason


def tile_sums(launch, entry, images, packed, program, tiles):
    """Sums of one tile: the steps of the first window, then those of the second."""
    config, i, tile = launch.config, launch.integers, launch.config.tile
    blocks = -(-i["k"] * 8 // tile.columns)
    col, m = program % blocks * tile.columns, program // blocks * tile.rows
    line = m // i["q"]
    image, p, q = line // i["p"], line % i["p"], m % i["q"]
    window = config.window
    acc = np.zeros((tile.rows, tile.columns), np.float32)
    total = window.taps[0] * window.taps[1] * i["steps"]
    for t in range(total + i["steps2"]):
        if t < total:
            tap, block = divmod(t, i["steps"])
            start = (
                image, p * window.stride[0] - window.padding[0],
                q * window.stride[1] - window.padding[1],
            )  # fmt: skip
            offsets = tap // window.taps[1] * window.dilation[0], tap % window.taps[1]
            at, which = (tap * i["steps"] + block) * tile.depth, 0
        else:
            block = t - total
            start, offsets = (image, p * config.stride2[0], q * config.stride2[1]), (0, 0)
            at, which = block * tile.depth, 1
        described = entry.descriptors[2 * which]
        a = im2col(images[which], described, i, start, offsets, block * tile.depth)
        b = packed[which][col : col + tile.columns, at : at + tile.depth].astype(np.float32)
        acc[:, : len(b)] += a @ b.T
    return m, col, acc


@pytest.mark.parametrize("op", [Conv2dSum(WINDOW, POINT), Conv2dSum(Conv2d(), POINT)], ids=str)
def test_a_model_of_the_code_adds_both(op):
    taps = 3 if any(op.first.padding) else 1
    x, w = operands(2, c=72, h=9, w=11, k=40, taps=(taps, taps))
    n, k, p, q = op.first.sum_shape((2, 72, 9, 11), (40, 72, taps, taps))
    size2 = ((p - 1) * 3 + 2, (q - 1) * 2 + 1)
    x2, w2 = operands(2, seed=1, c=136, h=size2[0], w=size2[1], k=40, taps=(1, 1))
    asked = sum_call(op, 2, 72, (9, 11), 40, 136, size2)
    assert SUM.supports(asked) is None
    expected = reference(x, w, op.first) + reference(x2, w2, op.second)
    variants = list(SUM.variants(asked))
    assert [v.micros for v in variants] == sorted(v.micros for v in variants)
    lasting = [v for v in variants if v.launches[0].config.tile.persistent]
    assert lasting and len(lasting) < len(variants)
    for variant in (variants[0], variants[-1]):
        (launch,) = variant.launches
        entry = SUM.entry(launch.config)
        assert set(launch.integers) == entry.launch_integers
        assert (launch.operands["x2"], launch.operands["x"]) == (In(2), In(0))
        packed = []
        for name, weights, source in (("w", w, 1), ("w2", w2, 3)):
            packing = launch.operands[name].packing
            packed.append(pack_filters(weights, *packing.parameters))
            assert packing.inputs == (source,) and packed[-1].nbytes == packing.nbytes
            described = next(d for d in entry.descriptors if d.name == name)
            sizes = [number(size, launch.integers) for size in described.sizes]
            assert packed[-1].size == sizes[0] * sizes[1]
        tile = launch.config.tile
        tiles = -(-launch.integers["rows"] // tile.rows) * -(-k // tile.columns)
        y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
        for program in range(tiles):
            m, col, acc = tile_sums(launch, entry, (x, x2), packed, program, tiles)
            stored(launch, y, m, launch.integers["rows"], col, acc)
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)
    assert (n, p, q) == expected.shape[:3]


def test_operands_of_the_epilogue_follow_both_weights():
    bias = View(DType.F32, (40, 1, 1), (1, 1, 1))
    op = Conv2dSum(replace(WINDOW, epilogue=parse("relu(add(add($0, $1), $2))")), POINT)
    asked = sum_call(op, 2, 72, (9, 11), 40, 136, (13, 22), extra=(bias, nhwc((2, 40, 5, 11))))
    (launch,) = next(iter(SUM.variants(asked))).launches
    assert (launch.operands["e1"], launch.operands["e2"]) == (In(4), In(5))
    entry = SUM.entry(launch.config)
    assert "FETCH" in entry.functions and entry.integers[-1] == "steps2"


def test_what_is_joined_is_estimated_below_two_steps():
    hopper = kernel_named("conv2d.hopper")
    target = GpuTarget(machine="h200")
    asked = replace(
        sum_call(Conv2dSum(Conv2d(), Conv2d()), 32, 64, (56, 56), 256, 64, (56, 56)), target=target
    )
    x, w, x2, w2 = asked.inputs
    first = Call(Conv2d(), (x, w), asked.outputs, (False, True), target)
    second = Call(
        Conv2d(epilogue=PLUS), (x2, w2, asked.outputs[0]), asked.outputs, (False, True, False),
        target,
    )  # fmt: skip
    apart = [next(iter(hopper.variants(one))).micros for one in (first, second)]
    joined = next(iter(SUM.variants(asked))).micros
    assert min(apart) < joined < 0.8 * sum(apart)
