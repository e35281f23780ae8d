"""Holds a kernel against its operator's reference: instruction sets, checks, teams."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zlib
from functools import cache

import numpy as np
import pytest

from saccade.ir import DType, TensorType
from saccade.kernels.base import Launch
from saccade.testing import emulate
from saccade.testing import kernels as bench
from saccade.testing.cases import truth, types_of
from saccade.testing.targets import lacking, runnable_target
from saccade.testing.tolerance import assert_close, assert_exact

RUNS = (
    # instruction set, checked, threads, order of the logical threads
    ("avx512", False, 1, None),
    ("avx512", True, 7, (6, 2, 4, 0, 1, 5, 3)),
    ("avx2", False, 3, (2, 0, 1)),
    ("avx2", True, 2, (1, 0)),
)


ARM = (("neon", False, 1, None), ("neon", True, 7, (6, 2, 4, 0, 1, 5, 3)))
"""What is run instead, under an emulator, where the environment says `SACCADE_TEST_ARM`."""

EVERY = int(os.environ.get("SACCADE_TEST_ARM") or 0)
"""1 for all tests of kernels, 16 for one of sixteen, 0 for this machine's code."""


def pytest_collection_modifyitems(config, items):
    if EVERY and not emulate.available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no qemu-user or cross compiler"))
    elif EVERY:
        # By name: a test that is added or gone changes nothing of which others are run.
        chosen = [zlib.crc32(item.nodeid.encode()) % EVERY == 0 for item in items]
        left = [item for item, taken in zip(items, chosen, strict=True) if not taken]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item, taken in zip(items, chosen, strict=True) if taken]


def able(runs):
    """The runs that this machine can do; where it can do none, the test is skipped."""
    reasons = [lacking(isa) if isinstance(isa, str) else None for isa, *_ in runs]
    if runs and all(reasons):
        pytest.skip(reasons[0])
    return [run for run, reason in zip(runs, reasons, strict=True) if reason is None]


def hold(
    kernel, op, arrays, *, inputs=None, outputs=None, k=1, exact=False, constant=None, runs=RUNS,
    stored=None,
):  # fmt: skip
    """Run everywhere, compare with the truth, and bit by bit between teams.

    Float32 results are stored in `stored`, or in bfloat16 where the first operand is.
    """
    stored = stored or (DType.BF16 if DType.of(arrays[0].dtype) is DType.BF16 else DType.F32)
    if EVERY:
        # Unchecked code of planted mistakes may read anything: only tests that ask for it get it.
        checks = {checked for _, checked, *_ in runs}
        runs = [run for run in ARM if run[1] in checks]
    runs = able(runs)
    wanted = truth(op, arrays, exact=exact)
    types = types_of(op, [TensorType(DType.of(a.dtype), a.shape) for a in arrays])
    views = outputs or [
        bench.row_major(stored if t.dtype is DType.F32 else t.dtype, r.shape)
        for t, r in zip(types, wanted, strict=True)
    ]
    first = {}
    for isa, checked, threads, order in runs:
        results = bench.run_kernel(
            kernel, op, arrays, views, inputs=inputs, constant=constant, isa=isa, checked=checked,
            threads=threads, order=order,
        )  # fmt: skip
        for result, true, view in zip(results, wanted, views, strict=True):
            if exact or not view.dtype.is_float:
                with np.errstate(over="ignore"):  # what float16 cannot hold is stored as ±∞
                    stored_truth = np.asarray(true, result.dtype)
                assert_exact(result, stored_truth)
            else:
                assert_close(result, np.asarray(true, np.float64), dtype=view.dtype, k=k)
        if isa in first:
            for a, b in zip(first[isa], results, strict=True):
                assert a.tobytes() == b.tobytes(), "the team changes the bits"
        first.setdefault(isa, results)
    return results


@pytest.fixture(name="hold")
def hold_fixture():
    return hold


def hold_bits(kernel, op, arrays, wanted, runs=RUNS, **views):
    """Run everywhere, and compare the only result with `wanted` bit by bit, NaN included."""
    runs = ARM if EVERY else runs
    outputs = [bench.row_major(DType.of(wanted.dtype), wanted.shape)]
    for isa, checked, threads, order in able(runs):
        (result,) = bench.run_kernel(
            kernel, op, arrays, outputs, isa=isa, checked=checked, threads=threads, order=order,
            **views,
        )  # fmt: skip
        plain = f"u{wanted.dtype.itemsize}"
        np.testing.assert_array_equal(result.view(plain), wanted.view(plain), f"{isa}, {op}")


@pytest.fixture(name="hold_bits")
def hold_bits_fixture():
    return hold_bits


@pytest.fixture
def past_caches():
    """Runs on machines whose caches are taken to hold no result."""
    return [(dataclasses.replace(runnable_target(isa), l3=0), *run) for isa, *run in able(RUNS)]


@pytest.fixture(
    params=[(DType.BF16, DType.BF16), (DType.BF16, DType.F32), (DType.F32, DType.BF16)],
    ids=lambda pair: f"{pair[0].value}-{pair[1].value}",
)
def mixed(request):
    """How operands and results are stored where bfloat16 is among them."""
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _compile_once():
    """Equal configurations share code, as in a plan; so does equal text, as of planted mistakes."""
    original, emitted, codes = bench.compile_launch, bench.object_code, {}

    @cache
    def compiled(kernel, config, target, checked):
        return original(kernel, Launch(config, {}, {}, 0), target, checked)

    def object_code(text, target):
        key = hashlib.sha256(text.encode()).digest(), target
        if key not in codes:
            codes[key] = emitted(text, target)
        return codes[key]

    bench.compile_launch = lambda kernel, launch, *rest: compiled(kernel, launch.config, *rest)
    bench.object_code = object_code
    yield
    bench.compile_launch, bench.object_code = original, emitted
