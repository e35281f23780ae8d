"""What is fused into a convolution's loads and stores, as generated functions over its operands.

All further operands of the call are called e1, e2, …: the prologue's, the epilogue's, then the
other parts of an interleaving store, so that one numbering serves all the functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from saccade.ir.expr import IDENTITY, Expr, arg, substitute
from saccade.kernels.base import Operand, View, interned
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.conv2d.window_config import excess_of, sums_of
from saccade.kernels.cuda.epilogue import (
    epilogue_of,
    integers_of,
    pointers_of,
    source_of,
)
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = [
    "PLAIN", "STORES", "Fused", "FusedConfig", "chain_halves", "divided", "fused_of", "loads_of",
    "moved", "packed_block", "prologue_views", "stored_vector", "stores_of", "words_of",
]  # fmt: skip

STORES = ("channels", "y_n", "y_k", "y_p", "y_q")
"""Integers that say where results go."""


@dataclass(frozen=True, slots=True)
class FusedConfig:
    """What the code depends on.

    Attributes:
        prologue, epilogue: Expressions over `$0` and the operands.
        operands: For each operand its word of `epilogue.EpilogueCode`.
        unit: Whether the result's channels are neighbours.
        block: Of DepthToSpace; 1 for any other store.
        crd: See `store_code.places`.
        parts, position: Of an interleaving store; one part for any other.
        excess: See `window_config.excess_of`.
        room: Elements behind the result's last channel, which zeros are written to.
    """

    prologue: str = str(IDENTITY)
    epilogue: str = str(IDENTITY)
    operands: tuple[str, ...] = ()
    unit: bool = True
    block: int = 1
    crd: str = ""
    parts: int = 1
    position: int = 0
    excess: int = 0
    room: int = 0

    def constants(self) -> dict[str, int | str]:
        """For `Entry.constants`, of a kernel that stores."""
        return {
            "UNIT": self.unit, "BLOCK": self.block, "CRD": self.crd,
            "PARTS": self.parts, "POSITION": self.position,
            "EXCESS": self.excess, "ROOM": self.room,
        }  # fmt: skip

    def functions(self) -> dict[str, str]:
        """For `Entry.functions`: PROLOGUE if there is one, EPILOGUE, PARTS' other ones."""
        made = {}
        if self.prologue != str(IDENTITY):
            made["PROLOGUE"] = source_of((self.prologue, *self.operands), "prologue")
        made["EPILOGUE"] = source_of((self.epilogue, *self.operands))
        if self.parts > 1:
            made["OTHERS"] = self._others()
        return made

    def _others(self) -> str:
        """A function that gives the block of one of the other parts."""
        # The other parts are the last operands, and operand i is `$i`, counted from 1.
        count, first = self.parts - 1, len(self.operands) - self.parts + 2
        taken = "acc, n, k, p, q, row_mask, channel_mask, extra"
        texts = [source_of((f"${first + i}", *self.operands), f"part{i}") for i in range(count)]
        head = f"@triton.jit\ndef others({taken}, I: tl.constexpr):\n"
        calls = [f"    if I == {i}:\n        return part{i}({taken})\n" for i in range(count)]
        return "\n\n".join([*texts, head + "".join(calls)])

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """For `Entry.extra_pointers`."""
        return pointers_of((self.epilogue, *self.operands))

    @property
    def integers(self) -> tuple[str, ...]:
        """For `Entry.extra_integers`."""
        return integers_of((self.epilogue, *self.operands))


_fused = interned(FusedConfig)
PLAIN = _fused()
"""Nothing is fused: sums go as they are to where channels are neighbours."""


@dataclass(frozen=True, slots=True)
class Fused:
    """The same of one call.

    Attributes:
        config: What the code depends on.
        operands: For the launch: operands by parameter name.
        integers: For the launch: their strides, and `STORES` where it stores.
    """

    config: FusedConfig
    operands: Mapping[str, Operand]
    integers: Mapping[str, int]


def chain_halves(call: CudaCall, between: Sequence[int]) -> tuple[CudaCall, CudaCall]:
    """Two convolutions that are one step as calls, of and to a packed image that would lie between.

    Args:
        call: The call; operands as `opdefs._conv_pair` has them.
        between: The shape of that image.
    """
    op = call.op
    x, w, w2, *operands = call.inputs
    known, own = call.constant, op.n_first
    n, m, p, q = between
    image = View(x.dtype, (n, m, p, q), (m * p * q, 1, m * q, m))
    first = replace(
        call, op=op.first, inputs=(x, w, *operands[:own]), outputs=(image,),
        constant=(*known[:2], *known[3 : 3 + own]),
    )  # fmt: skip
    second = replace(
        call, op=op.second, inputs=(image, w2, *operands[own:]),
        constant=(False, known[2], *known[3 + own :]),
    )  # fmt: skip
    return first, second


