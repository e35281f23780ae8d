"""Machine code as text, by the disassemblers that Triton and the CUDA toolkit bring."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from saccade.backends.cuda.codegen.compile import Cubin
from saccade.errors import CompileError

__all__ = ["disassembled", "used_by"]


def used_by(cubin: Cubin) -> dict[str, int]:
    """What a program of it takes, by `cuobjdump`'s names: `REG`isters of a thread, `STACK` bytes.

    Hundreds of times as fast as the code.

    Raises:
        CompileError: As `disassembled`.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin.code)
        words = (word.rpartition(":") for word in _used(path).split())
        return {name: int(count) for name, _, count in words}


def disassembled(cubin: Cubin) -> str:
    """SASS, headed by what a program of it takes: warps, shared memory, registers, stack.

    Raises:
        CompileError: If `nvdisasm` or `cuobjdump` is nowhere, or cannot read the code.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin.code)
        used = _used(path)
        code = _output("nvdisasm", "-c", path)
    head = f"// {cubin.symbol}: {cubin.warps} warps, {cubin.shared} bytes of shared memory"
    return f"{head}\n// {used}\n{code}"


def _used(path: Path) -> str:
    # A cubin has one function, whose line is the last; those before are headings.
    return _output("cuobjdump", "-res-usage", path).strip().splitlines()[-1].strip()


def _output(tool: str, flag: str, path: Path) -> str:
    done = subprocess.run(
        [_found(tool), flag, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CompileError(f"{tool} cannot read the code: {done.stderr.strip()}")
    return done.stdout


def _found(tool: str) -> str:
    """Triton's own, else the first on the path."""
    spec = find_spec("triton")
    if spec is not None and spec.origin is not None:
        own = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / tool
        if own.exists():
            return str(own)
    found = shutil.which(tool)
    if found is None:
        raise CompileError(
            f"there is no {tool}, which comes with Triton and with the CUDA toolkit: "
            "pip install 'saccade[cuda-compile]'"
        )
    return found
