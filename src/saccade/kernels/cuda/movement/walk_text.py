"""Text of the function that does one block of a walk: where its elements are, loads, the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.kernels.cuda.base import Entry
from saccade.kernels.cuda.movement.walk_plan import WalkCode

__all__ = ["WalkText"]


class WalkText:
    """The function, line by line: first where each operand's elements begin, then the caller's.

    Args:
        code: Of the walk.
        elements: Element types of the result and the operands, as Triton calls them.
        lines: Where lines go.
        integers: Further ones that the caller's lines read.
        numbers: Operands that say how long axes are, which is no longer than they are planned for:
            for each the operand, the axis (-2 down, -1 across) and how many elements count one.

    Attributes:
        lines: The same.
        mask: What is inside, for whole blocks.
    """

    def __init__(
        self,
        code: WalkCode,
        elements: Sequence[str],
        lines: TritonLines,
        integers: Sequence[str] = (),
        numbers: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self.code, self.elements, self.lines = code, tuple(elements), lines
        self._integers = (*code.integers, *integers, *(["n0"] if numbers else []))
        self._numbers = {axis: (p, each) for p, axis, each in numbers}
        pointers = tuple(f"p{p}" for p in range(1, len(self.elements)))
        self._at = {name: i for i, name in enumerate((*pointers, *self._integers))}
        self.mask = "mask[:, None]"
        if code.ends:
            self.mask += " & mask_across[None, :]"
        self._axes()

    def extra(self, name: str) -> str:
        """A pointer or an integer of the launch."""
        return f"extra[{self._at[name]}]"

    def _axes(self) -> None:
        """Indices `i0`, `i1` and so on along the axes besides those of the block."""
        rest = "outer" if self.code.ends else "row"
        for axis in reversed(range(1, self.code.rank)):
            n, m, h = (self.extra(f"{word}{axis}") for word in "nmh")
            if axis in self._numbers:
                n = f"t{axis}"
                self.lines.add(f"{n} = {self._length(axis)}")
                self.lines.add(
                    f"q{axis} = ({rest}.to(tl.uint32) // {n}.to(tl.uint32)).to(tl.int32)"
                )
            else:
                self.lines.add(f"q{axis} = tl.umulhi({rest} << 1, {m}) >> {h}")
            self.lines.add(f"i{axis} = {rest} - q{axis} * {n}")
            rest = f"q{axis}"
        self.lines.add(f"i0 = {rest}")

    def _length(self, axis: int) -> str:
        """How many there are along an axis, of so many elements each."""
        most = {-2: "down", -1: "across"}.get(axis) or self.extra(f"n{axis}")
        if axis not in self._numbers:
            return most
        p, each = self._numbers[axis]
        found = f"tl.minimum(tl.maximum(tl.load({self.extra(f'p{p}')}), 0), {most} * {each})"
        return f"tl.cdiv({found}.to(tl.int32), {each})"

    def _count(self) -> str:
        """The function that counts blocks' elements."""
        sizes = " * ".join(self._length(axis) for axis in range(self.code.rank))
        if not self.code.ends:
            return f"@triton.jit\ndef count(extra):\n    return {sizes}\n"
        ends = f"{sizes}, {self._length(-2)}, {self._length(-1)}"
        return f"@triton.jit\ndef count(extra, down, across):\n    return {ends}\n"

    def base(self, p: int, indices: Mapping[int, str] | None = None) -> str:
        """Where an operand's elements begin, for each vector or for the rectangle.

        Args:
            p: The operand, 0 for the result.
            indices: Other indices than the result's, by axis.
        """
        code, indices = self.code, indices or {}
        terms = [
            f"{indices.get(axis, f'i{axis}')} * {self.extra(f's{p}_{axis}')}"
            for axis in range(code.rank)
        ]
        if code.starts[p]:
            terms.append(self.extra(f"a{p}"))
        self.lines.add(f"b{p} = ({' + '.join(terms) or '0'}) * {code.steps[p]}")
        return f"b{p}"

    def load(self, p: int, base: str, mask: str = "") -> str:
        """An operand's elements, as a block or what broadcasts to one.

        Args:
            p: The operand.
            base: Where they begin.
            mask: Which of the vectors there are, if not all that the result has.
        """
        if self.code.ends:
            return self._load_tile(p, base)
        found = mask or "mask"
        if self.code.kinds[p] == "0":
            return f"tl.load({self._pointer(p)} + {base}, mask={found}, other=0)[:, None]"
        places = self.places(p, base)
        return f"tl.load({self._pointer(p)} + {places}, mask={found}[:, None], other=0)"

    def places(self, p: int, base: str) -> str:
        """Where the elements of an operand's block are."""
        if not self.code.ends:
            if self.code.kinds[p] == "0":
                return f"{base}[:, None]"
            return f"{base}[:, None] + ({self._side(p, 0, 'lane')})[None, :]"
        terms = [base]
        for axis, (name, spread) in enumerate((("row", "[:, None]"), ("column", "[None, :]"))):
            if self.code.kinds[p][axis] != "0":
                terms.append(f"({self._side(p, axis, name)}){spread}")
        return " + ".join(terms)

    def store(self, value: str) -> None:
        """Into the result."""
        value = f"({value}).to(p0.dtype.element_ty)"
        shape = f"[{self.code.block[0]}, {self.code.block[1]}]"
        places = self.places(0, self.base(0))
        self.lines.add(f"value = tl.broadcast_to({value}, {shape})")
        self.lines.add(f"tl.store(p0 + {places}, value, mask={self.mask})")

    def _pointer(self, p: int) -> str:
        return self.extra(f"p{p}") if p else "p0"

    def _load_tile(self, p: int, base: str) -> str:
        kinds = self.code.kinds[p]
        pointer = self._pointer(p)
        if kinds == "00":
            return f"tl.load({pointer} + {base})"
        if kinds[1] == "0":
            places, mask, spread = self._side(p, 0, "row"), "mask", "[:, None]"
        elif kinds[0] == "0":
            places, mask, spread = self._side(p, 1, "column"), "mask_across", "[None, :]"
        else:
            return f"tl.load({pointer} + ({self.places(p, base)}), mask={self.mask}, other=0)"
        return f"tl.load({pointer} + ({base} + {places}), mask={mask}, other=0){spread}"

    def _side(self, p: int, axis: int, index: str) -> str:
        """Along an axis of the block."""
        if self.code.kinds[p][axis] == "1":
            return index
        stride = self.extra("tc"[axis] + str(p))
        return f"{index} * {stride} * {self.code.steps[p]}"

    def function(self, name: str) -> str:
        """The function's text, when all lines are there."""
        given = "outer, row, column, mask, mask_across" if self.code.ends else "row, lane, mask"
        body = "".join(f"    {line}\n" for line in self.lines.lines)
        return f"@triton.jit\ndef {name}(p0, extra, {given}):\n{body}"

    @property
    def constants(self) -> dict[str, int]:
        """What the block is, by the names that `walk_code` has for it."""
        code = self.code
        if not code.ends:
            return dict(zip(("ROWS", "VECTOR"), code.block, strict=True))
        names = ("DOWN", "ACROSS", "DOWN_STEP", "ACROSS_STEP")
        return dict(zip(names, (*code.block, *code.ends), strict=True))

    def entry(self) -> Entry:
        """The function as an entry of its own."""
        way = "tiles" if self.code.ends else "vectors"
        functions, sizes = {"BODY": self.function("body")}, self.code.sizes
        if self._numbers:
            functions["COUNT"] = self._count()
            sizes = self.code.sizes if self.code.ends else ()
        return Entry(
            f"movement.walk_code:{'counted' if self._numbers else 'walk'}_{way}",
            (("p0", self.elements[0]),),
            sizes,
            self.constants,
            functions,
            tuple((f"p{p}", kind) for p, kind in enumerate(self.elements) if p),
            self._integers,
            warps=self.code.warps,
        )
