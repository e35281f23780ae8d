"""`Recurrent` step by step: a chunk is some rows of the batch in one direction.

Of each step a vector of units is computed with all its gates: the sums begin with what the inputs
contribute, take the hidden state element by element against a panel of the weights, and go through
the activations without leaving registers. The state before a step and the one after it lie in two
buffers. A panel holds the weights of a few vectors of units in the order in which they are read,
once for all rows of a chunk, from L2 or L3: that bounds a single row, arithmetic bounds four.
Weights that are no constants are packed by a phase of their own.

Only float32, row-major.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.ir.expr import Expr, apply, arg, const, substitute
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing, Scratch, Temp
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.recurrent.walk_code import GATES, LayerWalk, emit_weights
from saccade.kernels.cpu.refusals import refuse_gaps, refuse_types
from saccade.opdefs.recurrent import Recurrent

__all__ = ["WALK", "WalkConfig"]

_ROWS = 4  # of a chunk, at most: with four gates, half of the registers


@dataclass(frozen=True)
class WalkConfig:
    """The code of one phase.

    Attributes:
        phase: "walk", or "weights", which packs these.
        kind, backwards, linear, coupled, peephole, varying, started: Of the operator.
        activations: Their texts, bounds included.
        rows: Of the batch in a chunk.
        vectors: Of units that are computed side by side.
    """

    phase: str
    kind: str = "rnn"
    activations: tuple[str, str, str] = ("$0", "$0", "$0")
    backwards: bool = False
    linear: bool = False
    coupled: bool = False
    peephole: bool = False
    varying: bool = False
    started: bool = False
    rows: int = 1
    vectors: int = 1


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    floats = call.inputs[: len(call.inputs) - call.op.varying]
    refused = refuse_types((*floats, *call.outputs), {DType.F32})
    return refused or refuse_gaps((*call.inputs, *call.outputs))


def _bounded(e: Expr, clip: float) -> str:
    if not clip:
        return str(e)
    return str(substitute(e, {0: apply("clip", arg(0), const(-clip), const(clip))}))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """Weights where they are not row-major, then the walk."""
    op, x = call.op, call.inputs[0]
    steps, batch, directions, _ = x.shape
    size = call.inputs[1].shape[2]
    # As few rows as give every thread a chunk: then they run beside each other.
    rows = max(1, min(_ROWS, batch * directions // max(1, call.threads)))
    gate, inner, outer = (_bounded(e, op.clip) for e in op.activations)
    config = WalkConfig(
        "walk", op.kind, (gate, inner, outer), op.backwards, op.linear, op.coupled, op.peephole,
        op.varying, op.started, rows, 2 if rows == 1 else 1,
    )  # fmt: skip
    names = ["x", "weights"] + ["hidden"] * op.started
    names += ["cell"] * (op.started and op.kind == "lstm") + ["bias"] * (
        op.kind == "gru" and op.linear
    )
    names += ["peepholes"] * op.peephole + ["lengths"] * op.varying
    operands: dict[str, Operand] = {name: In(i) for i, name in enumerate(names)}
    results = ["states", "last", "last_cell"][: len(call.outputs)]
    operands |= {name: Out(i) for i, name in enumerate(results)}
    operands["space"] = Scratch(4 * 4 * rows * size)
    packing, phases = _panels(call, config.vectors * call.target.lanes)
    operands["weights"] = packing
    blocks = -(-batch // rows)
    integers = {
        "steps": steps, "batch": batch, "directions": directions, "size": size, "blocks": blocks,
    }  # fmt: skip
    return (*phases, Launch(config, operands, integers, directions * blocks))


def _panels(call: CpuCall, width: int) -> tuple[Operand, tuple[Launch, ...]]:
    """The weights in panels of so many units, and what packs them if they are no constants."""
    gates, (directions, _, size) = call.op.gates, call.inputs[1].shape
    panels = -(-size // width)
    nbytes = 4 * directions * panels * size * gates * width
    if call.constant[1]:
        return Packed(Packing("pack_recurrent", (gates, width), (1,), nbytes)), ()
    packed = Temp(0, nbytes)
    integers = {"directions": directions, "panels": panels, "size": size}
    config = WalkConfig("weights", call.op.kind, vectors=width // call.target.lanes)
    places: dict[str, Operand] = {"to": packed, "weights": In(1)}
    return packed, (Launch(config, places, integers, directions * panels),)


def emit(k: KernelBuilder, config: WalkConfig) -> None:
    """The code of one configuration."""
    if config.phase == "walk":
        LayerWalk(k, config).emit()
    else:
        emit_weights(k, GATES[config.kind], config.vectors * k.lanes)


def cost(call: CpuCall) -> float:
    """Microseconds: weights are read anew for each step, out of a cache."""
    op, x = call.op, call.inputs[0]
    steps, batch, directions, _ = x.shape
    units = steps * batch * directions * call.inputs[1].shape[2]
    flops = units * (2.0 * op.gates * call.inputs[1].shape[2] + 100)
    threads = min(call.threads, directions * batch)
    m = machine(call.target)
    return m.roofline(flops, x.nbytes + call.outputs[0].nbytes, max(1, threads), 0.4)


WALK = CpuKernel(
    "recurrent.walk", (Recurrent,), WalkConfig, supports, single_variant(launch, cost), emit
)
