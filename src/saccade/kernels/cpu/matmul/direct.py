"""Matrix products on the micro-kernel of convolutions.

`y[.., m, n] = Σ_k a[.., m, k] · b[.., k, n]`

Layouts: a, b and y with any strides; up to two batch axes after merging. Constant b is packed ahead
into panels of whole vectors; computed b is read in place when its columns are neighbours, and
packed by a phase of its own when not. One row (a vector times a matrix) streams b once, with as
many sums as hide the latency. Elements are float32 or bfloat16 in any mix; where the target can,
two bfloat16 matrices are summed in pairs: a computed b is packed into them unless rows are few.
Refuses: other types, batch axes that do not merge into two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product as every_pair

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Packed, Packing, Scratch, Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.direct_config import Cuts, TileSchedule, blockings, schedules
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS
from saccade.kernels.cpu.conv2d.microkernel import (
    Reduction,
    accumulate,
    anchored,
    asks_early,
    copy_wide,
    share_after,
    zero_sums,
)
from saccade.kernels.cpu.conv2d.register_tiles import Piece, RegisterTile, ranked_tiles
from saccade.kernels.cpu.conv2d.tile_grid import TileGrid
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.matmul.computed_panels import PanelPacking, ProductPanels, computed_panels
from saccade.kernels.cpu.matmul.direct_axes import Product, residual_aliases
from saccade.kernels.cpu.matmul.direct_config import MatMulConfig
from saccade.kernels.cpu.matmul.operand_panels import emit_pack
from saccade.opdefs import MatMul

__all__ = ["MATMUL_DIRECT", "b_panels"]

_FEW_TILES = 16  # of rows, beside which the first one's wait for its weights counts


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The integer parameters of the product; for packed b, `b_*` step over panels."""

    a_0: Int
    a_1: Int
    a_m: Int
    a_k: Int
    b_0: Int
    b_1: Int
    b_k: Int
    inner_batch: Int
    rows: Int
    inner: Int
    columns: Int
    ahead: Int


