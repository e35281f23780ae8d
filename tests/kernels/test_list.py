"""The list of kernels says what the kernels say, and nothing is imported before it is asked for."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import saccade.kernels.cpu
from saccade import opdefs
from saccade.backends.cpu.fusions import OPERATORS
from saccade.kernels.cpu import CPU_KERNELS, all_kernels, kernel_named, kernels_for
from saccade.kernels.cpu.base import CpuKernel


@pytest.mark.parametrize("entry", CPU_KERNELS, ids=lambda entry: entry.name)
def test_every_entry_loads_and_says_what_the_kernel_says(entry):
    kernel = kernel_named(entry.name)
    assert kernel.name == entry.name
    assert tuple(op.__name__ for op in kernel.ops) == entry.ops
    assert all(op in OPERATORS or getattr(opdefs, op) for op in entry.ops)


def test_every_kernel_there_is_is_listed():
    modules = Path(saccade.kernels.cpu.__file__).parent.rglob("*.py")
    made = sum(path.read_text().count(" = CpuKernel(") for path in modules)
    assert made == len(CPU_KERNELS) == len({entry.name for entry in CPU_KERNELS})
    assert all(isinstance(kernel, CpuKernel) for kernel in all_kernels())


def test_an_operator_has_its_kernels_in_the_order_of_the_list():
    names = [kernel.name for kernel in kernels_for("Conv2d")]
    assert names[:3] == ["conv2d.direct", "conv2d.winograd", "conv2d.lattice"]
    assert names == [entry.name for entry in CPU_KERNELS if "Conv2d" in entry.ops]
    assert kernels_for("NoSuchOperator") == ()


def loaded_by(code):
    command = f"import sys\n{code}\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=120
    )
    names = {name for name in found.stdout.split() if name.startswith("saccade.kernels.cpu.")}
    return {name.split(".")[3] for name in names}


def test_kernels_that_nobody_asked_for_are_not_imported():
    assert loaded_by("import saccade.backends.cpu.runtime.compiler, saccade.ops.patch") <= {
        "base", "floats", "packing",
    }  # fmt: skip
    usual = loaded_by("from saccade.kernels.cpu import bring_usual\nbring_usual()")
    assert "conv2d" in usual and not usual & {"roi", "deform", "nms", "norm", "resize"}


CODE = """
from concurrent.futures import ThreadPoolExecutor
from saccade.kernels.cpu import CPU_KERNELS, kernel_named, kernels_for
names = [entry.name for entry in CPU_KERNELS]
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(kernel_named, names * 8))
assert len({id(kernel) for kernel in found}) == len(names)
assert kernels_for("Conv2d")[0] is found[0]
"""


def test_threads_that_ask_at_once_get_the_same_kernels():
    assert {"roi", "deform", "conv2d"} <= loaded_by(CODE)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(map(id, pool.map(kernels_for, ["MatMul"] * 16)))) == 1
