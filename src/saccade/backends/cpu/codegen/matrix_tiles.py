"""Registers that hold tiles of matrices, and their products: Intel's AMX.

There are eight, of 16 rows of 64 bytes. A product of bfloat16 adds to a tile of float32

    even[n] = Σ_p a[m][2p] · b[p][2n]        odd[n] = Σ_p a[m][2p + 1] · b[p][2n + 1]
    c[m][n] += even[n] + odd[n]

each sum in the order of p: 16 · 16 · 32 multiply-adds in 16 cycles. The instructions take denormals
for zero. Where a target `plays_tiles` they are arrays, and the same sums are made by vectors: how
machines without them test what is written for them.
"""

from __future__ import annotations

from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.memory import Memory, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Vec, as_int, literal

__all__ = ["COUNT", "DEPTH", "ROWS", "MatrixTiles"]

COUNT = 8
"""Registers."""
ROWS = 16
"""Of a tile; also its columns of float32 or of pairs of bfloat16."""
DEPTH = 32
"""Products that a row of bfloat16 sums."""

_BYTES = 64  # of a row
# The palette, then bytes of a row (16 bits each) and rows (8 bits) of every tile: 64 bytes.
_CONFIGURATION = (1, 0, 0x0040004000400040, 0x0040004000400040, 0, 0, 0x1010101010101010, 0)


class MatrixTiles(Memory):
    """Tiles of matrices; between `tiles_begin` and `tiles_end`."""

    _entry: Any
    _tiles: list[Any]

    @property
    def _native(self) -> bool:
        return not self.target.plays_tiles

    def tiles_begin(self) -> None:
        """Give the registers their shape."""
        if not self._native:
            self._tiles = [self._array(ROWS * _BYTES // 8) for _ in range(COUNT)]
            return
        words = self._array(len(_CONFIGURATION))
        for place, word in enumerate(_CONFIGURATION):
            at = self.b.gep(words, [literal(llvm.I64, place)], source_etype=llvm.I64)
            self.b.store(literal(llvm.I64, word), at)
        self._tile_call("ldtilecfg", words)

    def tiles_end(self) -> None:
        """Leave the registers: what the system saves of a thread is smaller without them."""
        if self._native:
            self._tile_call("tilerelease")

    def tile_zero(self, tile: int) -> None:
        """Zeros in a register."""
        if self._native:
            self._tile_call("tilezero", _number(tile))
            return
        with self.range(0, ROWS) as row:
            self._put(tile, row, self.number(0, ROWS, "int32"))

    def tile_load(self, tile: int, p: Ptr, at: IntLike, pitch: IntLike) -> None:
        """16 rows of 32 bfloat16 that begin `pitch` elements apart."""
        address, stride = self._rows(p, at, pitch, DEPTH, 2)
        if self._native:
            self._tile_call("tileloadd64", _number(tile), address, stride.value)
            return
        kind = self.vector_type(ROWS, "int32")
        with self.range(0, ROWS) as row:
            place = self.b.gep(address, [(stride * row).value], source_etype=llvm.I8)
            self._put(tile, row, Vec(self.b, self.b.load(place, typ=kind, align=2)))

    def tile_store(self, tile: int, p: Ptr, at: IntLike, pitch: IntLike) -> None:
        """16 rows of 16 float32 to where they begin `pitch` elements apart."""
        address, stride = self._rows(p, at, pitch, ROWS, 4)
        if self._native:
            self._tile_call("tilestored64", _number(tile), address, stride.value)
            return
        with self.range(0, ROWS) as row:
            place = self.b.gep(address, [(stride * row).value], source_etype=llvm.I8)
            self.b.store(self._row(tile, row).value, place, align=4)

    def tile_dot(self, c: int, a: int, b: int) -> None:
        """`c += a · b`, where rows of b hold pairs of neighbours of a's rows side by side."""
        if self._native:
            self._tile_call("tdpbf16ps", *map(_number, (c, a, b)))
            return
        with self.range(0, ROWS) as row:
            even, odd = self.var(self.zero(ROWS)), self.var(self.zero(ROWS))
            with self.range(0, ROWS) as p:
                pair = self._element(a, row, p)
                sides = zip(
                    (even, odd),
                    self.split_pair(self.broadcast(pair, ROWS)),
                    self.split_pair(self._row(b, p)),
                    strict=True,
                )
                for total, left, right in sides:
                    total.set(self.fma(left, right, total.get()))
            before = self.b.bitcast(self._row(c, row).value, self.vector_type(ROWS))
            total = Vec(self.b, before) + (even.get() + odd.get())
            bits = self.b.bitcast(total.value, self.vector_type(ROWS, "int32"))
            self._put(c, row, Vec(self.b, bits))

    def _rows(
        self, p: Ptr, at: IntLike, pitch: IntLike, elements: int, itemsize: int
    ) -> tuple[Any, Int]:
        """Address of the first row and bytes from row to row; the last one is checked as well."""
        if self.checked:
            self._address(p, as_int(self.b, pitch) * (ROWS - 1) + at, elements)
        return self._address(p, at, elements), as_int(self.b, pitch) * itemsize

    def _array(self, words: int) -> Any:  # noqa: ANN401
        """Memory of the function's own."""
        place = self._entry.alloca(llvm.I64, size=words)
        # A pointer without a type: llvmlite's know what they were made for.
        return self._entry.inttoptr(self._entry.ptrtoint(place, llvm.I64), llvm.POINTER)

    def _tile_call(self, name: str, *operands: Any) -> None:  # noqa: ANN401
        kinds = [operand.type for operand in operands]
        function = self._intrinsic(f"llvm.x86.{name}", llvm.ir.VoidType(), kinds)
        self.b.call(function, operands)

    def _place(self, tile: int, row: IntLike) -> Any:  # noqa: ANN401
        at = as_int(self.b, row) * _BYTES
        return self.b.gep(self._tiles[tile], [at.value], source_etype=llvm.I8)

    def _row(self, tile: int, row: IntLike) -> Vec:
        kind = self.vector_type(ROWS, "int32")
        return Vec(self.b, self.b.load(self._place(tile, row), typ=kind, align=4))

    def _put(self, tile: int, row: IntLike, value: Vec) -> None:
        self.b.store(value.value, self._place(tile, row), align=4)

    def _element(self, tile: int, row: Int, column: Int) -> Vec:
        place = self.b.gep(self._place(tile, row), [column.value], source_etype=llvm.I32)
        return Vec(self.b, self.b.load(place, typ=llvm.I32, align=4))


def _number(tile: int) -> Any:  # noqa: ANN401
    return literal(llvm.I8, tile)
