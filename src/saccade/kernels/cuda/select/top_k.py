"""`TopK`: an element's place among the best is the number of those that come before it.

    rank        of short rows, and where all are asked for: every element against every other one

of long rows the best are found first, by a radix search over integers that have their order:

    digits      for each digit, the highest first: how many of those elements that have the digits
                found so far have which one next, block by block
    ties        how many elements of each block are better than the last one of the best, or as good
    gather      these, of equal ones the first, in the order of the row
    rank        as above, among these alone

Of elements that a step counted the first ones are looked at; programs of others end at once.
Equal elements keep their order, no sum depends on who comes first. Floor: the bytes of the operand,
once for each digit and twice more, most of them from the L2 cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH, operation_micros, stream_micros
from saccade.kernels.cuda.reduce.axis_loops import AxisLoops, axis_loops
from saccade.kernels.cuda.refusals import refuse_extents, refuse_repeats
from saccade.opdefs import TopK

__all__ = ["SELECT_TOP_K", "CudaTopKConfig"]

_BLOCK = 2048  # elements of a program that searches, at a time
_ROWS, _OTHERS = 32, 128  # elements of a program that ranks, and those it compares them with
_DIGIT = 256  # values of a digit
_WIDE = (DType.F64, DType.I64, DType.U64, DType.U32)
_INTEGERS = (
    "k1", "k2", "x_k0", "x_k1", "x_k2", "x_r", "v_k0", "v_k1", "v_k2", "v_r", "p_k0", "p_k1",
    "p_k2", "p_r",
)  # fmt: skip
_COMPARISON = 4  # operations for a pair of elements (an estimate)
_STEP = 0.3  # microseconds of a block that a program looks at (an estimate)
_SUMMED = 0.05  # microseconds of a program's digits that another one adds up (an estimate)


@dataclass(frozen=True)
class CudaTopKConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: The Triton function.
        element: Of x.
        wide: Whether elements are compared in 64 bits.
        largest: Of the operator.
        kept: How many axes there are besides.
        digit: Which digit is looked for, 0 the highest; how many there are behind all of them.
        searched: Whether those that are ranked were found by a search.
        counted: Of the operator.
    """

    phase: str
    element: str
    wide: bool
    largest: bool
    kept: int
    digit: int = 0
    searched: bool = False
    counted: bool = False


@per_call
def _kept(call: CudaCall) -> AxisLoops:
    """The other axes, over x, values and places."""
    views = (call.inputs[0], *call.outputs)
    stay = [axis for axis in range(len(views[0].shape)) if axis != call.op.axis]
    strides = [[view.strides[axis] for axis in stay] for view in views]
    return axis_loops([views[0].shape[axis] for axis in stay], strides)


def _supports(call: CudaCall) -> str | None:
    x, values = call.inputs[0], call.outputs[0]
    if x.dtype is not values.dtype:
        return "elements of different types"
    if not _kept(call).fits:
        return "more than 3 separate axes besides"
    if 16 * x.size >= 1 << 31:
        return "2^27 elements or more"
    repeats = refuse_repeats(values) or refuse_repeats(call.outputs[1])
    return repeats or refuse_extents(call)


def _sizes(call: CudaCall) -> tuple[int, int, int]:
    """Rows, elements of one, and how many of them are asked for."""
    axis: int = call.op.axis
    return _kept(call).count, call.inputs[0].shape[axis], call.outputs[0].shape[axis]


def _digits(call: CudaCall) -> int:
    return 8 if call.inputs[0].dtype in _WIDE else 4


def _share(size: int) -> int:
    """Elements of a row for each program that searches.

    Each adds up what all of the row have found: more of them look at less, and add up more.
    """
    programs = sqrt(_STEP / _SUMMED * size / _BLOCK)
    return _BLOCK * max(1, round(size / (_BLOCK * max(1.0, programs))))


def _variants(call: CudaCall) -> Iterator[Variant]:
    rows, size, best = _sizes(call)
    ranked = LAUNCH + _ranking(call, rows, size)
    ways = [(ranked, partial(_ranked, call))]
    if 0 < best < size:
        digits, share = _digits(call), _share(size)
        read = stream_micros(call, call.inputs[0].nbytes) - stream_micros(call, 0)
        searching = _STEP * share / _BLOCK + _SUMMED * size / share
        each = LAUNCH + max(searching, read)
        micros = (digits + 2) * each + LAUNCH + _ranking(call, rows, best)
        ways.append((micros, partial(_searched, call)))
    for micros, build in sorted(ways, key=lambda way: way[0]):
        yield Variant(micros, build)


def _ranking(call: CudaCall, rows: int, size: int) -> float:
    """Microseconds of comparing all elements of rows."""
    pairs = operation_micros(call, _COMPARISON * rows * float(size) ** 2)
    return max(pairs, _STEP * size / _OTHERS)


