"""`Recurrent` step by step: a launch for each, programs for some units of some rows.

    keep        of a walk without steps: the first states are the last ones
    gates       of a gru whose reset gate comes before the product: update gate, and reset state
    step        all gates of some units, and the next states

The sums begin with what the inputs contribute; of all units a program reads the whole state before
the step, of the weights those of its units. States are kept in float32, two of them, as others
still read the one before; cells belong to one program. Nothing depends on which programs run first.

Floor: the weights out of the L2 cache for each step, and a launch's latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from saccade.backends.cuda.codegen.expressions import TritonLines, missing_operator
from saccade.ir.expr import Expr, apply, arg, const, parse, substitute
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, operation_micros
from saccade.kernels.cuda.reduce.axis_loops import power_above
from saccade.kernels.cuda.refusals import refuse_extents, refuse_gaps
from saccade.opdefs import Recurrent

__all__ = ["RECURRENT_WALK", "CudaWalkConfig"]

_TERMS = 64  # of a sum that a program adds at a time
_LATENCY = 1.0  # microseconds of each time that it does (an estimate)
_KEEP = 1024  # elements of a program that keeps states
_INTEGERS = ("time", "steps", "batch", "directions", "size")
_STORED = (
    "x", "weights", "before", "cell", "bias", "peepholes", "states", "after", "cell_after",
)  # fmt: skip
_TILES = ((1, 16), (1, 8), (2, 16), (4, 16), (8, 8))
"""Rows of the batch and units of a program."""


@dataclass(frozen=True)
class CudaWalkConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: The Triton function.
        kind, backwards, linear, coupled: Of the operator.
        optional: Whether there are peepholes and lengths.
        activations: Their texts, bounds included.
        elements: Of the pointers that `_STORED` names, in that order; of what is kept its two.
        started: Whether there is a state before the step.
        tile: Rows and units of a program.
    """

    phase: str
    kind: str
    elements: tuple[str, ...]
    backwards: bool = False
    linear: bool = False
    coupled: bool = False
    optional: tuple[bool, bool] = (False, False)
    activations: tuple[str, str, str] = ("$0", "$0", "$0")
    started: bool = True
    tile: tuple[int, int] = (1, 1)


def _supports(call: CudaCall) -> str | None:
    op: Recurrent = call.op
    floats = call.inputs[: len(call.inputs) - op.varying]
    if any(view.dtype not in FLOATS for view in (*floats, *call.outputs)):
        return "element types"
    missing = filter(None, (missing_operator(e, "float32") for e in op.activations))
    for one in missing:
        return f"{one} of float32"
    return refuse_gaps((*call.inputs, *call.outputs)) or refuse_extents(call)


def _bounded(e: Expr, clip: float) -> str:
    if not clip:
        return str(e)
    return str(substitute(e, {0: apply("clip", arg(0), const(-clip), const(clip))}))


def _variants(call: CudaCall) -> Iterator[Variant]:
    _, batch, _, _ = call.inputs[0].shape
    size = call.inputs[1].shape[2]
    rows, units = power_above(batch), power_above(size)
    tiles = {(min(a, rows), min(b, units)) for a, b in _TILES}
    for micros, tile in sorted((_micros(call, tile), tile) for tile in tiles):
        yield Variant(micros, partial(_launches, call, tile))


