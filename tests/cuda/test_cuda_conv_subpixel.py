"""A sub-pixel convolution and the convolution of its image: the operator, the pairs, the kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hopper_model import SAME, nhwc, operands, reference, run_where_it_compiles, shuffled
from test_cuda_conv_point import weights_view
from test_cuda_conv_sum import PLUS, Block, evaluated, types

from saccade.backends.cuda.fusions import OPERATORS, Conv2dPoint, Conv2dSubPixel
from saccade.backends.cuda.fusions.subpixel_convs import subpixel_pairs
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import ModelError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.ir.serialize import decode_op, encode_op
from saccade.kernels.base import Call, In, View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore

SUBPIXEL = kernel_named("conv2d.hopper_subpixel")
CRD, DCR = DepthToSpaceStore(2, "CRD"), DepthToSpaceStore(2, "DCR")
UPSCALE, LAST = Conv2d(padding=SAME, store=CRD), Conv2d(padding=SAME)
PAIR = Conv2dSubPixel(UPSCALE, LAST, 0)
SHAPES = [(2, 3, 5, 7), (8, 3, 3, 3), (3, 2, 3, 3)]

# The operator


def test_the_reference_is_one_after_the_other():
    rng = np.random.default_rng(0)
    x, w, w2, bias, added = (
        rng.standard_normal(shape) for shape in (*SHAPES, (8, 1, 1), (3, 1, 1))
    )
    first = replace(UPSCALE, epilogue=parse("relu(add($0, $1))"))
    (between,) = first.reference(x, w, bias)
    assert between.shape == (2, 2, 10, 14)
    (expected,) = LAST.reference(between, w2)
    op = Conv2dSubPixel(first, replace(LAST, epilogue=PLUS), 1)
    (found,) = op.reference(x, w, w2, bias, added)
    np.testing.assert_allclose(found, expected + added, rtol=1e-12)
    assert op.infer(types(*SHAPES, (8, 1, 1), (3, 1, 1))) == tuple(types((2, 3, 10, 14)))
    assert decode_op(encode_op(op), OPERATORS) == op


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (PAIR, SHAPES[:2]),
        (PAIR, [*SHAPES[:2], (3, 8, 3, 3)]),
        (replace(PAIR, n_first=1), SHAPES),
        (replace(PAIR, first=LAST), SHAPES),
        (replace(PAIR, first=replace(UPSCALE, groups=3)), SHAPES),
        (replace(PAIR, second=replace(LAST, prologue=parse("relu($0)"))), SHAPES),
        (replace(PAIR, second=replace(LAST, store=CRD)), SHAPES),
    ],
)
def test_refuses_what_is_no_pair(op, shapes):
    PAIR.infer(types(*SHAPES))
    with pytest.raises(ModelError):
        op.infer(types(*shapes))


def test_work_leaves_out_what_lies_between():
    kinds = types(*SHAPES)
    work = PAIR.work(kinds, PAIR.infer(kinds))
    between = UPSCALE.infer(kinds[:2])
    flops = UPSCALE.work(kinds[:2], between).flops
    flops += LAST.work([*between, kinds[2]], PAIR.infer(kinds)).flops
    assert work.flops == flops
    assert work.bytes == 4 * sum(int(np.prod(s)) for s in (*SHAPES, (2, 3, 10, 14)))


# Pairs


def chain(first=UPSCALE, second=LAST, computed=False, again=False):
    """A sub-pixel convolution of [2, 4, 6, 6] with a bias, and what reads its image."""
    b = Block()
    first = replace(first, epilogue=PLUS)
    a = b.add(first, b.value(2, 4, 6, 6), b.constant(8, 4, 3, 3), b.constant(8, 1, 1))
    weigh = b.value if computed else b.constant
    y = b.add(replace(second, epilogue=PLUS), a, weigh(3, 2, 3, 3), b.constant(3, 1, 1))
    others = (b.add(Conv2d(), a, b.constant(4, 2, 1, 1)),) if again else ()
    return b.graph(y, *others), a


def test_a_convolution_and_its_reader_are_joined():
    graph, _ = chain()
    pairs = subpixel_pairs(graph)
    first, second = graph.nodes
    joined = pairs.joint[first]
    assert (joined.first, joined.second) == (first, second)
    assert isinstance(joined.both.op, Conv2dSubPixel) and joined.both.outputs == second.outputs
    assert first not in pairs.apart
    apart, both = evaluated(graph, graph.nodes), evaluated(graph, [joined.both])
    np.testing.assert_allclose(both, apart, rtol=1e-9)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"again": True}, "the image between is read 2 times"),
        ({"second": replace(LAST, prologue=parse("relu($0)"))}, "groups or a prologue"),
        ({"computed": True}, "weights are no constant"),
    ],
)
def test_what_stays_two_steps(made, reason):
    graph, _ = chain(**made)
    assert subpixel_pairs(graph).apart[graph.nodes[0]].reason == reason


def test_what_the_caller_gets_stays():
    graph, a = chain()
    both = replace(graph, outputs=(*graph.outputs, a))
    assert subpixel_pairs(both).apart[both.nodes[0]].reason == "the caller gets the image between"


def test_what_is_half_of_another_pair_stays():
    """The reader's result is read by a 1x1 convolution, which it was joined with before."""
    b = Block()
    a = b.add(UPSCALE, b.value(2, 4, 6, 6), b.constant(8, 4, 3, 3))
    c = b.add(LAST, a, b.constant(3, 2, 3, 3))
    graph = b.graph(b.add(Conv2d(), c, b.constant(5, 3, 1, 1)))
    pairs = subpixel_pairs(graph)
    (pair,) = pairs.joint.values()
    assert isinstance(pair.both.op, Conv2dPoint)
    assert pairs.apart[graph.nodes[0]].reason == "one of them is half of another pair"


