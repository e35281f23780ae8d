"""What is emitted for a config is the same text in every process, whatever came before."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from test_rounding import CASES, a_call

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.testing.targets import ZEN4


def texts(names):
    """Digests of the code of each kernel's best variant."""
    found = []
    for name in names:
        for kind in (DType.F32, DType.BF16):
            kernel, call, _ = a_call(name, kind, ZEN4)
            for launch in kernel.launch(call):
                builder = KernelBuilder("kernel", ZEN4)
                kernel.emit(builder, launch.config)
                text = str(builder.finish())
                found.append(f"{name} {hashlib.sha256(text.encode()).hexdigest()}")
    return found


def test_another_process_emits_the_same_code():
    """In another order, and with other hashes of strings: of sets and their like."""
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    script += "from test_emission import *\nprint(*texts(list(CASES)[::-1]), sep='\\n')"
    found = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert sorted(found.stdout.splitlines()) == sorted(texts(CASES))
