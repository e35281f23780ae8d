"""Code for 64-bit Arm: what its inner loops consist of, and that it runs, under an emulator.

Here most families have one case; `SACCADE_TEST_ARM=1 pytest tests/kernels` runs all there are.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from saccade.backends.cpu.codegen.compile import assembly
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.backends.cpu.target import foreign_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu import all_kernels
from saccade.opdefs import Conv2d, MatMul
from saccade.testing import emulate
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel

F32 = DType.F32
KERNELS = {kernel.name: kernel for kernel in all_kernels()}
ARM = foreign_target("neon")
RNG = np.random.default_rng(3)


@dataclass(frozen=True)
class Layer:
    """A convolution, and which share of its hot loop's instructions must be vector products."""

    kernel: str
    channels: int
    size: int
    filters: int
    taps: int
    share: float
    stride: int = 1
    groups: int = 1

    @property
    def op(self):
        return Conv2d((self.stride,) * 2, (self.taps // 2,) * 4, groups=self.groups)

    def shapes(self, size):
        edge = (size - 1) // self.stride + 1
        x, y = (1, self.channels, size, size), (1, self.filters, edge, edge)
        return x, (self.filters, self.channels // self.groups, self.taps, self.taps), y

    def call(self):
        x, w, y = self.shapes(self.size)
        views = (nhwc_view(F32, x), row_major(F32, w))
        return Call(self.op, views, (nhwc_view(F32, y),), (False, True), ARM, 2)


LAYERS = (
    Layer("conv2d.direct", 64, 56, 64, 1, 0.45),
    Layer("conv2d.direct", 64, 56, 64, 3, 0.40),
    Layer("conv2d.direct", 3, 224, 64, 7, 0.35, stride=2),
    Layer("conv2d.winograd", 64, 56, 64, 3, 0.60),
    Layer("conv2d.depthwise", 64, 56, 64, 3, 0.20, groups=64),
    Layer("conv2d.grouped", 128, 56, 128, 3, 0.60, groups=32),
    Layer("conv2d.few_outputs", 64, 56, 3, 3, 0.40),
)
by_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda one: f"{one.kernel}-{one.taps}")
emulated = pytest.mark.skipif(not emulate.available(), reason="no qemu-user or cross compiler")

VECTOR, SCALAR = r"fml[as]\s+v\d+\.4s", r"(fn?m(add|sub)|fmul|fadd)\s+s\d"


def loops(text):
    """Bodies of the innermost loops: from a label to the branch back to it."""
    lines = [line.strip() for line in text.splitlines()]
    at = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    back = []
    for i, line in enumerate(lines):
        branch = re.match(r"(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,|b)\s+(\.L\w+)", line)
        if branch and at.get(branch[1], i) < i:
            back.append((at[branch[1]], i))
    for start, end in back:
        inner = any(start < first and last < end for first, last in back)
        if not inner:
            body = lines[start + 1 : end + 1]
            yield [one for one in body if one and not one.startswith((".", "//", ";"))]


def count(pattern, lines):
    return sum(bool(re.match(pattern, line)) for line in lines)


def share(body):
    return count(VECTOR, body) / max(1, len(body))


def hot_loop(kernel, launch):
    """The densest loop of some products: Winograd's transforms have more of them, less densely."""
    builder = KernelBuilder("kernel", ARM)
    kernel.emit(builder, launch.config)
    found = [
        body for body in loops(assembly(str(builder.finish()), ARM)) if count(VECTOR, body) > 9
    ]
    return max(found, key=share, default=[])


@by_layer
def test_inner_loops_multiply_vectors(layer):
    kernel = KERNELS[layer.kernel]
    assert kernel.supports(layer.call()) is None
    bodies = [hot_loop(kernel, launch) for launch in kernel.launch(layer.call())]
    body = max(bodies, key=share)
    assert share(body) >= layer.share, "\n".join(body)
    assert count(SCALAR, body) == 0, "a scalar product in the loop"
    assert count(r".*\[sp", body) <= 0.15 * len(body), "sums are spilled"


def test_matrix_products_multiply_vectors():
    views = (row_major(F32, (196, 256)), row_major(F32, (256, 512)))
    call = Call(MatMul(), views, (row_major(F32, (196, 512)),), (False, True), ARM, 2)
    kernel = KERNELS["matmul.direct"]
    body = hot_loop(kernel, kernel.launch(call)[-1])
    assert share(body) >= 0.4, "\n".join(body)
    assert count(SCALAR, body) == 0


def test_two_convolutions_in_one_pass_multiply_vectors():
    op = SeparableConv2d(Conv2d(padding=(1,) * 4, groups=64), Conv2d(), 0)
    shapes = ((64, 1, 3, 3), (64, 64, 1, 1))
    image = nhwc_view(F32, (1, 64, 56, 56))
    views = (image, *(row_major(F32, shape) for shape in shapes))
    call = Call(op, views, (image,), (False, True, True), ARM, 2)
    kernel = KERNELS["conv2d.separable"]
    body = hot_loop(kernel, kernel.launch(call)[0])
    assert share(body) >= 0.4, "\n".join(body)
    assert count(SCALAR, body) == 0
    assert count(r".*\[sp", body) <= 0.15 * len(body), "sums are spilled"


@emulated
@by_layer
@pytest.mark.parametrize("checked", [False, True])
def test_convolutions_run(layer, checked):
    x, w, y = layer.shapes(9)
    arrays = [RNG.integers(-3, 4, shape).astype(np.float32) for shape in (x, w)]
    (result,) = run_kernel(
        KERNELS[layer.kernel], layer.op, arrays, [nhwc_view(F32, y)],
        inputs=(nhwc_view(F32, x), row_major(F32, w)), constant=(False, True), isa="neon",
        checked=checked, threads=3, order=(2, 0, 1),
    )  # fmt: skip
    (truth,) = layer.op.reference(*(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(result, truth, atol=2e-6 * np.abs(truth).max(), rtol=0)


@emulated
def test_a_fault_comes_back():
    """Rows of seventy elements where there are seven."""
    kernel = KERNELS["matmul.direct"]

    def longer(call):
        *packs, last = kernel.launch(call)
        return *packs, replace(last, integers={**last.integers, "inner": 70})

    arrays = [np.ones((5, 7), np.float32), np.ones((7, 9), np.float32)]
    with pytest.raises(OutOfBoundsError, match="of a buffer of"):
        run_kernel(
            launched_as(kernel, longer), MatMul(), arrays, [row_major(F32, (5, 9))],
            constant=(False, True), isa="neon", checked=True,
        )  # fmt: skip
