"""Every kernel of every device against the cases of its family.

A second device is one more `Device` in `DEVICES`: the names of its kernels, what they refuse, how
they run, and cases of operators that it alone has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from saccade.backends.cpu.backend import CpuBackend
from saccade.backends.cpu.fusions.cases import CASES as CPU_FUSED
from saccade.backends.cpu.target import described_target
from saccade.backends.cuda.backend import CudaBackend
from saccade.backends.cuda.fusions.cases import CASES as CUDA_FUSED
from saccade.ir import Array, DType
from saccade.kernels import cuda
from saccade.kernels.base import Call
from saccade.kernels.cases import CASES
from saccade.kernels.cases.base import Case
from saccade.kernels.cpu import CPU_KERNELS, kernel_named
from saccade.testing.cases import (
    arrays_of,
    hold,
    inputs_of,
    outputs_of,
    stored_as,
    truth_of,
)
from saccade.testing.kernels import run_kernel
from saccade.testing.targets import ZEN4, lacking, runnable_target, tile_targets
from saccade.testing.tolerance import bound
from saccade.testing.triton import H200, interpret

AMX = described_target("sapphire-rapids-amx")
TILED = (".amx", ".limbs")  # kernels in tiles of matrices


@dataclass(frozen=True)
class Device:
    """What is held against the cases.

    Attributes:
        name: Of the device.
        kernels: For each kernel the names of its operators.
        own: Cases of operators that no other device has, by family.
        refuses: Why a kernel does not take a case of one of its operators, or None.
        run: A kernel's name, a case and its operands give the results, in logical order; what
            leaves its buffers raises.
        lacks: Operators that it does not do yet, each with the reason.
        twin: The same case in other element types, which is one more; or None.
    """

    name: str
    kernels: dict[str, tuple[str, ...]]
    own: Mapping[str, tuple[Case, ...]]
    refuses: Callable[[str, Case], str | None]
    run: Callable[[str, Case, Sequence[Array]], Sequence[Array]]
    lacks: Mapping[str, str] = field(default_factory=dict)
    twin: Callable[[Case], Case | None] = lambda _case: None

    def cases(self, family: str) -> tuple[Case, ...]:
        every = (*CASES.get(family, ()), *self.own.get(family, ()))
        done = [case for case in every if type(case.op).__name__ not in self.lacks]
        return (*done, *filter(None, map(self.twin, done)))

    def takes(self, kernel: str, case: Case) -> bool:
        named = type(case.op).__name__ in self.kernels[kernel]
        return named and self.refuses(kernel, case) is None

    def pairs(self):
        """Each kernel with each case of its family that it takes."""
        return [
            (self, kernel, case)
            for kernel in self.kernels
            for case in self.cases(family_of(kernel))
            if self.takes(kernel, case)
        ]


def family_of(kernel):
    return kernel.split(".")[0]


def named(one):
    return str(getattr(one, "name", one))


def cpu_call(case, target=ZEN4):
    known = tuple(operand.constant for operand in case.operands)
    return Call(case.op, inputs_of(case), outputs_of(case), known, target, 3)


def cpu_target(kernel):
    """The machine that a kernel's cases are planned for."""
    return AMX if kernel.endswith(TILED) else ZEN4


def cpu_refuses(kernel, case):
    return kernel_named(kernel).supports(cpu_call(case, cpu_target(kernel)))


def cpu_run(kernel, case, arrays):
    """Checked code of the kernel's first variant, played by a team of three."""
    isas = ("neon",) if os.environ.get("SACCADE_TEST_ARM") else ("avx512", "avx2")
    isa = next((isa for isa in isas if not lacking(isa)), "native")
    found, target = kernel_named(kernel), runnable_target(isa)
    if kernel.endswith(TILED):
        target = next(iter(tile_targets()), target)
    call = cpu_call(case, target)
    if reason := found.supports(call):
        pytest.skip(f"not on this machine: {reason}")
    return run_kernel(
        found, case.op, arrays, call.outputs, inputs=call.inputs, constant=call.constant,
        isa=target, checked=True, threads=3, order=(2, 0, 1),
    )  # fmt: skip


CPU = Device(
    "cpu",
    {entry.name: entry.ops for entry in CPU_KERNELS if entry.ops},
    CPU_FUSED,
    cpu_refuses,
    cpu_run,
)


def cuda_call(case):
    known = tuple(operand.constant for operand in case.operands)
    return Call(case.op, inputs_of(case), outputs_of(case), known, H200, 1)


def cuda_refuses(kernel, case):
    return cuda.kernel_named(kernel).supports(cuda_call(case))


def cuda_run(kernel, case, arrays):
    """The kernel's first variant in Triton's interpreter, which has no products of bfloat16."""
    found, call = cuda.kernel_named(kernel), cuda_call(case)
    products = case.op.contracts or type(case.op).__name__.startswith("DeformConv")
    if products and DType.BF16 in (call.inputs[0].dtype, call.outputs[0].dtype):
        pytest.skip("the interpreter has no arithmetic of bfloat16")
    return interpret(found, call, arrays)


# In the interpreter each takes ten seconds and more, once is enough.
_SLOW = (
    "larger-than-the-image", "offsets-by-channel", "offsets-by-channel-gradient", "bands",
    "largest-of-many-across", "same-gradient", "same-last-gradient",
)  # fmt: skip


def half(case):
    """The case with float16 for float32; bfloat16 stores float32, which no float16 is."""
    return None if case.name in _SLOW else stored_as(case, DType.F16)