def fused_of(call: CudaCall) -> Fused:
    """Of a kernel that loads x and stores the result."""
    count = _prologue_operands(call)
    views = (*prologue_views(call), *_result_views(call))
    code, operands, integers = words_of(call, 2, len(call.inputs), views, excess_of(call))
    prologue = call.op.prologue if isinstance(call.op, Conv2d) else IDENTITY
    config = _stored(call, str(prologue), moved(call.op.epilogue, count), code)
    return Fused(config, operands, {**integers, **_places(call)})


def loads_of(call: CudaCall) -> Fused:
    """Of a kernel that loads x and stores sums only."""
    views = prologue_views(call)
    code, operands, integers = words_of(call, 2, 2 + len(views), views, excess_of(call))
    return Fused(_fused(str(call.op.prologue), operands=code), operands, integers)


def stores_of(call: CudaCall) -> Fused:
    """Of a kernel that loads sums and stores the result."""
    first = 2 + _prologue_operands(call)
    views = _result_views(call)
    code, operands, integers = words_of(call, first, len(call.inputs), views, excess_of(call))
    config = _stored(call, str(IDENTITY), str(call.op.epilogue), code)
    return Fused(config, operands, {**integers, **_places(call)})


def words_of(
    call: CudaCall, first: int, end: int, views: tuple[View, ...], room: int = 0
) -> tuple[tuple[str, ...], Mapping[str, Operand], Mapping[str, int]]:
    """Of operands `first` to `end`: words of the code, operands and strides by parameter name.

    Args:
        call: The call.
        first: Which of its inputs is the first.
        end: One past the last of them.
        views: See `epilogue_of`, as `room`.
        room: The same.
    """
    # Of an expression that takes the last operand: `epilogue_of` leaves out those behind it.
    found = epilogue_of(call, arg(end - first), first, (), end=end, views=views or None, room=room)
    return found.code[1:], found.operands, found.integers


def _prologue_operands(call: CudaCall) -> int:
    return call.op.n_prologue if isinstance(call.op, Conv2d) else 0


def prologue_views(call: CudaCall) -> tuple[View, ...]:
    """The prologue's operands, which differ by image and channel alone."""
    n, c = call.inputs[0].shape[:2]
    views = call.inputs[2 : 2 + _prologue_operands(call)]
    return tuple(view.broadcast_to((n, c, 1, 1)) for view in views)


def _result_views(call: CudaCall) -> tuple[View, ...]:
    shape = sums_of(call)
    return tuple(view.broadcast_to(shape) for view in call.inputs[2 + _prologue_operands(call) :])


@lru_cache(maxsize=1024)
def moved(expr: Expr, count: int) -> str:
    """An expression whose operands come after `count` others."""
    return str(substitute(expr, {i: arg(i + count) for i in range(1, expr.operands)}))


def _stored(call: CudaCall, prologue: str, epilogue: str, operands: tuple[str, ...]) -> FusedConfig:
    y = call.outputs[0]
    unit = y.strides[1] == 1 or y.shape[1] == 1
    excess = excess_of(call)
    plain = _fused(prologue, epilogue, operands, unit, excess=excess, room=y.room if y.zeros else 0)
    match call.op:
        case Conv2d(store=DepthToSpaceStore(block, mode)):
            apart = "packed" if packed_block(call) else "apart"
            return replace(plain, block=block, crd=apart if mode == "CRD" else "")
        case Conv2d(store=InterleaveStore(parts, position)):
            return replace(plain, parts=parts, position=position)
        case _:
            return plain


def packed_block(call: CudaCall) -> tuple[int, ...]:
    """The block that packing brings the channels of a pixel together for, if it does: see CRD."""
    match call.op:
        case Conv2d(groups=1, store=DepthToSpaceStore(block, "CRD")) if call.constant[1]:
            return (block,)
        case _:
            return ()


def _places(call: CudaCall) -> dict[str, int]:
    y = call.outputs[0]
    return dict(zip(STORES, (_channels(call), *y.strides), strict=True))


def _channels(call: CudaCall) -> int:
    y = call.outputs[0]
    # Zeros behind the last channel are stored as channels are.
    return y.shape[1] + (y.room if y.zeros else 0)


def stored_vector(call: CudaCall, columns: int, *places: int) -> int:
    """What the counts of columns and channels that are stored, and places, are multiples of.

    Args:
        call: The call.
        columns: How many of the sums there are in one product.
        places: Strides of y but for the channels'; all of them if none are given.
    """
    y = call.outputs[0]
    columns += excess_of(call)
    return gcd(8, columns, _channels(call), *(places or (y.strides[0], *y.strides[2:])))


def divided(integers: Mapping[str, int], by: int) -> dict[str, int]:
    """What says where results go, in steps of `by` elements, but for the channels' stride."""
    steps = set(STORES) - {"y_k"}
    return {name: n // by if name in steps else n for name, n in integers.items()}
