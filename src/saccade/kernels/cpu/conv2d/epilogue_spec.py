"""What happens to a convolution's sums, seen by the planner: operands, store maps, refusals.

The code that `epilogue.Epilogue` emits depends only on `EpilogueSpec.code`, a tuple of strings:
the expression, the store, the element types of the result and of an interleaved part, then three
words for each operand. Matrix products use it too:
[b0, b1, M, N] is an image [N=b0, C=N, H=b1, W=M].

Operand kinds: `scalar`; `channel` [1,K,1,1]; `image_channel` [N,K,1,1]; `full` (everything else).
Along the channels an operand is `unit` (neighbours in memory), `repeat` or `strided`. Elements are
float32 or bfloat16.

Stores: `plain` and `interleave` (two parts) to neighbouring channels; `subpixel`: DepthToSpace to
neighbouring channels, every vector inside one sub-pixel; `strided`: to any channel stride
(row-major results); `rows`: DepthToSpace to any channel stride, runs of sub-pixels of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from saccade.ir import DType, Expr
from saccade.kernels.base import In, Operand, Out, Packed, Packing, Scratch, View, per_call
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.channel_order import channel_order
from saccade.locks import cached_property
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore, StoreMap

__all__ = [
    "FLOATS",
    "EpilogueSpec",
    "conv_epilogue",
    "epilogue_of",
    "even_step",
    "residual_aliases",
    "static_sums",
]

FLOATS = (DType.F32, DType.BF16)
"""What convolutions and products read and write; all of it is float32 in registers."""

STAGE_BYTES = 64  # scratch of the stores that go lane by lane: one vector of the widest target


def even_step(view: View) -> int | None:
    """Elements from pixel to pixel of a batch [N, C, H, W] in order; None if that varies."""
    images, _, rows, columns = view.shape
    by_image, _, by_row, by_column = view.strides
    axes = ((images, by_image), (rows, by_row), (columns, by_column))
    count, step = 1, 0
    for size, stride in reversed(axes):
        if size == 1:
            continue
        if count > 1 and stride != count * step:
            return None
        step = step if count > 1 else stride
        count *= size
    return step


def _classify(view: View) -> tuple[str, str]:
    n, c, h, w = view.strides
    along = {0: "repeat", 1: "unit"}.get(c, "strided")
    if h or w:
        return "full", along
    if n:
        return "image_channel", along
    return ("channel", along) if c else ("scalar", along)


@dataclass(frozen=True)
class EpilogueSpec:
    """The epilogue and the store of one call.

    Attributes:
        expr: `$0` is the sum, `$1…` the operands.
        store: Store map, None for a plain store.
        shape: Shape of the sums, [N, K, P, Q].
        operands: For each its index among the call's inputs, its storage expanded to `shape`,
            and whether it is constant.
        part: The other part of an interleaving store, like an operand.
        out: Storage of the result (shape after the store map).
        groups: Groups of the K channels; a vector never holds channels of two groups.
        lanes: Width of a vector.
    """

    expr: Expr
    store: StoreMap | None
    shape: tuple[int, ...]
    operands: tuple[tuple[int, View, bool], ...]
    part: tuple[int, View, bool] | None
    out: View
    groups: int
    lanes: int

    @property
    def block(self) -> int:
        """Edge of the block of DepthToSpace, else 1."""
        return self.store.block if isinstance(self.store, DepthToSpaceStore) else 1

    @cached_property
    def kind(self) -> str:
        """Name of the store."""
        unit = self.out.strides[1] == 1 or self.out.shape[1] == 1
        if isinstance(self.store, DepthToSpaceStore):
            return "subpixel" if unit else "rows"
        if isinstance(self.store, InterleaveStore):
            return "interleave"
        return "plain" if unit else "strided"

    @cached_property
    def order(self) -> str:
        """In which order the channels of the sums are wanted, see `channel_order`."""
        if not isinstance(self.store, DepthToSpaceStore):
            return "natural"
        if self.kind == "subpixel":
            return f"subpixel:{self.store.mode}:{self.block}:{self.lanes}"
        return f"rows:{self.store.mode}:{self.block}"

    @cached_property
    def channels(self) -> int:
        """Channels of one group in the wanted order, padding between sub-pixels included."""
        return len(channel_order(self.order, self.shape[1] // self.groups))

    @property
    def vectors(self) -> int:
        """Vectors that hold the channels of one group."""
        return -(-self.channels // self.lanes)

    @cached_property
    def flat(self) -> bool:
        """Whether pixels are evenly apart in the result and in every operand."""
        views = [self.out, *self._read()]
        per_image = any(_classify(view)[0] == "image_channel" for view in self._read())
        even = all(even_step(view) is not None for view in views)
        return self.block == 1 and even and not per_image

    def _read(self) -> list[View]:
        return [view for _, view, _ in self.operands] + ([self.part[1]] if self.part else [])

    def refuse(self) -> str | None:
        """Why the epilogue cannot be emitted, or None."""
        for view in (self.out, *self._read()):
            if view.dtype not in FLOATS:
                return f"an operand or the result is {view.dtype.value}"
        if isinstance(self.store, InterleaveStore):
            return self._refuse_interleave()
        if isinstance(self.store, DepthToSpaceStore):
            if self.groups > 1:
                return "DepthToSpace of a grouped convolution is not folded"
            for index, view, constant in self.operands:
                kind, along = _classify(view)
                if kind != "scalar" and not (kind == "channel" and constant and along == "unit"):
                    return f"operand {index} of a DepthToSpace store is {kind} and not a constant"
        return None

    def _refuse_interleave(self) -> str | None:
        assert isinstance(self.store, InterleaveStore)
        if self.store.parts != 2:
            return f"interleaving {self.store.parts} parts is not folded, only 2"
        if self.part is None or self.part[1].strides[1] != 1 or self.out.strides[1] != 1:
            return "interleaving needs channels-last storage"
        return None

    def code(self, vectors: int = 1, half: bool = False) -> tuple[str, ...]:
        """What emitted code depends on.

        Args:
            vectors: Vectors of channels of a tile.
            half: Whether the last of them is half as wide, which only a plain store may ask for.
        """
        width = vectors * self.lanes - half * self.lanes // 2
        padded = self.shape[1] // self.groups // self.block**2 % self.lanes and not half
        whole = self.kind != "rows" and not padded and self.channels % width == 0
        return self._codes[whole]

    @cached_property
    def _codes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """`code` where some vectors hold fewer channels than lanes, and where none does."""
        extra = ""
        if self.kind == "interleave":
            assert isinstance(self.store, InterleaveStore)
            extra = str(self.store.position)
        if self.kind in ("subpixel", "rows"):
            extra = str(self.block)
        if self.kind == "rows":
            runs = self.lanes % self.block == 0 and self.out.strides[3] == 1
            extra += ":runs" if runs else ":single"
        ends = [self.out, *([self.part[1]] if self.part else [])]
        elements = ":".join(view.dtype.value for view in ends)
        words = [":".join((*_classify(v), self._element(v))) for _, v, _ in self.operands]
        expr, kind = str(self.expr), self.kind
        tail, whole = (
            (expr, f"{kind}:{end}:{extra}", elements, *words) for end in ("tail", "whole")
        )
        return tail, whole

    def _packed(self, view: View) -> bool:
        """Whether an operand is brought into the wanted order of channels."""
        return self.order != "natural" and view.strides[1] != 0

    def _element(self, view: View) -> str:
        return DType.F32.value if self._packed(view) else view.dtype.value

    def pointers(self) -> dict[str, Operand]:
        """Operands of the pointer parameters that `Epilogue(...)` declares."""
        found = self.reads()
        found["y"] = Out(0)
        return found

    def reads(self, prefix: str = "") -> dict[str, Operand]:
        """The same without the result, where that is given; with a prefix as there."""
        found: dict[str, Operand] = {}
        for i, (index, view, _) in enumerate(self.operands):
            if self._packed(view):
                packing = Packing("pack_channels", (self.order,), (index,), 4 * self.channels)
                found[f"{prefix}operand{i}"] = Packed(packing)
            else:
                found[f"{prefix}operand{i}"] = In(index)
        if self.kind == "interleave":
            assert self.part is not None
            found[prefix + "part"] = In(self.part[0])
        if self.kind in ("strided", "rows"):
            found[prefix + "stage"] = Scratch(STAGE_BYTES)
        return found

    def integers(self, flat: bool = False, prefix: str = "") -> dict[str, int | tuple[int, ...]]:
        """Values of the integer parameters that `Epilogue.declare_integers` declares.

        Args:
            flat: Whether the code asks for pixel (0, 0, number) instead of (n, h, w).
            prefix: Of the names, as there.
        """
        n, c, h, w = self.out.strides
        block = self.block
        count = self.shape[1] // self.groups
        if self.kind == "subpixel":
            count //= block * block
        per_block = -(-count // self.lanes)
        pixel = (even_step(self.out) or 0) if flat else w * block
        steps: list[int] = []
        for view in self._read():
            steps += [*view.strides[:3], (even_step(view) or 0) if flat else view.strides[3]]
        return {
            prefix + "y_n": n,
            prefix + "y_c": c,
            prefix + "y_h": h * block,
            prefix + "y_w": pixel,
            prefix + "y_sub_h": h,
            prefix + "y_sub_w": w,
            prefix + "y_count": count,
            prefix + "y_per_block": per_block,
            prefix + "y_channels": self.shape[1],
            prefix + "operand_strides": tuple(steps),
        }


@per_call
def conv_epilogue(call: CpuCall) -> EpilogueSpec:
    """The epilogue of a call of `Conv2d`."""
    op, out = call.op, call.outputs[0]
    sums = out.shape
    if op.store is not None:
        sums = static_sums(op, call.inputs[0].shape, call.inputs[1].shape)
    operands = range(2 + op.n_prologue, len(call.inputs))
    return epilogue_of(call, op, sums, operands, out, op.groups)


def residual_aliases(call: CpuCall) -> tuple[tuple[int, int], ...]:
    """A residual may give its memory to the result: every element is read before it is written."""
    spec = conv_epilogue(call)
    if spec.kind not in ("plain", "strided"):
        return ()
    return tuple((i, 0) for i, _, _ in spec.operands if call.inputs[i] == call.outputs[0])


def static_sums(op: Conv2d, x: tuple[int, ...], w: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a convolution's sums, [N, K, P, Q]."""
    return cast("tuple[int, ...]", op.sum_shape(x, w))


def epilogue_of(
    call: CpuCall,
    op: Conv2d,
    sums: tuple[int, ...],
    operands: range,
    out: View,
    groups: int = 1,
) -> EpilogueSpec:
    """The epilogue of a convolution, which may be one of several that a call does.

    Args:
        call: Whose inputs it reads.
        op: The convolution.
        sums: Shape of its sums.
        operands: Which inputs of the call belong to its epilogue and its store map.
        out: Where its result goes.
        groups: Groups of channels that no vector holds two of.
    """
    end = operands.stop - op.n_store
    read = tuple(
        (i, call.inputs[i].broadcast_to(sums), call.constant[i]) for i in range(operands.start, end)
    )
    part = (end, call.inputs[end], call.constant[end]) if op.n_store == 1 else None
    return EpilogueSpec(op.epilogue, op.store, sums, read, part, out, groups, call.target.lanes)