GLUON = {
    "conv2d.few_channels_lanes", "conv2d.few_outputs_lanes", "conv2d.hopper",
    "conv2d.hopper_patches", "conv2d.hopper_point", "conv2d.hopper_rows",
    "conv2d.hopper_stationary", "conv2d.hopper_stem", "conv2d.hopper_strips",
    "conv2d.hopper_subpixel", "conv2d.hopper_sum", "conv2d.hopper_teams", "conv2d.stem_lanes",
    "deform.hopper", "matmul.hopper", "matmul.hopper_stationary", "matmul.hopper_teams",
}  # fmt: skip
"""Kernels that the interpreter cannot run: `tests/cuda/test_cuda_*hopper*.py` and
`test_cuda_lanes.py` hold NumPy models of their code, a GPU runs their cases
(`tests/cuda/test_cuda_gpu_kernels.py`)."""
LATER = {"Resample": "runs on CPUs so far"}
COMPILED = dict.fromkeys(
    ("Conv2dPoint", "Conv2dSubPixel", "Conv2dSum"), "its only kernel is one of those"
)
CUDA_LACKS: dict[str, str] = {}
"""Operators that only CPUs have kernels for, and why; those in `LATER`, too."""
CUDA = Device(
    "cuda",
    {entry.name: entry.ops for entry in cuda.CUDA_KERNELS if entry.name not in GLUON},
    CUDA_FUSED,
    cuda_refuses,
    cuda_run,
    {**LATER, **COMPILED, **CUDA_LACKS},
    half,
)
DEVICES = (CPU, CUDA)
FAMILIES = [
    (device, family)
    for device in DEVICES
    for family in {**CASES, **device.own}
    if device.cases(family)
]
PAIRS = [pair for device in DEVICES for pair in device.pairs()]


@pytest.mark.parametrize(
    ("device", "kernel", "case"), PAIRS, ids=[f"{d.name}-{k}-{c.name}" for d, k, c in PAIRS]
)
def test_a_kernel_gives_what_the_reference_gives(device, kernel, case):
    hold(case, lambda case, arrays: device.run(kernel, case, arrays))


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", CpuBackend), ("cuda", CudaBackend)], ids=named
)
def test_behind_a_slow_variant_is_no_fast_one_with_the_first_ones_bits(device, backend):
    """So that selection may stop there when it looks for code that exists."""
    asked = 0
    for name, case in ((k, case) for d, k, case in PAIRS if d.name == device):
        kernel = cuda.kernel_named(name) if device == "cuda" else kernel_named(name)
        call = cuda_call(case) if device == "cuda" else cpu_call(case, cpu_target(name))
        if kernel.supports(call) is not None:
            continue
        first, *others = kernel.variants(call)
        slow = [one.micros > backend.reuse_slowdown * first.micros for one in others]
        behind = others[slow.index(True) :] if any(slow) else []
        late = [one.micros for one in behind if one.rounding == first.rounding]
        assert all(micros > backend.reuse_slowdown * first.micros for micros in late), case.name
        asked += bool(behind)
    assert asked > 50


@pytest.mark.parametrize(
    ("device", "kernel"), [(d, k) for d in DEVICES for k in d.kernels], ids=named
)
def test_a_kernel_takes_cases_of_each_of_its_operators(device, kernel):
    taken = {type(case.op).__name__ for d, k, case in PAIRS if (d, k) == (device, kernel)}
    assert taken == set(device.kernels[kernel])


@pytest.mark.parametrize("device", DEVICES, ids=named)
def test_what_a_device_lacks_has_cases_a_reason_and_no_kernel(device):
    """So that a family which a device has no kernel for stands here, until it has one."""
    families = (*CASES.values(), *device.own.values())
    every = {type(case.op).__name__ for cases in families for case in cases}
    done = {op for names in device.kernels.values() for op in names}
    assert every - done == set(device.lacks) and all(device.lacks.values())


@pytest.mark.parametrize(("device", "family"), FAMILIES, ids=named)
def test_every_case_is_taken(device, family):
    taken = {case.name for d, kernel, case in PAIRS if d is device and family_of(kernel) == family}
    assert {case.name for case in device.cases(family)} == taken


@pytest.mark.parametrize(("device", "family"), FAMILIES, ids=named)
def test_cases_are_many_and_have_names_of_their_own(device, family):
    cases = device.cases(family)
    assert len({case.name for case in cases}) == len(cases) >= 8
    assert all(len(case.results) <= len(outputs_of(case)) for case in cases)


def test_operands_are_the_same_each_time():
    for cases in CASES.values():
        for array, again in zip(arrays_of(cases[0]), arrays_of(cases[0]), strict=True):
            assert array.tobytes() == again.tobytes()


def rounded_truth(case, arrays):
    truth = zip(truth_of(case, arrays), outputs_of(case), strict=True)
    return [np.array(true).astype(view.dtype.numpy) for true, view in truth]


def off_in_the_last_element(case, arrays):
    """Three times as far off as may be, or by one where nothing may be."""
    results = rounded_truth(case, arrays)
    first = results[0]
    peak = np.abs(first.astype(np.float64)).max()
    first.flat[-1] += 3 * bound(DType.of(first.dtype), case.terms) * peak if case.terms else 1
    return results


@pytest.mark.parametrize(("device", "family"), FAMILIES, ids=named)
def test_one_wrong_element_is_caught(device, family):
    case = next(c for c in device.cases(family) if rounded_truth(c, arrays_of(c))[0].any())
    hold(case, rounded_truth)
    with pytest.raises(AssertionError):
        hold(case, off_in_the_last_element)


def test_the_cases_name_no_device_and_import_none():
    code = "import sys, saccade.kernels.cases\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    names = set(found.stdout.split())
    assert "saccade.kernels.cases.roi" in names and "llvmlite" not in names
    assert not {name for name in names if name.startswith("saccade.kernels.cpu")}
