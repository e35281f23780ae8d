"""A convolution and the 1x1 convolution of its result: the operator, the pairs, the kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hopper_model import (
    Ring,
    as_stored,
    nhwc,
    operands,
    reference,
    run_where_it_compiles,
    shuffled,
    stored,
)
from test_cuda_conv_sum import BRANCH, PLUS, SHORTCUT, Block, evaluated, types
from test_cuda_hopper import Tile

from saccade.backends.cuda.fusions import OPERATORS, Conv2dPoint, Conv2dSum
from saccade.backends.cuda.fusions.point_convs import conv_pairs
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import ModelError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.ir.serialize import decode_op, encode_op
from saccade.kernels.base import Call, In, View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore

POINT = kernel_named("conv2d.hopper_point")
WINDOW = Conv2d((2, 1), (1, 1, 1, 1))
PAIR = Conv2dPoint(WINDOW, Conv2d(), 0)
SHAPES = [(2, 3, 9, 7), (5, 3, 3, 3), (4, 5, 1, 1)]

# The operator


def test_the_reference_is_one_after_the_other():
    rng = np.random.default_rng(0)
    x, w, w2, bias, added = (
        rng.standard_normal(shape) for shape in (*SHAPES, (5, 1, 1), (2, 4, 5, 7))
    )
    (between,) = WINDOW.reference(x, w)
    expected = np.einsum("nmpq,km->nkpq", np.maximum(between + bias, 0), w2[:, :, 0, 0]) + added
    op = Conv2dPoint(replace(WINDOW, epilogue=parse("relu(add($0, $1))")), Conv2d(epilogue=PLUS), 1)
    (found,) = op.reference(x, w, w2, bias, added)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert op.infer(types(*SHAPES, (5, 1, 1), (2, 4, 5, 7))) == tuple(types((2, 4, 5, 7)))
    assert decode_op(encode_op(op), OPERATORS) == op


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (PAIR, SHAPES[:2]),
        (PAIR, [*SHAPES[:2], (4, 5, 1, 2)]),
        (PAIR, [*SHAPES[:2], (4, 6, 1, 1)]),
        (replace(PAIR, n_first=1), SHAPES),
        (replace(PAIR, second=Conv2d(stride=(2, 1))), SHAPES),
        (replace(PAIR, second=Conv2d(padding=(0, 1, 0, 0))), SHAPES),
        (replace(PAIR, first=replace(WINDOW, groups=2)), SHAPES),
        (replace(PAIR, second=Conv2d(prologue=parse("relu($0)"))), SHAPES),
        (replace(PAIR, first=replace(WINDOW, store=DepthToSpaceStore(1))), SHAPES),
    ],
)
def test_refuses_what_is_no_pair(op, shapes):
    PAIR.infer(types(*SHAPES))
    with pytest.raises(ModelError):
        op.infer(types(*shapes))


def test_work_leaves_out_what_lies_between():
    kinds = types(*SHAPES)
    work = PAIR.work(kinds, PAIR.infer(kinds))
    between = WINDOW.infer(kinds[:2])
    flops = WINDOW.work(kinds[:2], between).flops
    flops += Conv2d().work([*between, kinds[2]], PAIR.infer(kinds)).flops
    assert work.flops == flops
    assert work.bytes == 4 * sum(int(np.prod(s)) for s in (*SHAPES, (2, 4, 5, 7)))


# Pairs


def chain(first=BRANCH, second=None, taps2=1, computed=False, again=False):
    """A convolution of [2, 8, 6, 6] with a bias, and what reads its result."""
    b = Block()
    a = b.add(first, b.value(2, 8, 6, 6), b.constant(5, 8, 3, 3), b.constant(5, 1, 1))
    weigh = b.value if computed else b.constant
    second = second or Conv2d(epilogue=PLUS)
    w2 = weigh(4, 5 // second.groups, taps2, taps2)
    y = b.add(second, a, w2, b.constant(4, 1, 1))
    others = (b.add(Conv2d(), a, b.constant(4, 5, 1, 1)),) if again else ()
    return b.graph(y, *others), a


def test_a_convolution_and_its_reader_are_joined():
    graph, _ = chain()
    pairs = conv_pairs(graph)
    first, second = graph.nodes
    joined = pairs.joint[first]
    assert (joined.first, joined.second) == (first, second)
    assert isinstance(joined.both.op, Conv2dPoint) and joined.both.outputs == second.outputs
    apart, both = evaluated(graph, graph.nodes), evaluated(graph, [joined.both])
    np.testing.assert_allclose(both, apart, rtol=1e-9)


def reason_of(graph):
    return conv_pairs(graph).apart[graph.nodes[0]].reason


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"again": True}, "what lies between is read 2 times"),
        ({"taps2": 3}, "what lies between is not read by a plain 1x1 convolution"),
        (
            {"second": Conv2d((2, 2), epilogue=PLUS)},
            "what lies between is not read by a plain 1x1 convolution",
        ),
        ({"second": Conv2d(epilogue=PLUS, prologue=parse("relu($0)"))}, "groups or a prologue"),
        ({"computed": True}, "weights are no constant"),
    ],
)
def test_what_stays_two_steps(made, reason):
    graph, _ = chain(**made)
    assert reason_of(graph) == reason


def test_what_the_caller_gets_stays():
    b = Block()
    a = b.add(Conv2d(), b.value(2, 8, 6, 6), b.constant(5, 8, 3, 3))
    y = b.add(Conv2d(), a, b.constant(4, 5, 1, 1))
    assert reason_of(b.graph(y, a)) == "the caller gets what lies between"


def test_what_is_half_of_a_sum_stays():
    """The convolution before a block's last one, whose result is summed with the shortcut."""
    b = Block()
    first = b.add(BRANCH, b.value(2, 8, 6, 6), b.constant(5, 8, 3, 3), b.constant(5, 1, 1))
    last = b.add(Conv2d(), first, b.constant(4, 5, 1, 1))
    x = b.value(2, 4, 12, 12)
    y = b.add(SHORTCUT, x, b.constant(4, 4, 1, 1), b.constant(4, 1, 1), last)
    pairs = conv_pairs(b.graph(y))
    (pair,) = pairs.joint.values()
    assert isinstance(pair.both.op, Conv2dSum) and pair.first.output is last
    assert pairs.apart[b.nodes[0]].reason == "its reader is half of another pair"


