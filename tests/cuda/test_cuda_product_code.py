"""Machine code of products and attention: matrix units, whole vectors, nothing that spills."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import re
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
from saccade.backends.cuda.runtime.facts import matrix_instructions
from saccade.backends.fusions import Attention
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import MatMul
from saccade.testing.kernels import row_major

def product(dtype, rows, inner, columns):
    shapes = (rows, inner), (inner, columns), (rows, columns)
    a, b, y = (row_major(dtype, shape) for shape in shapes)
    op = MatMul(epilogue=parse("add($0, $1)"))
    return Call(op, (a, b, y), (y,), (False, True, False), GpuTarget())


def heads(dtype):
    q = View(dtype, (8, 12, 197, 64), (197 * 2304, 64, 2304, 1))
    k = View(dtype, (8, 12, 64, 197), (197 * 2304, 64, 1, 2304))
    y = row_major(dtype, (8, 197, 12, 64))
    return Call(Attention(0.125, True, (0, 2, 1, 3)), (q, k, q), (y,), (False,) * 3, GpuTarget())


CALLS = (
    ("matmul.tiled", product(DType.F16, 6304, 768, 2304), "HGMMA"),
    ("matmul.tiled", product(DType.F32, 6304, 768, 2304), "HGMMA"),
    ("matmul.gemv", product(DType.F16, 1, 25088, 4096), "FFMA"),
    ("attention.fused", heads(DType.F16), "HGMMA"),
    ("attention.fused", heads(DType.F32), "HGMMA"),
)
for name, call, unit in CALLS:
    kernel = kernel_named(name)
    launch = kernel.launch(call)[0]
    entry = kernel.entry(launch.config)
    aligned = [pointer for pointer, _ in (*entry.pointers, *entry.extra_pointers)]
    aligned += [n for n in entry.multiples if launch.integers[n] % 16 == 0]
    cubin = compile_entry(entry, 90, aligned)
    code = disassembled(cubin)
    (stack,) = re.findall("STACK:([0-9]+)", code)
    listed = {"wgmma": code.count(" HGMMA."), "mma": code.count(" HMMA.")}
    assert matrix_instructions(cubin.code) == {k: n for k, n in listed.items() if n}, listed
    vectors = code.count("LDGSTS.E.BYPASS.128")
    others = code.count("LDGSTS") - vectors
    whole = name == "matmul.gemv" or "LDG.E.U16" not in code
    print(name, stack, vectors > 0, others, unit in code, whole)
"""


def test_machine_code():
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 5
    for name, stack, vectors, others, unit, whole in lines:
        # The row of a product with one is read by each thread for itself.
        few = int(others) <= 3 if name == "matmul.gemv" else others == "0"
        found = (stack, vectors, unit, whole, few)
        assert found == ("0", "True", "True", "True", True), done.stdout
