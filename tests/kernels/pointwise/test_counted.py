"""Chains and slices of as many elements as an operand says: any axes and storage, any number."""

from __future__ import annotations

import random

import numpy as np
import pytest

from saccade.backends.fusions import GatheredPointwise
from saccade.ir import DType
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.movement.gather import GATHER
from saccade.kernels.cpu.pointwise.chain import CHAIN
from saccade.testing.kernels import anyhow, row_major, run_kernel
from saccade.testing.targets import ZEN4

NONE = (-1, -1)


def numbers_of(chance, shape, counted):
    """Of each axis some elements, all, more than there are, or none."""
    return [chance.choice([1, n // 2 + 1, n, n + 9, 0]) for n in (shape[axis] for axis in counted)]


def hold(kernel, op, arrays, views, out):
    """What is true is right; by threads, in both instruction sets, in checked mode."""
    numbers = [int(a[0]) for a in arrays[len(arrays) - len(op.counted) :]]
    true = [slice(None)] * len(out.shape)
    for axis, number in zip(op.counted, numbers, strict=True):
        true[axis] = slice(0, max(0, number))
    (truth,) = op.reference(*arrays)
    for options in ({}, {"threads": 2}, {"isa": "avx2"}, {"checked": True}):
        (found,) = run_kernel(kernel, op, arrays, [out], inputs=views, **options)
        np.testing.assert_array_equal(found[tuple(true)], truth[tuple(true)])


@pytest.mark.parametrize("seed", range(8))
def test_chains(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    shape = [chance.choice([1, 3, 8, 20, 41]) for _ in range(chance.randint(1, 4))]
    counted = tuple(chance.sample(range(len(shape)), chance.randint(1, len(shape))))
    dtype = chance.choice([DType.F32, DType.I64])
    arrays = [rng.integers(-50, 50, s).astype(dtype.numpy) for s in (shape, shape[-1:])]
    arrays += [np.array([n]) for n in numbers_of(chance, shape, counted)]
    op = GatheredPointwise(parse("add($0, $1)"), dtype, (NONE, NONE), counted)
    views = [anyhow(chance, DType.of(a.dtype), a.shape) for a in arrays]
    hold(CHAIN, op, arrays, views, anyhow(chance, dtype, shape))


@pytest.mark.parametrize("seed", range(8))
def test_slices(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    shape = [chance.choice([1, 3, 8, 20, 41]) for _ in range(chance.randint(1, 4))]
    axis = chance.randrange(len(shape))
    counted = tuple(chance.sample(range(len(shape)), chance.randint(1, len(shape))))
    data = [6 if a == axis else n for a, n in enumerate(shape)]
    dtype = chance.choice([DType.F32, DType.F16, DType.I64])
    arrays = [rng.integers(-50, 50, data).astype(dtype.numpy), rng.integers(-8, 9, shape[axis])]
    arrays += [np.array([n]) for n in numbers_of(chance, shape, counted)]
    op = GatheredPointwise(IDENTITY, dtype, ((axis, 0),), counted)
    views = [anyhow(chance, DType.of(a.dtype), a.shape) for a in arrays]
    hold(GATHER, op, arrays, views, anyhow(chance, dtype, shape))


def test_of_a_large_result_little_is_done():
    """Chunks behind what is true have nothing to do: memory there stays as it was."""
    shape, number = (4, 600, 512), 7
    x = np.ones(shape, np.float32)
    op = GatheredPointwise(parse("mul($0, 2.0)"), DType.F32, (NONE,), (1,))
    (found,) = run_kernel(CHAIN, op, [x, np.array([number])], [row_major(DType.F32, shape)])
    assert (found[:, :number] == 2).all()
    assert not (found[:, number:] == 2).any()


def test_what_each_of_them_refuses():
    x, at = row_major(DType.F32, (5, 8)), row_major(DType.I64, (5,))
    sliced = GatheredPointwise(IDENTITY, DType.F32, ((0, 0),))
    summed = GatheredPointwise(parse("add($0, 1.0)"), DType.F32, ((0, 0),))
    calls = [Call(op, (x, at), (x,), (False, False), ZEN4) for op in (sliced, summed)]
    assert [CHAIN.supports(call) for call in calls] == ["slices at indices"] * 2
    assert [GATHER.supports(call) for call in calls] == [None, "arithmetic on slices"]


def test_numbers_are_never_overwritten():
    x = row_major(DType.I64, (1,))
    op = GatheredPointwise(parse("add($0, 1.0)"), DType.I64, (NONE,), (0,))
    call = Call(op, (x, x), (x,), (False, False), ZEN4)
    assert CHAIN.aliases(call) == ((0, 0),)
