"""Accesses of the first elements of a vector: exact on every target, and not one by one."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest

from saccade.backends.cpu.codegen.compile import assembly, object_code
from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.target import foreign_target, host_target
from saccade.testing import emulate

AVX2, NEON = host_target("avx2"), foreign_target("neon")
BITS = {"float64": "int64", "float32": "int32", "bfloat16": "int16", "int8": "int8"}
"""Elements, and integers of their size: what is copied has to be the same to the bit."""

emulated = pytest.mark.skipif(not emulate.available(), reason="no qemu-user or cross compiler")


def copies(target, element):
    """Copies the first n elements of line n, for n from -1 to one more than there are lanes."""
    k = KernelBuilder("kernel", target)
    x, y = k.pointer("x", element), k.pointer("y", element)
    with k.range(0, target.lanes + 3) as line:
        mask = k.first(line - 1)
        at = line * (target.lanes + 2)
        y.store(x.vec(at, mask), at, mask)
    return k


def numbers(count, kind):
    """None of them a denormal bfloat16, which may round to zero."""
    return (np.arange(count) + (1 if kind.itemsize == 1 else 0x100)).astype(kind)


def lines(target, element):
    """Some numbers, and what the copy leaves of them beside 77."""
    lanes, kind = target.lanes, np.dtype(BITS[element])
    x = numbers((lanes + 3) * (lanes + 2), kind).reshape(lanes + 3, lanes + 2)
    counts = np.clip(np.arange(-1, lanes + 2), 0, lanes)[:, None]
    return x, np.where(np.arange(lanes + 2) < counts, x, kind.type(77))


@pytest.mark.parametrize("element", BITS)
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_any_count(isa, element):
    target = host_target(isa)
    x, wanted = lines(target, element)
    y = np.full_like(x, 77)
    call(copies(target, element), target, [x, y])
    np.testing.assert_array_equal(y, wanted)


@emulated
@pytest.mark.parametrize("element", BITS)
def test_any_count_on_arm(element):
    x, wanted = lines(NEON, element)
    y = np.full_like(x, 77)
    memory = np.concatenate([x.reshape(-1), y.reshape(-1)]).view(np.uint8)
    args = np.array([0, 0, x.nbytes, 0, x.nbytes, y.nbytes], np.int64)
    code = object_code(str(copies(NEON, element).finish()), NEON)
    emulate.play(emulate.EmulatedRun([code], [args], memory, [0]))
    np.testing.assert_array_equal(memory[x.nbytes :].view(x.dtype).reshape(x.shape), wanted)


@pytest.mark.parametrize("element", BITS)
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_nothing_is_touched_before_or_behind(isa, element):
    """Buffers of n elements between pages that nobody may touch."""
    target = host_target(isa)

    def first(k):
        x, y, n = k.pointer("x", element), k.pointer("y", element), k.integer("n")
        y.store(x.vec(0, k.first(n)), 0, k.first(n))

    k = KernelBuilder("kernel", target)
    first(k)
    code = link([object_code(str(k.finish()), target)], ["kernel"])
    page, kind = mmap.PAGESIZE, np.dtype(BITS[element])
    block = mmap.mmap(-1, 7 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for at in (0, 2, 4, 6):
        assert protect(ctypes.c_void_p(start + at * page), page, 0) == 0
    for count in range(target.lanes + 1):
        size = count * kind.itemsize
        for offset in (0, page - size):
            x, y = (np.frombuffer(block, kind, count, place * page + offset) for place in (1, 5))
            x[:], y[:] = numbers(count, kind), 0
            call(k, target, [x, y], [count], linked=code)
            np.testing.assert_array_equal(x, y)


def call(k, target, arrays, integers=(), linked=None):
    linked = linked or link([object_code(str(k.finish()), target)], ["kernel"])
    words = [w for i, a in enumerate(arrays) for w in (i, 0, a.nbytes)]
    bases = np.array([a.ctypes.data for a in arrays], np.int64)
    args, fault = np.array([*words, *integers], np.int64), np.zeros(3, np.int64)
    context = np.array([bases.ctypes.data, 0, 1, 0, fault.ctypes.data, 1], np.int64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(linked.addresses["kernel"])
    function(args.ctypes.data, context.ctypes.data)


def text(target, element):
    """A loop over pixels of which a vector is partial."""
    k = KernelBuilder("kernel", target)
    x, y, n, pixels = (k.pointer("x", element), k.pointer("y", element), *k.integers("n pixels"))
    mask = k.first(n)
    with k.range(0, pixels) as i:
        y.store(x.vec(i * n, mask) + 1.0, i * n, mask)
    return assembly(str(k.finish()), target)


def test_avx2_takes_bfloat16_in_pairs():
    code = text(AVX2, "bfloat16")
    assert code.count("vpmaskmovd") == 2, "a load and a store"
    assert not re.search(r"vp(insr|extr)[bw]", code), "elements go one by one"


def test_avx2_stores_whole_vectors_without_a_mask():
    code = text(AVX2, "float32")
    assert code.count("vmaskmovps") == 2, "a load and a store"
    assert re.search(r"vmovups\s+%ymm\d+, \(", code)


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_arm_takes_them_in_pairs(element):
    code = text(NEON, element)
    assert not re.search(r"(ld1|st1)\s+\{[^}]*\}\[", code), "elements go one by one"
    # For the function, the loop, whole vectors, pairs of the others and what is left of them.
    branches = re.findall(r"^\s+(?:b\.\w+|cbn?z|tbn?z)\s", code, re.MULTILINE)
    assert len(branches) <= 7


def test_elements_have_known_sizes():
    assert {BYTES[e] for e in BITS} == {1, 2, 4, 8}