class _Product:
    """Emits the product."""

    def __init__(self, k: KernelBuilder, config: MatMulConfig) -> None:
        self.k, self.config = k, config
        self.a, self.b = k.pointer("a", config.a), k.pointer("b", config.b)
        self.copy = k.scratch("copy", "float32") if config.copied else None
        self.epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(_Geometry), k.sizes(TileGrid)
        self.epilogue.declare_integers()
        self.width = config.vectors * k.lanes * (2 if config.pairs else 1)  # b of one step

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            count = (g.rows + (self.config.rows - 1)) // self.config.rows
            b0 = cell.group // g.inner_batch
            where = (b0, cell.group - b0 * g.inner_batch)
            if self.copy is not None:
                stop = k.minimum_int(end * self.config.rows, g.rows)
                self._widen(self.copy, where, first * self.config.rows, stop)
            with (
                k.range(*cell.blocks) as column,
                k.range(first, k.minimum_int(end, count)) as tile,
            ):
                self._tile(where, column, tile * self.config.rows, first * self.config.rows)

    def _widen(self, copy: Ptr, batch: tuple[Int, Int], first: Int, stop: Int) -> None:
        """Rows `first … stop - 1` of a, whose elements are neighbours, in this thread's scratch."""
        k, g = self.k, self.g
        with k.range(first, stop) as number:
            copy_wide(k, self._row(batch, number), copy + (number - first) * g.inner, g.inner)

    def _row(self, batch: tuple[Int, Int], number: Int) -> Ptr:
        g = self.g
        return self.a + (batch[0] * g.a_0 + batch[1] * g.a_1) + number * g.a_m

    def _tile(self, batch: tuple[Int, Int], block: Int, first: Int, chunk_first: Int) -> None:
        k, g, config = self.k, self.g, self.config
        sums = zero_sums(k, config.rows, config.vectors)
        places = [self.epilogue.place(block * config.vectors + j) for j in range(config.vectors)]
        # Rows past the last repeat it; nobody stores them.
        numbers = [k.minimum_int(first + i, g.rows - 1) for i in range(config.rows)]
        with k.when(g.ahead.differs(0)):
            for number, place in every_pair(numbers, places):
                self.epilogue.fetch(self.epilogue.pixel(*batch, number), place)
        if self.copy is None:
            rows = [anchored(k, self._row(batch, number)) for number in numbers]
        else:
            rows = [anchored(k, self.copy + (n - chunk_first) * g.inner) for n in numbers]
        b, pitch = self._panel(batch, block)
        step: IntLike = 1 if config.unit else g.a_k
        reduction = Reduction(config.unroll, config.shape, config.pairs, config.odd)
        accumulate(
            k, sums, rows, b, step=step, pitch=pitch, count=g.inner, reduction=reduction,
            masks=self._masks(block),
            after=self._after(b, reduction, (first - chunk_first) // config.rows),
            early=config.early,
        )  # fmt: skip
        for i, tile in enumerate(sums):
            with k.when(first + i < g.rows):
                pixel = self.epilogue.pixel(*batch, first + i)
                for total, place in zip(tile, places, strict=True):
                    self.epilogue.finish(total.get(), pixel, place)

    def _panel(self, batch: tuple[Int, Int], block: Int) -> tuple[Ptr, IntLike]:
        g = self.g
        b = self.b + (batch[0] * g.b_0 + batch[1] * g.b_1)
        if self.config.packed:
            steps = (g.inner + 1) // 2 if self.config.pairs else g.inner
            return anchored(self.k, b + block * steps * self.width), self.width
        return anchored(self.k, b + block * self.width), g.b_k

    def _after(self, panel: Ptr, reduction: Reduction, tile: Int) -> Ptr | None:
        """What a tile asks for of the panel behind its own, if any."""
        if not self.config.packed or self.config.pairs or not reduction.unroll:
            return None
        k, g = self.k, self.g
        behind = panel + g.inner * self.width
        share = share_after(k, behind, g.inner, self.width, reduction, tile)
        return k.pick(g.ahead.differs(0), share, panel)

    def _masks(self, block: Int) -> list[Mask | None] | None:
        # Panels end in zeros; what lies behind the last column of a b in place must not be read.
        if self.config.packed or ":tail:" not in self.config.epilogue[1]:
            return None
        k, left = self.k, self.g.columns - block * self.width
        return [k.first(left - j * k.lanes) for j in range(self.config.vectors)]


def _supports(call: CpuCall) -> str | None:
    for view in call.inputs[:2]:
        if view.dtype not in FLOATS:
            return f"elements are {view.dtype.value}"
    product = Product.of(call)
    if product is None:
        return "the batch axes do not merge into two"
    return product.epilogue.refuse()


def _product(call: CpuCall) -> Product:
    product = Product.of(call)
    assert product is not None  # `supports` was asked
    return product


def _unit(product: Product) -> bool:
    # A single summed element has no neighbour to be apart from.
    return product.a[3] == 1 or product.inner == 1


def _pitch(call: CpuCall, product: Product) -> int:
    """Bytes from row to row as the products read them."""
    if product.widened:
        return DType.F32.itemsize * product.inner
    return call.inputs[0].dtype.itemsize * product.a[2]


def _tiles(call: CpuCall, product: Product) -> Sequence[RegisterTile]:
    return ranked_tiles(
        (("none", (Piece(product.rows, product.steps),)),), product.epilogue.channels,
        pitch=_pitch(call, product), unit=_unit(product),
        target=call.target, threads=call.threads,
    )  # fmt: skip


def _cuts(call: CpuCall, product: Product, tile: RegisterTile) -> Cuts:
    batches = product.batch[0] * product.batch[1]
    return blockings(
        -(-product.rows // tile.rows), -(-product.epilogue.vectors // tile.vectors),
        panel=4 * product.steps * tile.vectors * call.target.lanes,
        row=(DType.F32 if product.widened else call.inputs[0].dtype).itemsize
        * product.inner * tile.rows,
        cycles=100 + product.steps * tile.vectors * tile.rows, target=call.target,
        threads=1 if batches >= 4 * call.threads else call.threads,
        shared=3 * product.inner * tile.rows // call.target.lanes if product.widened else 0,
    )  # fmt: skip


def _variants(call: CpuCall) -> Iterator[Variant]:
    product = _product(call)
    tiles = _tiles(call, product)
    # Other tiles are slower in what they compute, not in what they move.
    traffic, arithmetic = _times(call, product, tiles[0])
    for schedule in schedules(tiles, lambda tile: _cuts(call, product, tile)):
        build = partial(_launch, call, product, schedule)
        yield Variant(traffic + schedule.slowdown * arithmetic, build, code=schedule.tile[:2])


def _launch(call: CpuCall, product: Product, schedule: TileSchedule) -> tuple[Launch, ...]:
    spec, batches = product.epilogue, product.batch[0] * product.batch[1]
    (vectors, rows, *_), cut = schedule.tile, _cuts(call, product, schedule.tile)[schedule.place]
    blocks = -(-spec.vectors // vectors)
    panels = b_panels(call, product, vectors)
    reduction = Reduction.of(product.inner, product.pairs)
    panel = 4 * product.steps * vectors * call.target.lanes
    config = MatMulConfig(
        "product", vectors, rows, reduction.unroll, reduction.shape, reduction.pairs,
        reduction.odd, call.inputs[0].dtype.value, panels.element.value, _unit(product),
        product.widened, panels.packed, spec.code(vectors),
        panels.packed and asks_early(call.target, panel),
    )  # fmt: skip
    integers = {
        **_geometry(product, panels.steps),
        "ahead": int(panels.known and 1 < -(-product.rows // rows) <= _FEW_TILES),
        **cut.integers(batches, blocks),
        **spec.integers(),
    }
    operands: dict[str, Operand] = {"a": In(0), "b": panels.operand, **spec.pointers()}
    if product.widened:
        nbytes = DType.F32.itemsize * cut.tiles * rows * product.inner
        operands["copy"] = Scratch(nbytes)
    chunks = batches * cut.tile_chunks * cut.block_chunks
    return (*panels.phases, Launch(config, operands, integers, chunks))


def _geometry(product: Product, b: tuple[int, int, int]) -> dict[str, int]:
    """The values of `_Geometry`, with the steps of b."""
    return {
        "a_0": product.a[0],
        "a_1": product.a[1],
        "a_m": product.a[2],
        "a_k": product.a[3],
        "b_0": b[0],
        "b_1": b[1],
        "b_k": b[2],
        "inner_batch": product.batch[1],
        "rows": product.rows,
        "inner": product.inner,
        "columns": product.columns,
    }


def b_panels(call: CpuCall, product: Product, vectors: int) -> ProductPanels:
    """Where a product reads b in blocks of so many vectors of columns, and what packs it there."""
    if not call.constant[1]:
        packing = PanelPacking(
            1, call.inputs[1].dtype, product.b, product.batch, product.inner, product.columns,
            vectors, call.target.lanes, _pack, product.pairs,
        )  # fmt: skip
        return computed_panels(packing, product.rows)
    width, blocks = vectors * call.target.lanes, -(-product.epilogue.vectors // vectors)
    element = DType.BF16 if product.pairs else DType.F32
    step = width * 4 // element.itemsize
    panel = product.steps * step * blocks
    b0, b1 = product.b[:2]
    # A constant is row-major: strides of whole matrices become strides of as many panels.
    size = max(1, product.inner * product.columns)
    nbytes = element.itemsize * panel * (call.inputs[1].size // size)
    parameters = (call.op.transpose_b, width, product.pairs)
    packed = Packed(Packing("pack_matrix", parameters, (1,), nbytes))
    return ProductPanels(
        packed, element, (b0 // size * panel, b1 // size * panel, step), True, known=True
    )


def _pack(vectors: int, together: str, pairs: bool, stored: str) -> MatMulConfig:
    return MatMulConfig("pack", vectors, shape=together, pairs=pairs, b=stored)


def _times(call: CpuCall, product: Product, best: RegisterTile) -> tuple[float, float]:
    """Microseconds of a call's traffic, and of the rest in the best tiles."""
    batches, speed = product.batch[0] * product.batch[1], machine(call.target)
    if batches * product.rows * product.columns == 0:
        return 0.0, speed.step
    vectors, rows, *_ = best
    # Tiles compute whole rows and vectors, whether they are there or not.
    padded = -(-product.epilogue.vectors // vectors) * vectors * call.target.lanes
    flops = 2.0 * batches * (-(-product.rows // rows) * rows) * padded * product.steps
    nbytes = float(sum(view.nbytes for view in (*call.inputs[:2], call.outputs[0])))
    return nbytes / speed.bandwidth, speed.roofline(flops, 0.0, call.threads, 0.9)


def _emit(k: KernelBuilder, config: MatMulConfig) -> None:
    if config.phase == "pack":
        emit_pack(k, config)
    else:
        _Product(k, config).emit()


MATMUL_DIRECT = CpuKernel(
    name="matmul.direct",
    ops=(MatMul,),
    config=MatMulConfig,
    supports=_supports,
    variants=_variants,
    emit=_emit,
    aliases=residual_aliases,
)