def _programs(call: CudaCall, tile: tuple[int, int]) -> int:
    _, batch, directions, _ = call.inputs[0].shape
    return directions * -(-batch // tile[0]) * -(-call.inputs[1].shape[2] // tile[1])


def _micros(call: CudaCall, tile: tuple[int, int]) -> float:
    op, (steps, batch, directions, _) = call.op, call.inputs[0].shape
    weights, size = call.inputs[1], call.inputs[1].shape[2]
    read = cached_micros(call, weights.nbytes * -(-batch // tile[0]), _programs(call, tile))
    done = operation_micros(call, 2 * op.gates * size * size * batch * directions)
    waited = _LATENCY * -(-size // _TERMS)
    two = 2 if op.kind == "gru" and not op.linear else 1
    return LAUNCH + steps * (two * (LAUNCH + waited) + max(read, done))


def _operands(call: CudaCall) -> dict[str, Operand]:
    """The call's operands by name."""
    op: Recurrent = call.op
    names = ["x", "weights"] + ["hidden"] * op.started
    names += ["cell"] * (op.started and op.kind == "lstm")
    names += ["bias"] * (op.kind == "gru" and op.linear)
    names += ["peepholes"] * op.peephole + ["lengths"] * op.varying
    return {name: In(i) for i, name in enumerate(names)}


def _launches(call: CudaCall, tile: tuple[int, int]) -> tuple[Launch, ...]:
    op: Recurrent = call.op
    given = _operands(call)
    steps, batch, directions, _ = call.inputs[0].shape
    size = call.inputs[1].shape[2]
    nothing: Operand = In(0)  # what is not there has no pointer of its own
    if steps == 0:
        return _kept(call, given)
    nbytes = max(16, 4 * directions * batch * size)
    states, cells = (Temp(0, nbytes), Temp(1, nbytes)), Temp(2, nbytes)
    gates = {"update": Temp(3, nbytes), "reset": Temp(4, nbytes)}
    own = {name: given.get(name, nothing) for name in ("bias", "peepholes", "lengths")}
    activations = tuple(_bounded(e, op.clip) for e in op.activations)
    whole = CudaWalkConfig(
        "step", op.kind, (), op.backwards, op.linear, op.coupled,
        (op.peephole, op.varying), (activations[0], activations[1], activations[2]), tile=tile,
    )  # fmt: skip
    launches = []
    for time in range(steps):
        first, last = time == 0, time == steps - 1
        before = given.get("hidden", nothing) if first else states[time % 2]
        cell = given.get("cell", nothing) if first else cells
        after, cell_after = states[(time + 1) % 2], cells
        integers = {
            "time": time, "steps": steps, "batch": batch, "directions": directions, "size": size,
        }  # fmt: skip
        shared: dict[str, Operand] = {
            "x": given["x"], "weights": given["weights"], "before": before, **gates,
        }  # fmt: skip
        operands = {
            **shared, "cell": cell, **own, "states": Out(0), "after": Out(1) if last else after,
            "cell_after": (Out(2) if last and op.kind == "lstm" else cell_after),
        }  # fmt: skip
        elements = tuple(_element(call, operands[name]) for name in _STORED)
        config = replace(whole, elements=elements, started=op.started or not first)
        if op.kind == "gru" and not op.linear:
            early = replace(config, phase="gates")
            launches.append(Launch(early, shared, integers, _programs(call, tile)))
        launches.append(Launch(config, operands, integers, _programs(call, tile)))
    return tuple(launches)


def _element(call: CudaCall, operand: Operand) -> str:
    """Of a pointer; what is kept from step to step is float32."""
    if isinstance(operand, In):
        return element_of(call.inputs[operand.index])
    return element_of(call.outputs[operand.index]) if isinstance(operand, Out) else "fp32"


def _kept(call: CudaCall, given: dict[str, Operand]) -> tuple[Launch, ...]:
    """Each last state is a first one, or zeros."""
    op: Recurrent = call.op
    launches = []
    for name, index in (("hidden", 1), ("cell", 2))[: len(call.outputs) - 1]:
        count = call.outputs[index].size
        operands: dict[str, Operand] = {"before": given.get(name, In(0)), "after": Out(index)}
        elements = tuple(_element(call, one) for one in operands.values())
        config = CudaWalkConfig("keep", op.kind, elements, started=op.started)
        launches.append(Launch(config, operands, {"count": count}, -(-count // _KEEP)))
    return tuple(launches)


def _entry(config: CudaWalkConfig) -> Entry:
    core = f"recurrent.walk_code:{config.phase}"
    if config.phase == "keep":
        pointers = tuple(zip(("before", "after"), config.elements, strict=True))
        constants: dict[str, int | bool | str] = {"STARTED": config.started, "BLOCK": _KEEP}
        return Entry(core, pointers, ("count",), constants)
    kinds = dict(zip(_STORED, config.elements, strict=True))
    kinds |= {"update": "fp32", "reset": "fp32"}
    kinds["lengths"] = "i64" if config.optional[1] else kinds["x"]
    names: tuple[str, ...] = ("x", "weights", "before", "update", "reset")
    constants = {
        "BACKWARDS": config.backwards, "STARTED": config.started,
        "ROWS": config.tile[0], "UNITS": config.tile[1], "TERMS": _TERMS,
    }  # fmt: skip
    functions = {"GATE": _function("gate", config.activations[0])}
    if config.phase == "step":
        names += ("cell", "bias", "peepholes", "lengths", "states", "after", "cell_after")
        constants |= {
            "KIND": config.kind, "LINEAR": config.linear, "COUPLED": config.coupled,
            "PEEPHOLES": config.optional[0], "VARYING": config.optional[1],
        }  # fmt: skip
        functions |= {
            "INNER": _function("inner", config.activations[1]),
            "OUTER": _function("outer", config.activations[2]),
        }
    pointers = tuple((name, kinds[name]) for name in names)
    return Entry(core, pointers, _INTEGERS, constants, functions, warps=4)


def _function(name: str, text: str) -> str:
    """An activation of a block."""
    lines = TritonLines({0: "x"})
    result = lines.expression(parse(text))
    body = "".join(f"    {line}\n" for line in lines.lines)
    return f"@triton.jit\ndef {name}(x):\n{body}    return {result}\n"


RECURRENT_WALK = CudaKernel(
    "recurrent.walk", (Recurrent,), CudaWalkConfig, _supports, _variants, _entry
)
