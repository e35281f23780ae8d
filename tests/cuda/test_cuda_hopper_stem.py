"""Stems on Hopper, as far as they can be held without a GPU, by `test_cuda_hopper_rows`' model."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hopper_model import as_stored, call, nhwc, operands, reference, run_where_it_compiles, shuffled
from test_cuda_hopper_rows import Program

from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.base import View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

STEM = kernel_named("conv2d.hopper_stem")
OP = Conv2d((2, 2), (3, 3, 3, 3))
PLAIN = call(1, 3, 20, 30, 64, (7, 7), OP)
REFUSED = {
    "sm_80": replace(PLAIN, target=GpuTarget(arch=80)),
    "weights are no constant": replace(PLAIN, constant=(False, False)),
    "5 input channels": call(1, 5, 20, 30, 64, (7, 7), OP),
    "strides (2, 1), dilations (1, 1)": call(1, 3, 20, 30, 64, (3, 3), Conv2d((2, 1))),
    "strides (4, 2), dilations (1, 1)": call(1, 3, 20, 30, 64, (3, 3), Conv2d((4, 2))),
    "strides (1, 2), dilations (2, 1)": call(
        1, 3, 20, 30, 64, (3, 3), Conv2d((1, 2), dilation=(2, 1))
    ),
    "20 filters, 20 channels of the result": call(1, 3, 20, 30, 20, (7, 7), OP),
    "an interleaving store": replace(PLAIN, op=replace(OP, store=InterleaveStore(2, 0))),
    "element types": replace(PLAIN, outputs=(nhwc((1, 64, 10, 15), dtype=DType.F32),)),
    "weights do not fit shared memory": call(1, 3, 90, 90, 64, (61, 15), Conv2d((2, 2))),
    "pixels are no multiples of 16 bytes apart": replace(
        PLAIN, outputs=(nhwc((1, 64, 10, 15), pitch=68),)
    ),
    "not channels-last": replace(
        PLAIN, outputs=(View(DType.F16, (1, 64, 10, 15), (9600, 150, 15, 1)),)
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_it_refuses_what_it_cannot_do(reason):
    assert STEM.supports(PLAIN) is None
    assert STEM.supports(REFUSED[reason]) == reason


def spread(x, launch, padding):
    """The image that the first launch writes."""
    n, h, w, c = x.shape
    i, (top, left, *_) = launch.integers, padding
    image = np.zeros((n, i["down"], i["across"], 4), np.float32)
    rows, columns = min(h, i["down"] - top), min(w, i["across"] - left)
    image[:, top : top + rows, left : left + columns, :c] = x[:, :rows, :columns]
    return image


STEMS = {
    "7x7": (OP, 3, (7, 7)),
    "3x3": (Conv2d((2, 2), (1, 1, 1, 1)), 4, (3, 3)),
    "uneven": (Conv2d((3, 2), (1, 0, 2, 1)), 1, (5, 2)),
    "far": (Conv2d((1, 4), (2, 1, 0, 5)), 2, (2, 6)),
    "crd": (replace(OP, store=DepthToSpaceStore(2, "CRD")), 3, (7, 7)),
}


def modelled(x, weights, op, variants):
    """For each variant, its memory of results after the model has run it: NaN where it stored none.

    Yields:
        The memory.
    """
    for variant in variants:
        first, sums = variant.launches
        assert set(sums.integers) == STEM.entry(sums.config).launch_integers
        packing = sums.operands["w"].packing
        packed = FUNCTIONS[packing.function](weights, *packing.parameters)
        assert packed.nbytes == packing.nbytes
        image, plain = spread(x, first, op.padding), replace(sums, config=sums.config.sums)
        assert 2 * image.size == sums.operands["x"].nbytes == first.operands["wide"].nbytes
        y = np.full(2 * 72 * 20 * 71 * 8, np.nan, np.float32)
        for which, team in product(range(plain.chunks), range(plain.config.tile.teams)):
            Program(plain, image, packed, y, which, team).run()
        yield y


@pytest.mark.parametrize("stem", STEMS)
def test_a_model_of_the_code_convolves(stem):
    op, c, taps = STEMS[stem]
    x, weights = operands(2, c=c, h=19, w=141, k=72 if op.store is None else 64, taps=taps)
    (n, h, w, _), k = x.shape, len(weights)
    asked = replace(call(n, c, h, w, k, taps, op), target=GpuTarget(multiprocessors=2))
    assert STEM.supports(asked) is None
    expected = shuffled(reference(x, weights, op), op.store)
    for y in modelled(x, weights, op, STEM.variants(asked)):
        assert np.array_equal(as_stored(y, asked.outputs[0]), expected)


def test_an_infinity_reaches_only_what_it_is_a_tap_of():
    """Weights behind a row's last tap are zeros, which would make a NaN of it."""
    op, c, taps = STEMS["7x7"]
    x, weights = operands(1, c=c, h=19, w=41, k=24, taps=taps)
    for column in range(13, 19):
        x[0, 9, :, 0] = 0
        x[0, 9, column, 0] = np.inf
        asked = call(1, c, 19, 41, 24, taps, op)
        with np.errstate(invalid="ignore"):
            expected = reference(x, weights, op)
            (y,) = modelled(x, weights, op, list(STEM.variants(asked))[:1])
        found = y[: expected.size].reshape(expected.shape)
        assert 0 < np.isfinite(expected).sum() < expected.size
        assert np.array_equal(np.isfinite(found), np.isfinite(expected))


COMPILED = """
from saccade.ir.expr import parse
from test_cuda_hopper_stem import DType, PLAIN, STEM, View, replace
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
op = replace(PLAIN.op, epilogue=parse("relu(add($0, $1))"))
bias = View(DType.F32, (64, 1, 1), (1, 1, 1))
asked = replace(PLAIN, op=op, inputs=(*PLAIN.inputs, bias), constant=(*PLAIN.constant, True))
tiles = {v.launches[1].config.sums.tile: v.launches[1] for v in STEM.variants(asked)}
tile, launch = next((t, one) for t, one in tiles.items() if (t.lines, t.pixels) == (4, 64))
entry = STEM.entry(launch.config)
cubin = compile_entry(entry, 90, [name for name, _ in (*entry.pointers, *entry.extra_pointers)])
sass = disassembled(cubin)
# Seven taps of four rows of results, thirty-two terms each.
assert "STACK:0" in sass and sass.count("HGMMA") == 7 * 4 * 2
"""


def test_it_compiles():
    """In a process that never saw the interpreter."""
    run_where_it_compiles(COMPILED)
