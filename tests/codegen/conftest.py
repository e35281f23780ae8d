"""Runs one expression over arrays, as code."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.target import host_target
from saccade.ir.expr import parse


@cache
def _function(text: str, count: int, lanes: int, isa: str, stored: str):
    target = host_target(isa)
    k = KernelBuilder("kernel", target)
    sources = [k.pointer(f"x{i}") for i in range(count)]
    result, size = k.pointer("y"), k.integer("size")
    with k.range(0, size, lanes) as i:
        operands = [s.vec(i, lanes=lanes) for s in sources]
        result.store(emit_expr(k, parse(text), operands, lanes, stored), i)
    return link([object_code(str(k.finish()), target)], ["kernel"])


def _run(text: str, *operands, isa: str = "native", lanes: int | None = None, stored="float32"):
    width = lanes or host_target(isa).lanes
    linked = _function(text, len(operands), width, isa, stored)
    size = len(operands[0])
    padded = -(-size // 64) * 64
    arrays = [np.zeros(padded, np.float32) for _ in range(len(operands) + 1)]
    for array, operand in zip(arrays, operands, strict=False):
        array[:size] = operand
    bases = np.array([a.ctypes.data for a in arrays], np.int64)
    words = [w for i, a in enumerate(arrays) for w in (i, 0, a.nbytes)]
    args = np.array([*words, padded], np.int64)
    context = np.array([bases.ctypes.data, 0, 1, 0, 0], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(linked.addresses["kernel"])
    call(args.ctypes.data, context.ctypes.data)
    return arrays[-1][:size].copy()


@pytest.fixture(scope="session")
def evaluate():
    """`evaluate("exp($0)", x, isa=…, lanes=…)`."""
    return _run