# The kernel


def subpixel_call(
    op=PAIR, n=2, c=32, size=(9, 70), m=16, k=3, taps=(3, 3), extra=(), kind=DType.F32
):
    b = op.first.store.block
    weights = (m * b * b, c, *taps)
    p, q = op.first.sum_shape((n, c, *size), weights)[2:]
    rows, pixels = op.second.sum_shape((n, m, p * b, q * b), (k, m, 3, 3))[2:]
    y = View(kind, (n, k, rows, pixels), (k * rows * pixels, rows * pixels, pixels, 1))
    inputs = (nhwc((n, c, *size)), weights_view(*weights), weights_view(k, m, 3, 3), *extra)
    known = (False, True, True, *(False for _ in extra))
    return Call(op, inputs, (y,), known, GpuTarget())


PLAIN = subpixel_call()
PLUSES = Conv2dSubPixel(replace(UPSCALE, epilogue=PLUS), replace(LAST, epilogue=PLUS), 1)
BIASES = (View(DType.F32, (64, 1, 1), (1, 1, 1)), View(DType.F32, (3, 1, 1), (1, 1, 1)))
REFUSALS = {
    "sm_80": replace(PLAIN, target=GpuTarget(arch=80)),
    "blocks of 3x3 pixels": subpixel_call(
        replace(PAIR, first=replace(UPSCALE, store=DepthToSpaceStore(3))), m=8
    ),
    "strides (1, 2), dilations (1, 1)": subpixel_call(
        replace(PAIR, first=replace(UPSCALE, stride=(1, 2)))
    ),
    "5 planes": subpixel_call(k=5),
    "a second window of 3x3 taps, padding (0, 0, 0, 0)": subpixel_call(
        replace(PAIR, second=Conv2d())
    ),
    "second strides (2, 2), dilations (1, 1), 1 groups": subpixel_call(
        replace(PAIR, second=replace(LAST, stride=(2, 2)))
    ),
    "weights are no constant": replace(PLAIN, constant=(False, True, False)),
    "rows of y are no neighbouring floats": replace(PLAIN, outputs=(nhwc((2, 3, 18, 140)),)),
    "the first epilogue reads more than a number for each channel": subpixel_call(
        PLUSES, extra=(View(DType.F32, (9, 70), (70, 1)), BIASES[1])
    ),
    "the second epilogue reads more than a number for each plane": subpixel_call(
        PLUSES, extra=(BIASES[0], View(DType.F32, (2, 3, 1, 1), (3, 1, 1, 1)))
    ),
    "weights and rows of input do not fit a multiprocessor": subpixel_call(c=128, m=32),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSALS)
