"""Tiles whose last vector is half as wide: exact wherever they store, and only where they pay."""

from __future__ import annotations

import dataclasses

import pytest

from saccade.backends.cpu.target import described_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.register_tiles import tiles
from saccade.opdefs import Conv2d, DepthToSpaceStore
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands

F32, BF16 = DType.F32, DType.BF16
RUNS = (("avx512", False, 1, None), ("avx512", True, 7, (6, 2, 4, 0, 1, 5, 3)))
EPILOGUE = parse("add(relu(add($0, $1)), $2)")
# (input channels, filters, edge of the window, groups)
LAYERS = [(19, 24, 1, 1), (19, 20, 3, 1), (16, 40, 1, 1), (8, 73, 1, 1), (6, 48, 3, 2)]


@pytest.fixture(name="rng")
def rng_fixture():
    import numpy as np  # noqa: PLC0415

    return np.random.default_rng(8)


def halved(rows=None, change=lambda config: config):
    """The kernel with its best variant of half vectors, of so many rows if given."""

    def launch(call):
        if not any(half for *_, half in tiles(call.target, halves=True)):
            pytest.skip(f"{call.target.isa} has no half vectors")
        found = (variant.launches for variant in CONV2D_DIRECT.variants(call))
        (one,) = next(
            some for some in found if some[0].config.half and rows in (None, some[0].config.rows)
        )
        return (dataclasses.replace(one, config=change(one.config)),)

    return launched_as(CONV2D_DIRECT, launch)


def layer(channels, filters, edge, groups, rng, stored=F32):
    op = Conv2d(padding=(edge // 2,) * 4, groups=groups, epilogue=EPILOGUE)
    shapes = (
        (2, channels, 7, 9), (filters, channels // groups, edge, edge), (1, filters, 1, 1),
        (2, filters, 7, 9),
    )  # fmt: skip
    types = (stored, stored, F32, F32)
    arrays = [exact_operands(s, t, rng) for s, t in zip(shapes, types, strict=True)]
    views = [nhwc_view(stored, shapes[0]), row_major(stored, shapes[1]), row_major(F32, shapes[2])]
    known = (False, True, True, False)
    return op, arrays, [*views, nhwc_view(F32, shapes[3])], known, [nhwc_view(F32, shapes[3])]


@pytest.mark.parametrize("stored", [F32, BF16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("sizes", LAYERS, ids=lambda sizes: "-".join(map(str, sizes)))
def test_integers_are_exact(hold, rng, sizes, stored):
    op, arrays, inputs, constant, outputs = layer(*sizes, rng, stored)
    hold(
        halved(), op, arrays, inputs=inputs, outputs=outputs, constant=constant, exact=True,
        runs=RUNS, stored=F32,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 4, 5, 6, 7, 8, 10])
def test_every_height(hold, rng, rows):
    op, arrays, inputs, constant, outputs = layer(12, 24, 1, 1, rng)
    hold(
        halved(rows), op, arrays, inputs=inputs, outputs=outputs, constant=constant, exact=True,
        runs=RUNS,
    )  # fmt: skip


def test_a_whole_vector_in_place_of_a_half_one_is_seen(rng):
    op, arrays, inputs, constant, outputs = layer(12, 40, 1, 1, rng)
    wrong = halved(change=lambda config: dataclasses.replace(config, half=False))
    with pytest.raises((AssertionError, OutOfBoundsError)):
        (result,) = run_kernel(
            wrong, op, arrays, outputs, inputs=inputs, constant=constant, checked=True
        )
        assert_exact(result, op.reference(*arrays)[0])


def bound(filters, isa="avx512", op=None):
    op = op or Conv2d()
    views = (nhwc_view(F32, (1, 64, 56, 56)), row_major(F32, (filters, 64, 1, 1)))
    block = 2 if op.store else 1
    out = nhwc_view(F32, (1, filters // block**2, 56 * block, 56 * block))
    return Call(op, views, (out,), (False, True), described_target("zen4", isa), threads=2)


@pytest.mark.parametrize(("filters", "half"), [(24, True), (40, True), (32, False), (64, False)])
def test_halves_are_taken_where_whole_vectors_would_be_empty(filters, half):
    (launch,) = CONV2D_DIRECT.launch(bound(filters))
    assert launch.config.half is half


def test_no_halves_where_they_gain_nothing_or_cannot_be_stored():
    stored = Conv2d(store=DepthToSpaceStore(2, "DCR"))
    for call in (bound(24, "avx2"), bound(96, op=stored)):
        assert not any(v.launches[0].config.half for v in CONV2D_DIRECT.variants(call))
    assert not any(half for *_, half in tiles(ZEN4))
