"""Chains over slices that indices name, of as many elements as there are: any storage, all ways."""

from __future__ import annotations

import random

import numpy as np
import pytest

from saccade.backends.fusions import GatheredPointwise
from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.testing.kernels import anyhow, row_major
from saccade.testing.triton import H200, interpret

GATHERED = kernel_named("pointwise.gathered")
SUM = parse("add(mul($0, 2.0), $1)")


def hold(op, arrays, views, out, true=...):
    """Every variant gives what the reference gives, where that is told."""
    call = Call(op, tuple(views), (out,), (False,) * len(views), H200)
    assert GATHERED.supports(call) is None
    (truth,) = op.reference(*arrays)
    variants = list(GATHERED.variants(call))
    for variant in variants:
        found = interpret(GATHERED, call, arrays, variant.launches)[0]
        np.testing.assert_array_equal(found[true], truth[true])
    return variants


def indices(rng, count, size):
    """Some from the end, some beyond both."""
    return rng.integers(-size - 2, size + 2, count)


@pytest.mark.parametrize("seed", range(12))
def test_slices_along_any_axes(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    shape = [chance.choice([1, 2, 3, 8, 5, 16]) for _ in range(chance.randint(1, 4))]
    axis, other = chance.randrange(len(shape)), chance.randrange(len(shape))
    first, second = list(shape), list(shape)
    first[axis], second[other] = chance.choice([1, 4, 7]), chance.choice([1, 4, 7])
    dtype = chance.choice([DType.F32, DType.F16, DType.I64])
    arrays = [rng.integers(-50, 50, s).astype(dtype.numpy) for s in (first, second)]
    arrays.append(indices(rng, shape[axis], first[axis]))
    arrays.append(indices(rng, shape[other], second[other]).astype(np.int32))
    op = GatheredPointwise(parse("sub($1, $0)"), dtype, ((axis, 0), (other, 1)))
    views = [anyhow(chance, DType.of(a.dtype), a.shape) for a in arrays]
    hold(op, arrays, views, anyhow(chance, dtype, shape))


@pytest.mark.parametrize("seed", range(12))
def test_as_many_elements_as_there_are(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    shape = [chance.choice([1, 3, 8, 20, 33]) for _ in range(chance.randint(1, 3))]
    counted = tuple(chance.sample(range(len(shape)), chance.randint(1, len(shape))))
    axis = chance.randrange(len(shape))
    image = list(shape)
    image[axis] = 6
    numbers = [chance.choice([0, 1, shape[a] // 2, shape[a], shape[a] + 9, -2]) for a in counted]
    arrays = [
        rng.integers(-50, 50, image).astype(np.float32),
        rng.integers(-50, 50, shape[-1:]).astype(np.float32),
        indices(rng, shape[axis], 6),
        *(np.array([n]) for n in numbers),
    ]
    op = GatheredPointwise(SUM, DType.F32, ((axis, 0), (-1, -1)), counted)
    views = [anyhow(chance, DType.of(a.dtype), a.shape) for a in arrays]
    true = [slice(None)] * len(shape)
    for a, number in zip(counted, numbers, strict=True):
        true[a] = slice(0, max(0, number))
    hold(op, arrays, views, anyhow(chance, DType.F32, shape), tuple(true))


def test_few_programs_go_through_what_is_true():
    """Of a result that is planned for many more elements."""
    shape = (3, 2100, 512)
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.float16)
    op = GatheredPointwise(parse("mul($0, 3.0)"), DType.F32, ((-1, -1),), (1,))
    views = [row_major(DType.F16, shape), row_major(DType.I64, (1,))]
    out = row_major(DType.F32, shape)
    for number in (0, 5, 30):
        variants = hold(op, [x, np.array([number])], views, out, np.s_[:, :number])
    launches = [launch for variant in variants for launch in variant.launches]
    assert all(launch.chunks <= 8 * H200.multiprocessors for launch in launches)


def test_what_has_no_numbers_is_walked_as_chains_are():
    op = GatheredPointwise(SUM, DType.F32, ((0, 0), (-1, -1)))
    arrays = [np.ones((4, 8), np.float32), np.ones((5, 8), np.float32), np.array([3, 0, 1, 1, 2])]
    views = [row_major(DType.of(a.dtype), a.shape) for a in arrays]
    (variant, *_) = hold(op, arrays, views, row_major(DType.F32, (5, 8)))
    (launch,) = variant.launches
    assert GATHERED.entry(launch.config).core == "movement.walk_code:walk_vectors"


def test_nothing_to_take_from_is_refused():
    op = GatheredPointwise(parse("$0"), DType.F32, ((0, 0),))
    views = row_major(DType.F32, (0, 8)), row_major(DType.I64, (5,))
    call = Call(op, views, (row_major(DType.F32, (5, 8)),), (False,) * 2, H200)
    assert GATHERED.supports(call) == "slices of an empty axis"


def test_what_is_read_elsewhere_is_not_overwritten():
    plain = GatheredPointwise(SUM, DType.F32, ((-1, -1), (-1, -1)), (0,))
    picked = GatheredPointwise(SUM, DType.F32, ((0, 0), (-1, -1)))
    x, where = row_major(DType.F32, (5, 8)), row_major(DType.I64, (5,))
    number = row_major(DType.I64, (1,))
    calls = [
        Call(op, (x, x, last), (x,), (False,) * 3, H200)
        for op, last in ((plain, number), (picked, where))
    ]
    assert [GATHERED.aliases(call) for call in calls] == [((0, 0), (1, 0)), ()]


def test_what_operands_must_be():
    op = GatheredPointwise(SUM, DType.F32, ((0, 0), (-1, -1)), (1,))
    x, number = TensorType(DType.F32, (4, 8)), TensorType(DType.I64, (1,))
    where = TensorType(DType.I64, (5,))
    wide = TensorType(DType.F32, (5, 8))
    assert op.infer([x, wide, where, number]) == (wide,)
    with pytest.raises(ModelError, match="takes 4 operands, got 3"):
        op.infer([x, wide, where])
    with pytest.raises(ModelError, match=r"a number of elements must be int64 \[1\]"):
        op.infer([x, wide, where, TensorType(DType.I32, (1,))])
    with pytest.raises(ModelError, match="indices have one axis"):
        op.infer([x, wide, TensorType(DType.I64, (5, 1)), number])