def test_it_refuses_what_it_cannot_do(reason):
    assert SUBPIXEL.supports(PLAIN) is None
    assert SUBPIXEL.supports(REFUSALS[reason]) == reason


class Team:
    """One team's part, in NumPy: its ring of rows, what rows of blocks add to one another."""

    def __init__(self, launch, number, x, w, v):
        self.tile, self.i = launch.config.tile, launch.integers
        self.r, self.s = launch.config.window.taps
        self.top, self.left = launch.config.window.padding
        image, rest = divmod(number, self.i["across"] * self.i["runs"])
        run, strip = divmod(rest, self.i["across"])
        self.block, self.pixel = run * self.i["length"], strip * 62 - 1
        self.x = x[image].transpose(2, 0, 1)
        taps = self.r * self.s
        self.w = w.reshape(len(w), taps, -1)[:, :, : self.x.shape[0]].astype(np.float32)
        self.v = v[:, : len(w)].astype(np.float32)
        self.y = np.full(launch_shape(launch)[1:], np.nan, np.float32)

    def row(self, j):
        """Row `j` of input, once a column of taps: zeros beyond the image."""
        line = self.block - 1 - self.top + j
        places = self.pixel - self.left + np.arange(64)[None] + np.arange(self.s)[:, None]
        found = np.zeros((self.s, 64, self.x.shape[0]), np.float32)
        if 0 <= line < self.x.shape[1]:
            there = (places >= 0) & (places < self.x.shape[2])
            found[there] = self.x[:, line, places[there]].T
        return found

    def run(self):
        """All rows of blocks; every result is stored once."""
        ring, below = [None] * self.tile.ring, np.zeros((64, 32), np.float32)
        for j in range(self.r - 1):
            ring[j % len(ring)] = self.row(j)
        for i in range(self.i["length"] + 1):
            ring[(i + self.r - 1) % len(ring)] = self.row(i + self.r - 1)
            rows = [ring[(i + r) % len(ring)] for r in range(self.r)]
            sums = sum(
                rows[r][s] @ self.w[:, r * self.s + s].T
                for r in range(self.r) for s in range(self.s)
            )  # fmt: skip
            row, pixel = self.block - 1 + i, self.pixel + np.arange(64)
            inside = (pixel >= 0) & (pixel < self.i["q"]) & (0 <= row < self.i["p"])
            around = np.where(inside[:, None], sums, 0).astype(np.float16).astype(
                np.float32
            ) @ self.v.T  # fmt: skip
            if i > 0:
                self.store(around[:, :32] + below, row * 2 - 1)
            below = around[:, 32:]
        return self.y

    def store(self, sums, line):
        places = sums.reshape(64, 4, 2, 4)  # place, row, channel
        pairs = places[:, 1:3].copy()
        pairs[1:, 0] += places[:-1, 3]
        pairs[:-1, 1] += places[1:, 0]
        for m in range(1, 63):
            if self.pixel + m >= self.i["q"]:
                break
            for row in range(2):
                if 0 <= line + row < 2 * self.i["p"]:
                    at = 2 * (self.pixel + m)
                    assert np.isnan(self.y[:, line + row, at : at + 2]).all()
                    self.y[:, line + row, at : at + 2] = pairs[m, :, row, : self.i["k"]].T


def launch_shape(launch):
    i = launch.integers
    return i["n"], i["k"], 2 * i["p"], 2 * i["q"]


