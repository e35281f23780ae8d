"""Registers: what selection takes first keeps its numbers in them, on Hopper."""

from __future__ import annotations

import json
import os
import subprocess
import sys

# The first variant of every kernel for two cases, mostly of different types: what moves to and from
# the stack.
CODE = """
import json, re
from contextlib import closing
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled, used_by
from saccade.backends.cuda.gpus import gpu
from saccade.kernels.cuda import CUDA_KERNELS, kernel_named
from saccade.processes import Processes
from saccade.testing.gpu_cases import gpu_cases, keys_of, target_of

MOVES = re.compile(r"\\b(?:STL|LDL)\\b")

def used(task):
    entry, aligned = task
    cubin = compile_entry(entry, 90, aligned)
    takes = used_by(cubin)
    # What moves is in the code, which takes a hundred times as long; without a stack nothing does.
    moves = len(MOVES.findall(disassembled(cubin))) if takes["STACK"] else 0
    return takes["REG"], takes["STACK"], moves

def main():
    target = target_of(gpu("h200"))
    cases = gpu_cases(target, 1)
    tasks = []
    for listed in CUDA_KERNELS:
        mine = [one for one in cases if one.kernel == listed.name]
        for one in mine[:: max(1, len(mine) // 2)][:2]:
            tasks += [(listed.name, one.case.name, key) for key in keys_of(one, target)]
    asked = [(kernel_named(name).entry(key.config), key.aligned) for name, _, key in tasks]
    with closing(Processes()) as processes:
        found = processes.map(used, asked)
    print(json.dumps([[n, c, *r] for (n, c, _), r in zip(tasks, found, strict=True)]))
"""
ALL = 255  # registers that a thread may have
FEW = 32  # bytes that ptxas may put aside, below that, for more programs beside each other


def test_first_variants_do_not_spill(tmp_path):
    (tmp_path / "spilled.py").write_text(CODE)
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", "import spilled; spilled.main()"],
        capture_output=True, text=True, timeout=600, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len({kernel for kernel, *_ in found}) >= 37
    spilled = [
        one for one in found if one[4] and (one[2] == ALL or one[3] > FEW)
    ]  # a stack that nothing moves to or from is the compiler's alone
    assert spilled == []
