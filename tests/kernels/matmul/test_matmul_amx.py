"""Matrix products in tiles of matrices: by the instructions where there are any, and played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target, host_target
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.matmul.amx import MATMUL_AMX
from saccade.opdefs import MatMul
from saccade.testing.kernels import launched_as, mistaken, row_major
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(17)
F32, BF16 = DType.F32, DType.BF16
AMX = described_target("sapphire-rapids-amx")
RUNS = ((False, 2, (1, 0)), (True, 7, (6, 2, 4, 0, 1, 5, 3)))
SHAPES = {
    "whole": ((64, 96), (96, 80)),
    "rows": ((37, 64), (64, 33)),
    "tail": ((21, 70), (70, 16)),
    "odd": ((9, 45), (45, 19)),
    "short": ((50, 3), (3, 100)),
    "batched": ((2, 3, 19, 40), (2, 3, 40, 24)),
    "shared": ((4, 17, 64), (64, 48)),
    "spread": ((3, 1, 20, 32), (1, 2, 32, 21)),
}


@pytest.fixture(name="holds")
def holds_fixture(hold):
    if host_target().vector_isa != "avx512":
        pytest.skip("no vectors as wide as a row of a tile")

    def holds(op, arrays, *, constant=True, kernel=MATMUL_AMX, **more):
        runs = []
        for plays in (True, False) if host_target().tiles else (True,):
            here = replace(runnable_target("avx512", AMX.machine), isa="amx", plays_tiles=plays)
            runs += [(here, *run) for run in RUNS]
        known = (False, constant, *(True for _ in arrays[2:]))
        return hold(kernel, op, arrays, constant=known, runs=runs, **more)

    return holds


def operands(name, kinds, make):
    return [make(shape, kind, RNG) for shape, kind in zip(SHAPES[name], kinds, strict=True)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_integers_are_exact(holds, name, transposed, constant):
    a, b = operands(name, (BF16, BF16), exact_operands)
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transposed else b
    holds(MatMul(transpose_b=transposed), [a, b], constant=constant, exact=True, stored=F32)
