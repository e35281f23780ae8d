"""What inner loops consist of where a core's instructions and its caches bound them (Intel)."""

import re
from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.codegen.compile import assembly
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.target import described_target
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu import all_kernels
from saccade.kernels.cpu.conv2d.microkernel import asks_early
from saccade.opdefs import Conv2d, MatMul
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import lacking, runnable_target
from saccade.testing.tolerance import random_operands

F32 = DType.F32
KERNELS = {kernel.name: kernel for kernel in all_kernels()}
XEON, ZEN4 = described_target("sapphire-rapids"), described_target("zen4")
BY_TWO_REGISTERS = r"vfn?m\w+\s.*\(%\w+,%\w+"
needs_avx512 = pytest.mark.skipif(bool(lacking("avx512")), reason="needs AVX-512")


def convolution(channels, size, filters, taps, *, target=XEON, stride=1, groups=1, planes=False):
    op = Conv2d((stride,) * 2, (taps // 2,) * 4, groups=groups)
    edge = (size - 1) // stride + 1
    x, w = (1, channels, size, size), (filters, channels // groups, taps, taps)
    views = ((row_major if planes else nhwc_view)(F32, x), row_major(F32, w))
    y = nhwc_view(F32, (1, filters, edge, edge))
    return Call(op, views, (y,), (False, True), target, 2)


def product(rows, inner, columns, target=XEON):
    views = (row_major(F32, (rows, inner)), row_major(F32, (inner, columns)))
    return Call(MatMul(), views, (row_major(F32, (rows, columns)),), (False, True), target, 2)


def texts(kernel, call):
    """The code of each phase of the kernel's best variant."""
    for launch in KERNELS[kernel].launch(call):
        builder = KernelBuilder("kernel", call.target)
        KERNELS[kernel].emit(builder, launch.config)
        yield launch.config, assembly(str(builder.finish()), call.target)


def loops(text):
    """Bodies of the innermost loops of some products, from a label to the jump back to it."""
    lines = [line.strip() for line in text.splitlines()]
    at = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    jumps = [(i, re.match(r"j\w+\s+(\.L\w+)", line)) for i, line in enumerate(lines)]
    back = [(at[to[1]], i) for i, to in jumps if to and at.get(to[1], i) < i]
    for start, end in back:
        body = lines[start : end + 1]
        inner = any(start < first and last < end for first, last in back)
        if not inner and sum(line.startswith("vfmadd") for line in body) > 5:
            yield body


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        ("conv2d.direct", convolution(64, 56, 256, 1)),
        ("conv2d.direct", convolution(2048, 7, 512, 1)),
        ("conv2d.direct", convolution(16, 56, 16, 1)),
        ("conv2d.direct", convolution(128, 28, 128, 3, stride=2)),
        ("conv2d.winograd", convolution(512, 7, 512, 3)),
        ("conv2d.few_inputs", convolution(3, 64, 16, 3, stride=2, planes=True)),
        ("conv2d.depthwise", convolution(64, 56, 64, 3, stride=2, groups=64)),
        ("matmul.direct", product(197, 768, 768)),
        ("matmul.direct", product(1, 960, 1280)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_operands_in_memory_are_found_by_one_register(kernel, call):
    seen = 0
    for _, text in texts(kernel, call):
        for body in loops(text):
            seen += 1
            twice = [line for line in body if re.match(BY_TWO_REGISTERS, line)]
            assert not twice, "\n".join(body)
    assert seen


def test_the_search_finds_addresses_of_two_registers():
    assert re.match(BY_TWO_REGISTERS, "vfmadd231ps 64(%rdx,%r12,4){1to16}, %zmm16, %zmm15")
    assert re.match(BY_TWO_REGISTERS, "vfmadd231ps (%r15,%rdx), %zmm12, %zmm9")
    assert not re.match(BY_TWO_REGISTERS, "vfmadd231ps 192(%r8), %zmm31, %zmm25")
    assert not re.match(BY_TWO_REGISTERS, "vbroadcastss (%r15,%rsi,4), %zmm31")


def test_large_panels_are_asked_for_early_where_streams_come_late():
    assert [asks_early(XEON, n << 10) for n in (48, 95, 96, 512)] == [False, False, True, True]
    assert not asks_early(ZEN4, 512 << 10)
    for kernel, large, small in (
        ("conv2d.direct", (convolution, 2048, 7, 512, 1), (convolution, 64, 56, 256, 1)),
        ("matmul.direct", (product, 197, 768, 768), (product, 197, 64, 768)),
    ):
        early = {
            (case is large, target is XEON): any(
                "prefetcht0" in line
                for _, text in texts(kernel, case[0](*case[1:], target=target))
                for body in loops(text)
                for line in body
            )
            for case in (large, small)
            for target in (XEON, ZEN4)
        }
        assert early == {
            (True, True): True, (True, False): False, (False, True): False, (False, False): False,
        }  # fmt: skip


def test_blocks_of_winograd_ask_into_the_first_cache():
    (config, text), *_ = texts("conv2d.winograd", convolution(64, 56, 64, 3))
    assert config.stage == "fused" and config.ahead == 16 * config.nv
    assert "prefetcht0" in text
    (config, text), *_ = texts("conv2d.winograd", convolution(64, 56, 64, 3, target=ZEN4))
    assert config.stage == "fused" and config.ahead == 0 and "prefetcht0" not in text


@needs_avx512
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(
    ("channels", "size", "filters", "taps"), [(437, 5, 67, 1), (301, 6, 70, 3), (130, 9, 33, 3)]
)
def test_code_that_asks_early_gives_the_same_bits(channels, size, filters, taps, checked):
    rng = np.random.default_rng(1)
    x, w = ((1, channels, size, size), (filters, channels, taps, taps))
    arrays = [random_operands(x, F32, rng), random_operands(w, F32, rng)]
    op, views = Conv2d((1, 1), (taps // 2,) * 4), [nhwc_view(F32, x), row_major(F32, w)]
    out = nhwc_view(F32, (1, filters, size, size))
    target = runnable_target("avx512", "sapphire-rapids")
    found = {}
    for kernel in ("conv2d.direct", "conv2d.winograd"):
        if taps == 1 and kernel == "conv2d.winograd":
            continue
        for early in (False, True):

            def asking(call, kernel=kernel, early=early):
                launches = KERNELS[kernel].launch(call)
                change = {"early": early} if kernel == "conv2d.direct" else {"ahead": 64 * early}
                return tuple(replace(one, config=replace(one.config, **change)) for one in launches)

            (found[kernel, early],) = run_kernel(
                launched_as(KERNELS[kernel], asking), op, arrays, [out], inputs=views,
                constant=(False, True), isa=target, threads=2, checked=checked,
            )  # fmt: skip
        np.testing.assert_array_equal(found[kernel, False], found[kernel, True])
        truth = op.reference(*(a.astype(np.float64) for a in arrays))[0]
        error = np.linalg.norm(found[kernel, True] - truth) / np.linalg.norm(truth)
        assert error < 1e-5
