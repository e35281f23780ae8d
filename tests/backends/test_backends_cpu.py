"""The CPU's plans need no compiler: where there is no llvmlite, every kernel imports and plans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = f"""
import sys
sys.modules["llvmlite"] = None  # importing it is an error
sys.path.append({str(Path(__file__).parents[1] / "runtime")!r})
import saccade
from runtime_models import convolutions
from saccade.kernels.cpu import CPU_KERNELS, all_kernels
assert len(all_kernels()) == len(CPU_KERNELS)
source = convolutions().SerializeToString()
plan = saccade.compile(source, machine="zen4", threads=2, cache=False).plan((1, 3, 90, 70))
print(*sorted({{step.kernel for step in plan.steps}}))
try:
    from saccade.backends.cpu.codegen import llvm
    llvm.I32
except ImportError:
    print("no compiler")
"""


def test_planning_needs_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    kernels, compiler = done.stdout.splitlines()
    assert "conv2d." in kernels and compiler == "no compiler"