@pytest.mark.parametrize("store", [CRD, DCR])
@pytest.mark.parametrize("taps", [(3, 3), (2, 1)])
def test_a_model_of_the_code_convolves_twice(store, taps):
    pads = SAME if taps == (3, 3) else (1, 0, 0, 0)
    op = Conv2dSubPixel(Conv2d(padding=pads, store=store), LAST, 0)
    x, w = operands(2, c=16, h=9, w=70, k=32, taps=taps)
    _, w2 = operands(1, seed=1, c=8, k=3, taps=(3, 3))
    asked = subpixel_call(op, c=16, m=8, taps=taps)
    assert SUBPIXEL.supports(asked) is None
    between = shuffled(reference(x, w, op.first), store)
    # Sums of whole numbers, which float16 holds up to 2048.
    assert np.abs(between).max() <= 2048
    expected = reference(between, w2, LAST).transpose(0, 3, 1, 2)
    for variant in SUBPIXEL.variants(asked):
        (launch,) = variant.launches
        assert set(launch.integers) == SUBPIXEL.entry(launch.config).launch_integers
        packed = []
        for name, weights, source in (("w", w, 1), ("v", w2, 2)):
            packing = launch.operands[name].packing
            packed.append(FUNCTIONS[packing.function](weights, *packing.parameters))
            assert packing.inputs == (source,) and packed[-1].nbytes == packing.nbytes
        i = launch.integers
        assert launch.chunks == -(-i["parts"] // launch.config.tile.teams)
        found = np.full(launch_shape(launch), np.nan, np.float32)
        for number in range(i["parts"]):
            image = found[number // (i["across"] * i["runs"])]
            part = Team(launch, number, x, *packed).run()
            assert np.isnan(image[~np.isnan(part)]).all()  # nothing is stored twice
            image[~np.isnan(part)] = part[~np.isnan(part)]
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("size", [(1, 1), (3, 62), (720, 1280), (5000, 4)])
def test_parts_are_all_rows_of_all_strips(size):
    for variant in SUBPIXEL.variants(subpixel_call(size=size)):
        i = variant.launches[0].integers
        assert i["across"] * 62 >= i["q"] > (i["across"] - 1) * 62
        # Blocks of rows, and the row of results above the first.
        assert i["runs"] * i["length"] >= i["p"] + 1 > (i["runs"] - 1) * i["length"]
        assert i["parts"] == i["n"] * i["across"] * i["runs"]


def test_large_images_fill_the_gpu_in_one_turn():
    call = subpixel_call(n=1, size=(1440, 2560))
    for variant in SUBPIXEL.variants(call):
        (launch,) = variant.launches
        assert 0.9 * call.target.multiprocessors < launch.chunks <= call.target.multiprocessors


def test_operands_of_both_epilogues_follow_both_weights():
    (launch,) = next(iter(SUBPIXEL.variants(subpixel_call(PLUSES, extra=BIASES)))).launches
    assert [launch.operands[f"e{i}"] for i in (1, 2)] == [In(3), In(4)]
    functions = SUBPIXEL.entry(launch.config).functions
    # Each is loaded once, before the rows.
    assert "tl.load" not in functions["MIDDLE"] + functions["EPILOGUE"]
    assert functions["MIDDLE_KNOWN"].count("tl.load") == functions["KNOWN"].count("tl.load") == 1
    assert launch.config.middle == "add($0, $1)"
    assert launch.config.epilogue[0] == "add($0, $2)"


COMPILED = """
from test_cuda_conv_subpixel import BIASES, PLUSES, SUBPIXEL, subpixel_call
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
for variant in SUBPIXEL.variants(subpixel_call(PLUSES, extra=BIASES)):
    config = variant.launches[0].config
    entry = SUBPIXEL.entry(config)
    cubin = compile_entry(entry, 90, [name for name, _ in (*entry.pointers, *entry.extra_pointers)])
    sass = disassembled(cubin)
    # Nine taps of two products, and four of what lies between, of each team.
    assert "STACK:0" in sass and sass.count("HGMMA") == 22 * config.tile.teams, sass.count("HGMMA")
    # Products do not wait for one another.
    assert sass.count("WARPGROUP.DEPBAR") == 2 * config.tile.teams
    assert cubin.shared <= 232448
"""


def test_it_compiles():
    """In a process that never saw the interpreter."""
    run_where_it_compiles(COMPILED)
