"""Machine code of walks and softmax: whole vectors, and nothing that does not fit registers."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import re
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
from saccade.ir import DType, Factor, IndexMap
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import Concat, Move, Pointwise, Softmax
from saccade.testing.kernels import nhwc_view, row_major
from saccade.backends.cuda.target import GpuTarget

shape = (8, 72, 14, 16)
rows, last = row_major(DType.F16, shape), nhwc_view(DType.F16, shape, 72)
scale = nhwc_view(DType.F16, (8, 72, 1, 1), 72)
wide = nhwc_view(DType.F16, (8, 144, 14, 16), 144)
same = Move(IndexMap(tuple((n,) for n in shape), tuple(map(Factor, shape, range(4))), (1,) * 4))
scaled = Pointwise(parse("mul($0, sigmoid($1))"), DType.F32)
CALLS = (
    ("pointwise.chain", scaled, (last, scale), last),
    ("movement.copy", same, (rows,), last),
    ("movement.concat", Concat(1), (last, last), wide),
    ("softmax.direct", Softmax(1), (last,), last),
    ("softmax.direct", Softmax(1), (rows,), rows),
)
for name, op, views, out in CALLS:
    kernel = kernel_named(name)
    call = Call(op, views, (out,), (False,) * len(views), GpuTarget())
    entry = kernel.entry(kernel.launch(call)[0].config)
    pointers = [pointer for pointer, _ in (*entry.pointers, *entry.extra_pointers)]
    text = disassembled(compile_entry(entry, 90, pointers))
    loads = set(re.findall(r"(?:LDG|STG)[.]E[.A-Z0-9]*", text))
    local = sum(map(int, re.findall(r"(?:STACK|LOCAL):([0-9]+)", text)))
    print(name, local, *sorted(loads))
"""


def test_vectors_and_registers():
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    found = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True, text=True, check=True, timeout=300, env=environment,
    )  # fmt: skip
    lines = [line.split() for line in found.stdout.splitlines()]
    assert len(lines) == 5
    for name, local, *moves in lines:
        assert local == "0", name
        assert moves == ["LDG.E.128", "STG.E.128"], name
