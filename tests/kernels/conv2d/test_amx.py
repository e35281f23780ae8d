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

    def holds(op, arrays, y=BF16, *, place=nhwc_view, views=(), kernel=CONV2D_AMX, **more):
        shape = storage.reference(op, arrays)[0].shape
        found = [nhwc_view(DType.of(arrays[0].dtype), arrays[0].shape)]
        found += [row_major(DType.of(a.dtype), a.shape) for a in arrays[1 : len(arrays) - len(views)]]
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
