"""What is run on a real GPU: kernels, their families' cases, element types, variants.

`python -m saccade.testing.gpu_cases build FILE` compiles all of it beforehand, with or without a
GPU, for the tests of kernels (`pytest -m gpu --gpu-code FILE`); without a file they compile what
they run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from saccade.backends.cuda.cubins import CodeKey, code_key
from saccade.backends.cuda.fusions.cases import CASES as FUSED
from saccade.backends.cuda.gpus import Gpu, gpu
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.base import Launch
from saccade.kernels.bind import Phase
from saccade.kernels.cases import CASES
from saccade.kernels.cases.base import Case
from saccade.kernels.cuda import CUDA_KERNELS, kernel_named, packing
from saccade.kernels.cuda.base import CudaCall
from saccade.processes import Processes
from saccade.testing.cases import arrays_of, inputs_of, outputs_of, stored_as
from saccade.testing.gpu_code import CheckTask, GpuCode, compile_task, write_code
from saccade.testing.guarded import GuardedMemory

__all__ = ["VARIANTS", "GpuCase", "codes_of", "gpu_cases", "placed", "target_of"]

VARIANTS = 4
"""Variants of a kernel for a case that are run unless another number is asked for."""
_BATCH = 64  # kernels that are compiled between two lines of progress


@dataclass(frozen=True, slots=True)
class GpuCase:
    """One variant of a kernel for a case.

    Attributes:
        kernel: The kernel's name.
        case: The case.
        variant: Its place among the variants, the one with the least estimate being 0.
    """

    kernel: str
    case: Case
    variant: int

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.kernel}-{self.case.name}-v{self.variant}"


def target_of(known: Gpu) -> GpuTarget:
    """What kernels are planned for on a described GPU."""
    return GpuTarget(known.arch, known.multiprocessors, known.shared, machine=known.name)


def call_of(case: Case, target: GpuTarget) -> CudaCall:
    """A case as a call."""
    known = tuple(operand.constant for operand in case.operands)
    return CudaCall(case.op, inputs_of(case), outputs_of(case), known, target, 1)


def gpu_cases(target: GpuTarget, most: int = VARIANTS) -> list[GpuCase]:
    """Every kernel with every case that it takes: in float32, in float16 and in bfloat16.

    Args:
        target: What is planned for.
        most: How many variants of a kernel for a case: the first, the last, and others evenly
            between them.
    """
    found = []
    for listed in CUDA_KERNELS:
        family = listed.name.split(".")[0]
        for plain in (*CASES.get(family, ()), *FUSED.get(family, ())):
            if type(plain.op).__name__ not in listed.ops:
                continue
            for case in (plain, stored_as(plain, DType.F16), stored_as(plain, DType.BF16)):
                # None: without float32 there is nothing to store in fewer bits.
                count = 0 if case is None else len(_variants(listed.name, case, target))
                found += [GpuCase(listed.name, case, i) for i in _spread(count, most) if case]
    return found


@lru_cache(maxsize=4)  # a case's variants are asked about one after the other
def _variants(kernel: str, case: Case, target: GpuTarget) -> list[tuple[Launch, ...]]:
    """The launches of each variant; none if the kernel does not take the case."""
    found, call = kernel_named(kernel), call_of(case, target)
    if found.supports(call) is not None:
        return []
    return [variant.launches for variant in found.variants(call)]


def _spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, the first and the last among them."""
    if count <= most or most == 1:
        return list(range(min(count, most)))
    return [i * (count - 1) // (most - 1) for i in range(most)]


def placed(one: GpuCase, target: GpuTarget) -> tuple[GuardedMemory, list[Phase]]:
    """The memory of a variant's call, and its phases there."""
    memory = GuardedMemory(call_of(one.case, target), arrays_of(one.case), packing.FUNCTIONS)
    return memory, memory.phases(_variants(one.kernel, one.case, target)[one.variant])


def keys_of(one: GpuCase, target: GpuTarget) -> list[CodeKey]:
    """The code of a variant's phases that there is something to do for."""
    return [code_key(one.kernel, phase) for phase in placed(one, target)[1] if phase.chunks]


def codes_of(
    cases: Iterable[GpuCase], target: GpuTarget, processes: Processes
) -> Mapping[CodeKey, GpuCode]:
    """What all these need, compiled side by side; progress goes to the error output.

    Raises:
        CompileError: If Triton cannot compile a kernel, or is not there.
    """
    keys = list(dict.fromkeys(key for one in cases for key in keys_of(one, target)))
    found: dict[CodeKey, GpuCode] = {}
    for start in range(0, len(keys), _BATCH):
        batch = keys[start : start + _BATCH]
        tasks = [
            CheckTask(kernel_named(key.kernel).entry(key.config), target.arch, key.aligned)
            for key in batch
        ]
        found |= zip(batch, processes.map(compile_task, tasks), strict=True)
        print(f"\r{len(found)} of {len(keys)} kernels compiled", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `build FILE`."""
    parser = argparse.ArgumentParser(prog="python -m saccade.testing.gpu_cases")
    parser.add_argument("command", choices=["build"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--machine", default="h200", help="the GPU, as in saccade build --machine")
    parser.add_argument("--variants", type=int, default=VARIANTS, help="of a kernel for a case")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    given = parser.parse_args(arguments)
    target = target_of(gpu(given.machine))
    cases = [one for one in gpu_cases(target, given.variants) if given.only in one.kernel]
    with closing(Processes()) as processes:
        write_code(given.file, given.machine, codes_of(cases, target, processes))


if __name__ == "__main__":
    main()
