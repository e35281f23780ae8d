"""`Concat` by copies: one walk for each operand, into its slice of the result.

The walks of up to eight operands are one launch, because what is put together is mostly small: a
program finds out which walk it belongs to.

Floor: the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.movement.copy import copied, raw_element, refuse_move
from saccade.kernels.cuda.movement.loop_axes import collapsed
from saccade.kernels.cuda.movement.walk_plan import Walk, WalkCode, walks
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.opdefs import Concat

__all__ = ["MOVEMENT_CONCAT", "CudaConcatConfig"]

_TOGETHER = 8  # walks of one launch


@dataclass(frozen=True)
class CudaConcatConfig:
    """What the code depends on.

    Attributes:
        itemsize: Bytes of an element.
        walks: How each operand's are found: the fields of its `WalkCode`.
    """

    itemsize: int
    walks: tuple[tuple[Any, ...], ...]


_Part = tuple[int, Walk]
"""An operand and how it is walked."""


def _parts(call: CudaCall) -> Iterator[tuple[_Part, ...]]:
    """The operands that have elements, each with one of its walks."""
    op: Concat = call.op
    out = call.outputs[0]
    found: list[tuple[_Part, ...]] = []
    place = 0
    for index, view in enumerate(call.inputs):
        axes, _ = collapsed(view.shape, (out.strides, view.strides))
        ways = walks(axes, (out.dtype.itemsize,) * 2, (place, 0))
        if view.size:
            found.append(tuple((index, way) for way in ways))
        place += view.shape[op.axis] * out.strides[op.axis]
    return zip(*found, strict=True) if found else iter([()])


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [(_micros(call, parts), parts) for parts in _parts(call)]
    for micros, parts in sorted(timed, key=lambda pair: pair[0]):
        yield Variant(micros, partial(_launches, call, parts))


def _launches(call: CudaCall, parts: Sequence[_Part]) -> tuple[Launch, ...]:
    return tuple(
        _launch(call, parts[start : start + _TOGETHER]) for start in range(0, len(parts), _TOGETHER)
    )


def _micros(call: CudaCall, parts: Sequence[_Part]) -> float:
    """Estimated time: of each launch as of one walk that has all its programs."""
    total = 0.0
    for start in range(0, len(parts), _TOGETHER):
        group = parts[start : start + _TOGETHER]
        whole = replace(group[0][1], programs=sum(way.programs for _, way in group))
        total += whole.micros(call, sum(2 * call.inputs[index].nbytes for index, _ in group))
    return total


def _launch(call: CudaCall, parts: Sequence[_Part]) -> Launch:
    config = CudaConcatConfig(
        call.outputs[0].dtype.itemsize, tuple(astuple(way.code) for _, way in parts)
    )
    operands: dict[str, Operand] = {"p0": Out(0)}
    operands |= {f"p{k}": In(index) for k, (index, _) in enumerate(parts, 1)}
    lasts = list(accumulate(way.programs for _, way in parts))
    integers = {f"last{k}": last for k, last in enumerate(lasts[:-1], 1)}
    for k, (_, way) in enumerate(parts, 1):
        integers |= {f"w{k}_{name}": n for name, n in {**way.integers, **way.ends}.items()}
    return Launch(config, operands, integers, lasts[-1])


def _entry(config: CudaConcatConfig) -> Entry:
    raw = raw_element(config.itemsize)
    texts = [copied(config.itemsize, WalkCode(*fields)) for fields in config.walks]
    pointers = tuple((f"p{k}", raw) for k in range(1, len(texts) + 1))
    integers = [f"last{k}" for k in range(1, len(texts))]
    for k, text in enumerate(texts, 1):
        integers += [f"w{k}_{name}" for name in (*text.code.integers, *text.code.sizes)]
    names = (*(name for name, _ in pointers), *integers)
    at = {name: f"extra[{i}]" for i, name in enumerate(names)}
    return Entry(
        "movement.walk_code:walk_several",
        (("p0", raw),),
        (),
        {},
        {"BODY": _text(texts, at)},
        pointers,
        tuple(integers),
        warps=texts[0].code.warps,
    )


def _text(texts: Sequence[WalkText], at: Mapping[str, str]) -> str:
    """A function for each walk, and the one that finds out which of them is a program's."""
    parts = [text.function(f"part{k}") for k, text in enumerate(texts, 1)]
    lines = ["@triton.jit", "def body(p0, extra, pid):"]
    for k, text in enumerate(texts, 1):
        indent = "    " * k
        call = _walked(k, text, at)
        if k == len(texts):
            lines.append(indent + call)
        else:
            lines.append(f"{indent}if pid < {at[f'last{k}']}:")
            lines.append(f"{indent}    {call}")
            lines.append(f"{indent}else:")
    body = "".join(f"{line}\n" for line in lines)
    return "\n\n".join(("from saccade.kernels.cuda.movement import walk_code\n", *parts, body))


def _walked(k: int, text: WalkText, at: Mapping[str, str]) -> str:
    """The call that does one block of a walk."""
    walk = text.code
    own = ", ".join(at[name] for name in (f"p{k}", *(f"w{k}_{n}" for n in walk.integers)))
    pid = "pid" if k == 1 else f"pid - {at[f'last{k - 1}']}"
    sizes = ", ".join(at[f"w{k}_{name}"] for name in walk.sizes)
    block = ", ".join(f"{name}={value}" for name, value in text.constants.items())
    way = "tiles" if walk.ends else "vectors"
    return f"walk_code.{way}(p0, ({own},), {pid}, {sizes}, {block}, BODY=part{k})"


MOVEMENT_CONCAT = CudaKernel(
    "movement.concat", (Concat,), CudaConcatConfig, refuse_move, _variants, _entry
)
