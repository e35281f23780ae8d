"""Matrix products in tiles of matrices: by the instructions where there are any, and played."""

from __future__ import annotations

import os

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.matmul.amx import MATMUL_AMX
from saccade.opdefs import MatMul
from saccade.testing.kernels import launched_as, mistaken, row_major, run_kernel
from saccade.testing.targets import ZEN4, tile_targets
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(17)
F32, BF16 = DType.F32, DType.BF16
AMX = described_target("sapphire-rapids-amx")
TARGETS = tile_targets()
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
    if not TARGETS or os.environ.get("SACCADE_TEST_ARM"):
        pytest.skip("no vectors as wide as a row of a tile")

    def holds(op, arrays, *, constant=True, kernel=MATMUL_AMX, inputs=None, **more):
        runs = [(target, *run) for target in TARGETS for run in RUNS]
        known = (False, constant, *(True for _ in arrays[2:]))
        return hold(kernel, op, arrays, inputs=inputs, constant=known, runs=runs, **more)

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


@pytest.mark.parametrize("kind", [BF16, F32])
def test_epilogue_and_random_operands(holds, kind):
    op = MatMul(epilogue=parse("relu(add(add($0, $1), $2))"))
    arrays = operands("rows", (BF16, BF16), random_operands)
    arrays += [random_operands((33,), F32, RNG), random_operands((37, 33), kind, RNG)]
    holds(op, arrays, k=64)


def test_rows_that_are_apart(holds):
    """NaN lies between them."""
    a, b = operands("tail", (BF16, BF16), exact_operands)
    views = [View(BF16, a.shape, (90, 1)), row_major(BF16, b.shape)]
    holds(MatMul(), [a, b], inputs=views, exact=True, stored=F32)


def test_all_variants_have_the_same_bits():
    if not TARGETS:
        pytest.skip("no vectors as wide as a row of a tile")
    arrays = operands("tail", (BF16, BF16), random_operands)
    views = tuple(row_major(BF16, array.shape) for array in arrays)
    call = Call(MatMul(), views, (row_major(BF16, (21, 16)),), (False, True), TARGETS[0], 2)
    found, seen = set(), set()
    for variant in MATMUL_AMX.variants(call):
        if variant.code not in seen:
            seen.add(variant.code)
            (result,) = run_kernel(
                launched_as(MATMUL_AMX, lambda _, chosen=variant: chosen.launches), MatMul(),
                arrays, call.outputs, constant=(False, True), isa=TARGETS[0],
            )  # fmt: skip
            found.add(result.tobytes())
    assert len(seen) >= 5 and len(found) == 1


@pytest.mark.parametrize("name", ["a_m", "pairs", "rows", "inner"])
def test_a_wrong_size_is_caught(holds, name):
    def wrong(call):
        *before, launch = MATMUL_AMX.launch(call)
        return (*before, mistaken(launch, name, -1))

    with pytest.raises((AssertionError, OutOfBoundsError)):
        holds(
            MatMul(), operands("tail", (BF16, BF16), exact_operands), exact=True, stored=F32,
            kernel=launched_as(MATMUL_AMX, wrong),
        )  # fmt: skip


def test_refusals():
    def reason(a=(9, 40), b=(40, 16), kinds=(BF16, BF16), known=True, target=AMX, strides=None):
        views = (View(kinds[0], a, strides or (a[1], 1)), row_major(kinds[1], b))
        call = Call(MatMul(), views, (row_major(BF16, (a[0], b[1])),), (False, known), target)
        return MATMUL_AMX.supports(call)

    assert reason() is None and reason(kinds=(BF16, F32)) is None
    assert reason(target=ZEN4) == "the machine has no tiles of matrices"
    assert reason(kinds=(F32, BF16)) == "elements are float32 and bfloat16"
    assert reason(kinds=(BF16, F32), known=False) == "elements are bfloat16 and float32"
    assert reason(a=(4, 40)) == "4 rows"
    assert reason(strides=(1, 9)) == "summed elements of a are apart"
