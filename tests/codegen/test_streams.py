"""Stores past the caches: which way is taken, and that both write the same."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from saccade.backends.cpu.codegen.compile import assembly, object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.target import host_target

COUNT = 200


def copy(k):
    """Copies; how it did that goes to the last byte."""
    x, y, way = k.pointer("x"), k.pointer("y"), k.pointer("way", "int64")
    whole = COUNT // k.lanes * k.lanes
    with k.streams(y, [x]) as ways:
        for to in ways:
            way.store_int(int(to.streamed))
            with k.range(0, whole, k.lanes) as i:
                to.store(x.vec(i), i)
            rest = k.first(k.int(COUNT - whole))
            to.store(x.vec(whole, rest), whole, rest)


def run(target, x, y, *, checked=False):
    k = KernelBuilder("kernel", target, checked=checked)
    copy(k)
    linked = link([object_code(str(k.finish()), target)], ["kernel"])
    way = np.full(1, -1, np.int64)
    arrays = [x, y, way]
    args = np.array([w for i, a in enumerate(arrays) for w in (i, 0, a.nbytes)], np.int64)
    bases = np.array([a.ctypes.data for a in arrays], np.int64)
    fault = np.zeros(3, np.int64)
    context = np.array([bases.ctypes.data, 0, 1, 0, fault.ctypes.data, 1], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    call(linked.addresses["kernel"])(args.ctypes.data, context.ctypes.data)
    assert not fault.any()
    return bool(way[0])


def at(skipped):
    """An array that begins so many bytes into a line."""
    block = np.zeros(COUNT * 4 + 2 * LINE, np.uint8)
    start = -block.ctypes.data % LINE + skipped
    return block[start : start + COUNT * 4].view(np.float32)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("skipped", [0, 4, 16, 32, 60])
def test_results_that_begin_inside_a_line_take_the_usual_way(skipped, checked):
    x, y = at(8), at(skipped)
    x[:] = np.arange(COUNT)
    target = host_target()
    assert run(target, x, y, checked=checked) == (skipped == 0)
    np.testing.assert_array_equal(x, y)


def test_a_result_over_its_operand_takes_the_usual_way():
    x = at(0)
    x[:] = np.arange(COUNT)
    assert not run(host_target(), x, x)
    np.testing.assert_array_equal(x, np.arange(COUNT))


def test_only_whole_lines_go_past_the_caches():
    def text(target):
        k = KernelBuilder("kernel", target)
        copy(k)
        return assembly(str(k.finish()), target)

    wide = host_target()
    if not wide.fills_lines:
        pytest.skip("a vector of this machine fills no line")
    assert text(wide).count("vmovnt") == 1
    assert "sfence" in text(wide)
    assert "vmovnt" not in text(host_target("avx2"))
