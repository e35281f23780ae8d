"""Matrix products in tiles of matrices (Intel's AMX).

`y[.., m, n] = Σ_k a[.., m, k] · b[.., k, n]`

Layouts: a in bfloat16, its summed elements neighbours, read where it lies unless its rows do not
fill tiles; b as panels of pairs, packed ahead where it is constant and by a phase of its own where
it is not; up to two batch axes after merging. Sums are float32, in the order of
`codegen.matrix_tiles`.
Refuses: targets without tiles, other types, few rows, batch axes that do not merge into two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Scratch, Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.direct_launch import beside
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS
from saccade.kernels.cpu.conv2d.tile_products import BLOCKS, DEPTH, PAIRS, deepened
from saccade.kernels.cpu.conv2d.tile_schedules import BlockSchedule, BlockWork
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.matmul.amx_code import emit_tiles
from saccade.kernels.cpu.matmul.direct import b_panels
from saccade.kernels.cpu.matmul.direct_axes import Product, residual_aliases
from saccade.kernels.cpu.matmul.direct_config import MatMulConfig
from saccade.kernels.cpu.matmul.operand_panels import emit_pack
from saccade.opdefs import MatMul

__all__ = ["MATMUL_AMX"]

_FEW = 4  # rows of which b's bytes are what takes time
_COPY = 2.5  # cycles of 64 bytes that are copied (two cores of an Emerald Rapids)


def _supports(call: CpuCall) -> str | None:
    a, b = call.inputs[:2]
    if not call.target.tiles:
        return "the machine has no tiles of matrices"
    rounded = b.dtype is DType.BF16 or (call.constant[1] and b.dtype in FLOATS)
    if a.dtype is not DType.BF16 or not rounded:
        return f"elements are {a.dtype.value} and {b.dtype.value}"
    product = Product.of(call)
    if product is None:
        return "the batch axes do not merge into two"
    if product.rows <= _FEW:
        return f"{product.rows} rows"
    if product.a[3] != 1 and product.inner > 1:
        return "summed elements of a are apart"
    return product.epilogue.refuse()


def _product(call: CpuCall) -> Product:
    product = Product.of(call)
    assert product is not None  # `supports` was asked
    return replace(product, pairs=True, widened=False)


def _pitch(product: Product) -> int:
    """Elements from row to row of a copy: whole tiles, an odd number of lines of cache."""
    return (deepened(2 * product.steps) // DEPTH | 1) * DEPTH


def _copied(product: Product) -> bool:
    return product.inner % DEPTH != 0


def _variants(call: CpuCall) -> Iterator[Variant]:
    product, speed = _product(call), machine(call.target)
    batches = product.batch[0] * product.batch[1]
    cycles = _COPY * -(-product.steps // PAIRS) if _copied(product) else 0.0
    to_line = 2 if call.outputs[0].dtype is DType.BF16 else 1
    work = BlockWork(product.rows, product.columns, product.steps, batches, cycles, 0, to_line)
    a, b = call.inputs[:2]
    traffic, stream = speed.traffic(a.nbytes + call.outputs[0].nbytes, call.threads), 0.0
    if call.constant[1]:
        stream = b.size * DType.BF16.itemsize / speed.bandwidth
    else:
        traffic += speed.step + 2 * b.nbytes / (speed.cache_bandwidth * call.threads)
    found = [s for block in BLOCKS for s in work.schedules(block, call.target, call.threads)]
    for schedule in sorted(found, key=lambda one: one.micros):
        time = traffic + beside(schedule.micros, stream, call.target)
        build = partial(_launches, call, product, work, schedule)
        yield Variant(time, build, code=schedule.block)


def _launches(
    call: CpuCall, product: Product, work: BlockWork, schedule: BlockSchedule
) -> tuple[Launch, ...]:
    spec, block, cut = product.epilogue, schedule.block, schedule.cut
    _, across = work.tiles(block)
    panels, rest = b_panels(call, product, block.vectors), product.steps % PAIRS
    config = MatMulConfig(
        "tiles", block.vectors, block.rows, shape="tail" if rest else "whole",
        odd=product.inner % 2 == 1, a="bfloat16", b="bfloat16", copied=_copied(product),
        epilogue=spec.code(block.vectors),
    )  # fmt: skip
    rows = (cut.tiles if config.copied else 1) * block.height
    operands: dict[str, Operand] = {
        "a": In(0),
        "b": panels.operand,
        # What is written behind a row's end lies behind the last one, too.
        "copy": Scratch(2 * (rows * _pitch(product) + DEPTH)),
        **block.operands(rest),
        **spec.pointers(),
    }
    integers = {
        "a_0": product.a[0],
        "a_1": product.a[1],
        "a_m": product.a[2],
        "b_0": panels.steps[0],
        "b_1": panels.steps[1],
        "inner_batch": product.batch[1],
        "rows": product.rows,
        "inner": product.inner,
        "pairs": product.steps,
        "pitch": _pitch(product),
        "tiles_outer": int(schedule.tiles_outer),
        **cut.integers(work.groups, across),
        **spec.integers(),
    }
    chunks = work.groups * cut.tile_chunks * cut.block_chunks
    return (*panels.phases, Launch(config, operands, integers, chunks))


def _emit(k: KernelBuilder, config: MatMulConfig) -> None:
    if config.phase == "pack":
        emit_pack(k, config)
    else:
        emit_tiles(k, config)


MATMUL_AMX = CpuKernel(
    name="matmul.amx",
    ops=(MatMul,),
    config=MatMulConfig,
    supports=_supports,
    variants=_variants,
    emit=_emit,
    aliases=residual_aliases,
)
