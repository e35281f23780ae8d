"""float32 matrix products in tiles of matrices (Intel's AMX), each element as three bfloat16.

`y[.., m, n] = Σ_k a[.., m, k] · b[.., k, n]`

Layouts: a in float32, its summed elements neighbours; a constant b, float32 or bfloat16, packed as
for `matmul.direct`, sixteen columns side by side; up to two batch axes after merging. Limbs of a
tile of a's rows are copied, and multiplied by all panels of a chunk. Sums are those of
`conv2d.limbs`.
Refuses: `exact`, targets without tiles, other types, a b that is computed, few rows, batch axes
that do not merge into two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.matrix_tiles import DEPTH, ROWS
from saccade.backends.cpu.codegen.values import Int
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Packed, Packing, Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS
from saccade.kernels.cpu.conv2d.limb_products import LimbChunk, LimbProducts
from saccade.kernels.cpu.conv2d.limb_schedules import LimbSchedule, LimbWork
from saccade.kernels.cpu.conv2d.tile_grid import TileGrid
from saccade.kernels.cpu.conv2d.tile_products import BlockSums
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.matmul.direct_axes import Product, residual_aliases
from saccade.opdefs import MatMul

__all__ = ["MATMUL_LIMBS"]

_FEW = 4  # rows of which b's bytes are what takes time


@dataclass(frozen=True, slots=True)
class LimbMatMulConfig:
    """What the code depends on.

    Attributes:
        rows: Tiles along the rows of a block of sums.
        ragged: Whether summed elements do not fill whole steps.
        epilogue: `EpilogueSpec.code`.
    """

    rows: int
    ragged: bool
    epilogue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _LimbGeometry:
    """The integer parameters; `b_*` step over panels."""

    a_0: Int
    a_1: Int
    a_m: Int
    b_0: Int
    b_1: Int
    inner_batch: Int
    m: Int


class _LimbProduct:
    """Emits the product."""

    def __init__(self, k: KernelBuilder, config: LimbMatMulConfig) -> None:
        self.k, self.config = k, config
        self.a, self.b = k.pointer("a"), k.pointer("b")
        self.products = LimbProducts(k, config.rows, ragged=config.ragged)
        self.epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(_LimbGeometry), k.sizes(TileGrid)
        self.products.declare_integers()
        self.epilogue.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, g, height = self.k, self.g, self.products.height
        k.tiles_begin()
        self.products.begin()
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            end = k.minimum_int(end, (g.m + (height - 1)) // height)
            outer = cell.group // g.inner_batch
            batch = outer, cell.group - outer * g.inner_batch
            panels = self.b + (batch[0] * g.b_0 + batch[1] * g.b_1)

            def copy(tile: Int, start: Int, stop: Int) -> None:
                self._copy(batch, tile * height, start * DEPTH, stop * DEPTH)

            def finish(tile: Int, block: Int, sums: BlockSums) -> None:
                count = k.minimum_int(g.m - tile * height, height)
                pixel = self.epilogue.pixel(*batch, tile * height)
                sums.finish(self.epilogue, k.int(0), count, pixel, [self.epilogue.place(block)])

            def fetch(tile: Int, block: Int, rows: tuple[Int, Int]) -> None:
                place = self.epilogue.place(block)
                pixel = self.epilogue.pixel(*batch, tile * height)
                with k.range(*rows) as i:
                    self.epilogue.fetch(self.epilogue.along(pixel, i), place)

            def source(tile: Int) -> Ptr:
                return self._a(batch) + tile * height * g.a_m

            # Matrices lie further apart than there are panels; batches may share one.
            number = batch[0] * g.b_0 + batch[1] * g.b_1 + cell.blocks[0]
            self.products.multiply(
                LimbChunk((first, end), cell.blocks, panels, number, copy, finish, fetch, source)
            )
        k.tiles_end()

    def _a(self, batch: tuple[Int, Int]) -> Ptr:
        return self.a + (batch[0] * self.g.a_0 + batch[1] * self.g.a_1)

    def _copy(self, batch: tuple[Int, Int], first: Int, start: Int, stop: Int) -> None:
        k, g = self.k, self.g
        a = self._a(batch) + start
        count = k.minimum_int(stop, self.products.g.inner) - start
        with k.range(first, k.minimum_int(first + self.products.height, g.m)) as number:
            row = self.products.row(number - first)
            row.copy(a + number * g.a_m, k.int(0), count, ragged=self.config.ragged)


def _supports(call: CpuCall) -> str | None:
    a, b = call.inputs[:2]
    if not call.target.tiles:
        return "the machine has no tiles of matrices"
    if call.exact:
        return "limbs leave out the smallest products"
    if a.dtype is not DType.F32 or b.dtype not in FLOATS:
        return f"elements are {a.dtype.value} and {b.dtype.value}"
    if not call.constant[1]:
        return "b is computed"
    product = Product.of(call)
    if product is None:
        return "the batch axes do not merge into two"
    if product.rows <= _FEW or not product.inner:
        return f"{product.rows} rows of {product.inner}"
    if product.a[3] != 1 and product.inner > 1:
        return "summed elements of a are apart"
    return product.epilogue.refuse()


def _variants(call: CpuCall) -> Iterator[Variant]:
    product, speed = _product(call), machine(call.target)
    batches = product.batch[0] * product.batch[1]
    work = LimbWork(product.rows, product.columns, product.inner, batches, 0.0, 1)
    a, b = call.inputs[:2]
    traffic = speed.traffic(a.nbytes + call.outputs[0].nbytes, call.threads)
    stream = b.size * DType.F32.itemsize / speed.bandwidth
    for schedule in work.schedules(call.target, call.threads):
        time = traffic + stream + schedule.micros
        build = partial(_launches, call, product, work, schedule)
        yield Variant(time, build, code=schedule.rows)


def _product(call: CpuCall) -> Product:
    product = Product.of(call)
    assert product is not None  # `supports` was asked
    return product


def _launches(
    call: CpuCall, product: Product, work: LimbWork, schedule: LimbSchedule
) -> tuple[Launch, ...]:
    spec, cut, size = product.epilogue, schedule.cut, max(1, product.inner * product.columns)
    _, across = work.tiles(schedule.rows)
    # A constant is row-major: strides of whole matrices become strides of as many panels.
    matrix = product.inner * ROWS * across
    parameters, nbytes = (call.op.transpose_b, ROWS), 4 * matrix * (call.inputs[1].size // size)
    operands: dict[str, Operand] = {
        "a": In(0),
        "b": Packed(Packing("pack_matrix", parameters, (1,), nbytes)),
        **schedule.scratch(work),
        **spec.pointers(),
    }
    integers = {
        "a_0": product.a[0],
        "a_1": product.a[1],
        "a_m": product.a[2],
        "b_0": product.b[0] // size * matrix,
        "b_1": product.b[1] // size * matrix,
        "inner_batch": product.batch[1],
        "m": product.rows,
        **cut.integers(work.groups, across),
        **schedule.integers(work, flat=True, dense=product.a[2] == product.inner),
        **spec.integers(),
    }
    config = LimbMatMulConfig(schedule.rows, product.inner % DEPTH != 0, spec.code(1))
    chunks = work.groups * cut.tile_chunks * cut.block_chunks
    return (Launch(config, operands, integers, chunks),)


def _emit(k: KernelBuilder, config: LimbMatMulConfig) -> None:
    _LimbProduct(k, config).emit()


MATMUL_LIMBS = CpuKernel(
    name="matmul.limbs",
    ops=(MatMul,),
    config=LimbMatMulConfig,
    supports=_supports,
    variants=_variants,
    emit=_emit,
    aliases=residual_aliases,
)