def _config(call: CudaCall, phase: str) -> CudaTopKConfig:
    x = call.inputs[0]
    kept = max(2, _kept(call).axes)
    return CudaTopKConfig(
        phase, element_of(x), x.dtype in _WIDE, call.op.largest, kept, counted=call.op.counted
    )  # fmt: skip


def _integers(call: CudaCall) -> dict[str, int]:
    kept, axis = _kept(call), call.op.axis
    found = {"k1": kept.sizes[1], "k2": kept.sizes[2]}
    for name, index, view in zip("xvp", range(3), (call.inputs[0], *call.outputs), strict=True):
        found |= {**kept.integers(f"{name}_k", index), f"{name}_r": view.strides[axis]}
    return found


def _number(call: CudaCall) -> Operand:
    """Of elements; what is not counted reads none."""
    return In(1 if call.op.counted else 0)


def _ranked(call: CudaCall) -> tuple[Launch, ...]:
    """Every element of each row."""
    rows, size, best = _sizes(call)
    nothing: Operand = In(0)  # what was not searched for has no temporaries
    operands: dict[str, Operand] = {
        "x": In(0), "number": _number(call), "keys": nothing, "found": nothing, "values": Out(0),
        "places": Out(1),
    }  # fmt: skip
    integers = {"size": size, "best": best, **_integers(call)}
    programs = rows * -(-size // _ROWS) if best else 0
    return (Launch(_config(call, "rank"), operands, integers, programs),)


def _searched(call: CudaCall) -> tuple[Launch, ...]:
    """A search for the best of each row, which are ranked."""
    rows, size, best = _sizes(call)
    digits, share = _digits(call), _share(size)
    blocks = -(-size // share)
    wide = 8 if call.inputs[0].dtype in _WIDE else 4
    counts = [Temp(i, 4 * _DIGIT * rows * blocks) for i in range(2)]
    state = Temp(2, 16 * rows * (digits + 1))
    ties, keys = Temp(3, 8 * rows * blocks), Temp(4, wide * rows * best)
    found = Temp(5, 4 * rows * best)
    sizes = {"size": size, "best": best, "blocks": blocks, "share": share}
    axes = {name: n for name, n in _integers(call).items() if name[0] in "kx"}
    launches = []
    for digit in range(digits + 2):
        # Of the last two one knows all digits, the other all numbers of ties.
        phase = "digits" if digit < digits else ("ties", "gather")[digit - digits]
        operands: dict[str, Operand] = {"x": In(0), "number": _number(call), "state": state}
        if phase != "gather":
            operands["counts"] = counts[(digit + 1) % 2]
        if phase == "digits":
            operands["to"] = counts[digit % 2]
        else:
            operands["ties"] = ties
        if phase == "gather":
            operands |= {"keys": keys, "found": found}
        config = replace(_config(call, phase), digit=min(digit, digits))
        launches.append(Launch(config, operands, {**sizes, **axes}, rows * blocks))
    operands = {
        "x": In(0), "number": _number(call), "keys": keys, "found": found, "values": Out(0),
        "places": Out(1),
    }  # fmt: skip
    ranks = {"size": best, "best": best, **_integers(call)}
    config = replace(_config(call, "rank"), searched=True)
    return (*launches, Launch(config, operands, ranks, rows * -(-best // _ROWS)))


def _entry(config: CudaTopKConfig) -> Entry:
    key = "i64" if config.wide else "i32"
    kinds = {
        "x": config.element, "state": "i64", "counts": "i32", "to": "i32", "ties": "i32",
        "keys": key, "found": "i32", "values": config.element, "places": "i64",
        "number": "i64" if config.counted else config.element,
    }  # fmt: skip
    names = {
        "digits": ("x", "number", "state", "counts", "to"),
        "ties": ("x", "number", "state", "counts", "ties"),
        "gather": ("x", "number", "state", "ties", "keys", "found"),
        "rank": ("x", "number", "keys", "found", "values", "places"),
    }[config.phase]  # fmt: skip
    constants: dict[str, int | bool] = {
        "LARGEST": config.largest, "WIDE": config.wide, "KEPT": config.kept,
        "COUNTED": config.counted,
    }  # fmt: skip
    integers: tuple[str, ...] = ("size", "best")
    if config.phase == "rank":
        kinds |= {} if config.searched else {"keys": config.element, "found": config.element}
        integers += _INTEGERS
        constants |= {"SEARCHED": config.searched, "BLOCK": _ROWS, "OTHERS": _OTHERS}
    else:
        integers += ("blocks", "share", *(name for name in _INTEGERS if name[0] in "kx"))
        constants |= {"BLOCK": _BLOCK}
        constants |= {"DIGIT": config.digit} if config.phase != "gather" else {}
    pointers = tuple((name, kinds[name]) for name in names)
    core = f"select.top_k_code:{config.phase}"
    return Entry(core, pointers, integers, constants, warps=4 if config.phase == "rank" else 8)


SELECT_TOP_K = CudaKernel("select.top_k", (TopK,), CudaTopKConfig, _supports, _variants, _entry)
