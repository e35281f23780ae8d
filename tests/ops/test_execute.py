"""Operators run on PyTorch's threads, from any thread, in forked children, at any width."""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from saccade import ops
from saccade.backends.cpu.runtime.openmp import openmp_library
from saccade.backends.cpu.runtime.workspace import Workspaces
from saccade.errors import OperandError
from saccade.ops.rearrange import spread_into

LIMIT = 60


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def images(count):
    return [torch.randn(2, 16, 33 + i, 40) for i in range(count)]


def test_any_number_of_threads(threads):
    for x in images(3):
        assert torch.equal(ops.pixel_shuffle(x, 2), torch.nn.functional.pixel_shuffle(x, 2))


def test_the_pool_is_pytorchs(threads):
    """There may be several runtimes in a process: PyTorch's is the one that hears its setting."""
    library = openmp_library()
    assert library is not None
    assert library.omp_get_max_threads() == threads


def test_many_callers_at_once(threads):
    inputs = images(4) * 2
    wanted = [torch.nn.functional.pixel_shuffle(x, 2) for x in inputs]

    def call(i):
        return all(torch.equal(ops.pixel_shuffle(inputs[i], 2), wanted[i]) for _ in range(40))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8), timeout=LIMIT))


def test_a_forked_child():
    (x,) = images(1)
    same = ops.pixel_shuffle(x, 2).numpy().tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forks with threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(LIMIT)
            # Not by `torch.equal`, which waits for OpenMP's threads: they are the parent's.
            status = 0 if ops.pixel_shuffle(x, 2).numpy().tobytes() == same else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("nbytes", [1 << 10, 8 << 20])
def test_temporary_memory_is_not_shared_with_forks(nbytes):
    """Parent and children work at the same time, as the workers of a `DataLoader` do."""
    spaces = Workspaces()
    block = spaces.take(nbytes)
    spaces.give_back(block)
    ctypes.memset(block.address, 1, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            ctypes.memset(spaces.take(nbytes).address, 2, 64)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert spaces.take(nbytes).address == block.address
    assert ctypes.string_at(block.address, 64) == bytes([1]) * 64


def test_released_memory_comes_back():
    (x,) = images(1)
    wanted = ops.pixel_shuffle(x, 2)
    ops.release_memory()
    assert torch.equal(ops.pixel_shuffle(x, 2), wanted)


def test_results_go_where_they_are_asked_to():
    x = torch.randn(2, 16, 9, 10)
    wanted = torch.nn.functional.pixel_shuffle(x, 2)
    for memory in (torch.empty(2, 4, 18, 20), torch.empty(2, 18, 30, 4).permute(0, 3, 1, 2)):
        out = memory[..., :20]
        for _ in range(2):
            spread_into(x, out, 2, "CRD")
            assert torch.equal(out, wanted)


@pytest.mark.parametrize(
    "out",
    [torch.empty(2, 4, 18, 19), torch.empty(2, 4, 18, 20, dtype=torch.float64)],
    ids=["shape", "dtype"],
)
def test_results_of_other_sizes_are_refused(out):
    with pytest.raises(OperandError, match=r"results are torch\.float32 \[2, 4, 18, 20\]"):
        spread_into(torch.randn(2, 16, 9, 10), out, 2, "CRD")


def test_a_plan_made_in_inference_mode_serves_training():
    x = torch.randn(1, 4, 3, 47)
    with torch.inference_mode():
        first = ops.vector_norm(x, 2, 3)
        assert first.is_inference()
    x.requires_grad_()
    norm = ops.vector_norm(x, 2, 3)
    assert torch.equal(norm, first)
    assert not norm.is_inference()
    norm.sum().backward()
    assert x.grad is not None


def test_nothing_to_do():
    assert ops.pixel_shuffle(torch.zeros(0, 4, 2, 2), 2).shape == (0, 1, 4, 4)