def test_of_three_in_a_row_two_are_joined():
    b = Block()
    a = b.add(Conv2d(), b.value(2, 8, 6, 6), b.constant(5, 8, 1, 1))
    c = b.add(Conv2d(), a, b.constant(4, 5, 1, 1))
    graph = b.graph(b.add(Conv2d(), c, b.constant(6, 4, 1, 1)))
    pairs = conv_pairs(graph)
    assert [pair.second for pair in pairs.joint.values()] == [graph.nodes[1]]


# The kernel


def weights_view(*shape):
    _, c, r, s = shape
    return View(DType.F16, shape, (c * r * s, r * s, s, 1))


def point_call(op, n, c, size, between, k, taps, extra=(), pitch=0):
    p, q = op.first.sum_shape((n, c, *size), (between, c, *taps))[2:]
    b = op.second.store.block if op.second.store else 1
    y = nhwc((n, k // b**2, p * b, q * b), pitch)
    inputs = (
        nhwc((n, c, *size)), weights_view(between, c, *taps), weights_view(k, between, 1, 1), *extra
    )  # fmt: skip
    known = (False, True, True, *(False for _ in extra))
    return Call(op, inputs, (y,), known, GpuTarget(multiprocessors=1))


PLAIN = point_call(PAIR, 2, 72, (9, 11), 64, 40, (3, 3))
TILED = replace(PAIR, first=replace(WINDOW, epilogue=PLUS), n_first=1)
REFUSALS = {
    "sm_80": replace(PLAIN, target=GpuTarget(arch=80)),
    "48 channels between": point_call(PAIR, 2, 72, (9, 11), 48, 40, (3, 3)),
    "channels of the result do not come in eights": point_call(
        PAIR, 2, 72, (9, 11), 64, 20, (3, 3)
    ),
    "weights are no constant": replace(PLAIN, constant=(False, True, False)),
    "the first epilogue reads an image": point_call(
        TILED, 2, 72, (9, 11), 64, 40, (3, 3), (nhwc((2, 64, 5, 11)),)
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_it_refuses_what_it_cannot_do(reason):
    assert POINT.supports(PLAIN) is None
    assert POINT.supports(REFUSALS[reason]) == reason


def model(launch, x, w, v, y):
    """The code, in NumPy; what lies between is rounded to float16."""
    config, i = launch.config, launch.integers
    tile = config.tile
    assert tile.columns == len(w) and launch.chunks == -(-i["rows"] // tile.rows)
    for number in range(launch.chunks):
        ring, filters = Ring(tile.stages), Ring(tile.ahead)
        own = Tile(launch, x, w, number)
        own.col, own.m = 0, number * tile.rows
        line, q = divmod(own.m, i["q"])
        window = config.window
        own.start = (
            line // i["p"], line % i["p"] * window.stride[0] - window.padding[0],
            q * window.stride[1] - window.padding[1],
        )  # fmt: skip
        for t in range(min(tile.stages - 1, own.total)):
            ring.ask(t, own.operands(t))
        between = own.sums(ring).astype(np.float16).astype(np.float32)
        assert ring.waited == sum(ring.asked)
        chunks = [
            v[at : at + tile.chunk] for at in range(0, config.chunks * tile.chunk, tile.chunk)
        ]
        for c in range(config.chunks):
            # Each is asked for once the one before it in its place was multiplied.
            assert filters.asked[c % tile.ahead] == c // tile.ahead
            filters.held[c % tile.ahead] = chunks[c]
            filters.asked[c % tile.ahead] += 1
            b = filters.wait(c).astype(np.float32)
            sums = np.zeros((tile.rows, tile.chunk), np.float32)
            sums[:, : len(b)] = between @ b.T
            stored(launch, y, own.m, i["rows"], c * tile.chunk, sums)


@pytest.mark.parametrize("pitch", [0, 144])
@pytest.mark.parametrize("between", [64, 128, 256])
def test_a_model_of_the_code_convolves_twice(between, pitch):
    x, w = operands(2, c=72, h=9, w=11, k=between)
    _, w2 = operands(1, seed=1, c=between, k=136, taps=(1, 1))
    asked = point_call(PAIR, 2, 72, (9, 11), between, 136, (3, 3), pitch=pitch)
    assert POINT.supports(asked) is None
    # Sums of whole numbers, which float16 holds up to 2048.
    between_sums = reference(x, w, WINDOW)
    assert np.abs(between_sums).max() <= 2048
    expected = reference(between_sums, w2, PAIR.second)
    for variant in POINT.variants(asked):
        (launch,) = variant.launches
        assert set(launch.integers) == POINT.entry(launch.config).launch_integers
        packed = []
        for name, weights, source in (("w", w, 1), ("v", w2, 2)):
            packing = launch.operands[name].packing
            packed.append(FUNCTIONS[packing.function](weights, *packing.parameters))
            assert packing.inputs == (source,) and packed[-1].nbytes == packing.nbytes
        y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
        model(launch, x, *packed, y)
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


def test_a_model_of_the_code_stores_blocks():
    op = replace(PAIR, second=Conv2d(store=DepthToSpaceStore(2, "CRD")))
    x, w = operands(2, c=16, h=9, w=11, k=64)
    _, w2 = operands(1, seed=1, c=64, k=96, taps=(1, 1))
    asked = point_call(op, 2, 16, (9, 11), 64, 96, (3, 3))
    expected = shuffled(reference(reference(x, w, WINDOW), w2, op.second), op.second.store)
    (launch,) = next(iter(POINT.variants(asked))).launches
    packed = [
        FUNCTIONS[one.packing.function](weights, *one.packing.parameters)
        for one, weights in ((launch.operands["w"], w), (launch.operands["v"], w2))
    ]
    y = np.full(asked.outputs[0].extent + 5, np.nan, np.float32)
    model(launch, x, *packed, y)
    assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


BIASED = Conv2dPoint(
    replace(WINDOW, epilogue=parse("relu(add($0, $1))")),
    Conv2d(epilogue=parse("relu(add(add($0, $1), $2))")), 1,
)  # fmt: skip


def biased(between=64):
    extra = (
        View(DType.F32, (between, 1, 1), (1, 1, 1)), View(DType.F32, (136, 1, 1), (1, 1, 1)),
        nhwc((2, 136, 5, 11)),
    )  # fmt: skip
    return point_call(BIASED, 2, 72, (9, 11), between, 136, (3, 3), extra)


def test_operands_of_both_epilogues_follow_both_weights():
    (launch,) = next(iter(POINT.variants(biased()))).launches
    assert [launch.operands[f"e{i}"] for i in (1, 2, 3)] == [In(3), In(4), In(5)]
    functions = POINT.entry(launch.config).functions
    assert "e1" not in functions["FETCH"] and "$" not in functions["MIDDLE"]
    assert launch.config.middle == "relu(add($0, $1))"
    assert launch.config.epilogue[0] == "relu(add(add($0, $2), $3))"


COMPILED = """
from test_cuda_conv_point import POINT, biased
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
for between in (64, 128):
    launch = next(iter(POINT.variants(biased(between)))).launches[0]
    tile, entry = launch.config.tile, POINT.entry(launch.config)
    cubin = compile_entry(entry, 90, [name for name, _ in (*entry.pointers, *entry.extra_pointers)])
    sass = disassembled(cubin)
    rows = tile.rows // 16 // tile.warps  # halves of a tile that warps have one after the other
    steps = tile.depth // 16 + launch.config.chunks * between // 16
    assert "STACK:0" in sass and sass.count("HGMMA") == rows * steps, sass.count("HGMMA")
    assert cubin.shared <= tile.room
"""


def test_it_compiles():
    """In a process that never saw the interpreter."""
    run_where_it_compiles(COMPILED)
