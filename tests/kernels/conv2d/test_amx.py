"""Convolutions in tiles of matrices: by the instructions where there are any, and played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target, host_target
from saccade.ir import DType, storage
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.conv2d import WINDOWS, ConvShape
from saccade.kernels.cpu.conv2d.amx import CONV2D_AMX
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(16)
F32, BF16 = DType.F32, DType.BF16
AMX = described_target("sapphire-rapids-amx")
FEW = (("amx", False, 2, (1, 0)), ("amx", True, 7, (6, 2, 4, 0, 1, 5, 3)))


def runs():
    """With tiles played, and by the instructions where this processor has them."""
    for plays in (True, False) if host_target().tiles else (True,):
        here = replace(runnable_target("avx512", AMX.machine), isa="amx", plays_tiles=plays)
        yield from ((here, checked, threads, order) for _, checked, threads, order in FEW)


@pytest.fixture(name="holds")
def holds_fixture(hold):
    if host_target().vector_isa != "avx512":
        pytest.skip("no vectors as wide as a row of a tile")

    def holds(
        op, arrays, y=BF16, *, x=nhwc_view, place=nhwc_view, views=(), kernel=CONV2D_AMX, **more
    ):
        shape = storage.reference(op, arrays)[0].shape
        found = [x(DType.of(arrays[0].dtype), arrays[0].shape)]
        found += [
            row_major(DType.of(a.dtype), a.shape) for a in arrays[1 : len(arrays) - len(views)]
        ]
        known = (False, *(True for _ in found[1:]), *(False for _ in views))
        return hold(
            kernel, op, arrays, inputs=[*found, *views], outputs=[place(y, shape)],
            constant=known, runs=list(runs()), **more,
        )  # fmt: skip

    return holds


def operands(case, kinds, make):
    return [make(shape, kind, RNG) for shape, kind in zip((case.x, case.w), kinds, strict=False)]


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
@pytest.mark.parametrize("w", [F32, BF16])
def test_integers_are_exact(holds, case, w):
    holds(case.op, operands(case, (BF16, w), exact_operands), F32, exact=True)


SHIFTED = (
    ConvShape("same", (2, 64, 9, 11), (48, 64, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("deep", (1, 96, 5, 6), (16, 96, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("stride-2", (2, 32, 13, 75), (33, 32, 3, 3), Conv2d((2, 2), (1, 1, 1, 1))),
    ConvShape("asymmetric", (1, 32, 7, 8), (19, 32, 3, 2), Conv2d((2, 1), (0, 2, 1, 1))),
    ConvShape("dilated", (1, 32, 12, 9), (40, 32, 3, 3), Conv2d((1, 1), (3, 2, 3, 2), (3, 2))),
    ConvShape("beyond", (1, 32, 12, 9), (24, 32, 2, 2), Conv2d((3, 3), (0, 0, 0, 0))),
    ConvShape("grouped", (2, 64, 8, 7), (48, 32, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=2)),
    ConvShape("wide", (1, 32, 5, 40), (80, 32, 1, 5), Conv2d(padding=(0, 2, 0, 2))),
    ConvShape("point", (2, 64, 9, 11), (70, 64, 1, 1), Conv2d()),
    ConvShape("point-2", (1, 64, 9, 11), (70, 64, 1, 1), Conv2d((2, 2))),
)


def only(source):
    """The kernel with windows read in one way, best first."""

    def launches(call):
        ways = [v for v in CONV2D_AMX.variants(call) if v.code[0] == source]
        return ways[0].launches

    return launched_as(CONV2D_AMX, launches)


@pytest.mark.parametrize("case", SHIFTED, ids=lambda case: case.name)
def test_each_source_of_windows(holds, case):
    arrays = operands(case, (BF16, F32), exact_operands)
    sources = ("there",) if case.name == "point" else ("shifted", "gathered")
    for source in sources:
        holds(case.op, arrays, F32, exact=True, kernel=only(source))


PLANES = (
    ConvShape("stem", (2, 3, 21, 30), (40, 3, 7, 7), Conv2d((2, 2), (3, 3, 3, 3))),
    ConvShape("odd", (1, 3, 9, 11), (16, 3, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("gray", (1, 1, 13, 33), (20, 1, 5, 9), Conv2d((1, 3), (0, 4, 2, 1), (2, 1))),
    ConvShape("tall", (1, 4, 40, 5), (33, 4, 4, 4), Conv2d((4, 4))),
)


@pytest.mark.parametrize("kind", [F32, BF16])
@pytest.mark.parametrize("case", PLANES, ids=lambda case: case.name)
def test_windows_from_planes(holds, case, kind):
    arrays = operands(case, (kind, F32), exact_operands)
    holds(case.op, arrays, x=row_major, kernel=only("planes"))
