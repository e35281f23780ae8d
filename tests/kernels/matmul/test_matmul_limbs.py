"""float32 matrix products in tiles of matrices: by the instructions where there are any, played."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.matmul.limbs import MATMUL_LIMBS
from saccade.opdefs import MatMul
from saccade.testing.kernels import launched_as, mistaken, row_major, run_kernel
from saccade.testing.targets import ZEN4, tile_targets
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(62)
F32, BF16 = DType.F32, DType.BF16
AMX = described_target("sapphire-rapids-amx")
TARGETS = tile_targets()
RUNS = ((False, 2, (1, 0)), (True, 7, (6, 2, 4, 0, 1, 5, 3)))
SHAPES = {
    "whole": ((64, 96), (96, 80)),
    "rows": ((37, 64), (64, 33)),
    "tail": ((21, 170), (170, 16)),
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

    def holds(op, arrays, *, kernel=MATMUL_LIMBS, inputs=None, **more):
        runs = [(target, *run) for target in TARGETS for run in RUNS]
        known = (False, *(True for _ in arrays[1:]))
        return hold(kernel, op, arrays, inputs=inputs, constant=known, runs=runs, **more)

    return holds


def operands(name, make, b=F32):
    return [make(shape, kind, RNG) for shape, kind in zip(SHAPES[name], (F32, b), strict=True)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", [F32, BF16])
def test_integers_are_exact(holds, name, transposed, kind):
    a, b = operands(name, exact_operands, kind)
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transposed else b
    holds(MatMul(transpose_b=transposed), [a, b], exact=True, stored=F32)


@pytest.mark.parametrize("kind", [BF16, F32])
def test_epilogue_and_random_operands(holds, kind):
    op = MatMul(epilogue=parse("relu(add(add($0, $1), $2))"))
    arrays = operands("rows", random_operands)
    arrays += [random_operands((33,), F32, RNG), random_operands((37, 33), kind, RNG)]
    holds(op, arrays, k=64)


def test_rows_that_are_apart(holds):
    """NaN lies between them."""
    a, b = operands("tail", exact_operands)
    views = [View(F32, a.shape, (190, 1)), row_major(F32, b.shape)]
    holds(MatMul(), [a, b], inputs=views, exact=True, stored=F32)


def test_all_variants_have_the_same_bits():
    if not TARGETS:
        pytest.skip("no vectors as wide as a row of a tile")
    arrays = operands("tail", random_operands)
    views = tuple(row_major(F32, array.shape) for array in arrays)
    call = Call(MatMul(), views, (row_major(F32, (21, 16)),), (False, True), TARGETS[0], 2)
    # Parts of the reduction are made for what the L2 cache does not hold.
    small = replace(call, target=replace(TARGETS[0], l2=4 << 10))
    found, parts = set(), set()
    for variant in (*MATMUL_LIMBS.variants(call), *MATMUL_LIMBS.variants(small)):
        (launch,) = variant.launches
        parts.add((launch.config.rows, launch.integers["part"]))
        (result,) = run_kernel(
            launched_as(MATMUL_LIMBS, lambda _, chosen=variant: chosen.launches), MatMul(),
            arrays, call.outputs, constant=(False, True), isa=TARGETS[0], checked=True,
        )  # fmt: skip
        found.add(result.tobytes())
    assert len(parts) >= 4 and len(found) == 1


@pytest.mark.parametrize("name", ["a_m", "inner", "steps", "m"])
def test_a_wrong_size_is_caught(holds, name):
    def wrong(call):
        (launch,) = MATMUL_LIMBS.launch(call)
        return (mistaken(launch, name, -1),)

    with pytest.raises((AssertionError, OutOfBoundsError)):
        holds(
            MatMul(), operands("tail", exact_operands), exact=True, stored=F32,
            kernel=launched_as(MATMUL_LIMBS, wrong),
        )  # fmt: skip


def test_refusals():
    def reason(a=(9, 40), kinds=(F32, F32), known=True, target=AMX, strides=None, exact=False):
        views = (View(kinds[0], a, strides or (a[1], 1)), row_major(kinds[1], (a[1], 16)))
        found = (row_major(F32, (a[0], 16)),)
        return MATMUL_LIMBS.supports(
            Call(MatMul(), views, found, (False, known), target, exact=exact)
        )

    assert reason() is None and reason(kinds=(F32, BF16)) is None
    assert reason(target=ZEN4) == "the machine has no tiles of matrices"
    assert reason(exact=True) == "limbs leave out the smallest products"
    assert reason(kinds=(BF16, F32)) == "elements are bfloat16 and float32"
    assert reason(known=False) == "b is computed"
    assert reason(a=(4, 40)) == "4 rows of 40" and reason(a=(9, 0)) == "9 rows of 0"
    assert reason(strides=(1, 9)) == "summed elements of a are apart"
