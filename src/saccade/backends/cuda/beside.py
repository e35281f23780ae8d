"""Turns that do not wait for each other, side by side: the plan of several turns of a body.

A loop that only gathers has turns that know nothing of each other: a detector pastes its masks one
by one, by eighty small steps each. Several turns are one plan here, each step as often as there are
turns, whose launches are alike and become one (`batches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saccade.backends.cuda.gpus import gpu
from saccade.backends.cuda.runtime.lengths import NUMBER_BYTES
from saccade.backends.cuda.runtime.turns import TURN_BYTES
from saccade.ir import DType
from saccade.kernels.bind import Ref
from saccade.opdefs import Loop
from saccade.plan import Plan, Port, Slot, Step

__all__ = ["bodies_of", "turns_beside", "whole_plans"]

_ALIGNMENT = 256  # bytes, of whatever lies in the arena
_MOST = 32
"""Turns side by side (by eye: what launches take is shared by so many)."""
_SHARE = 128
"""Of a GPU's memory they may take one part of so many together: on an H200 1.1 GB, six turns of
Keypoint R-CNN, which takes 4.9 ms then, 20.5 with one, 4.2 with twelve."""
_STEPS = 1024  # of all of them: each costs a new size 0.1 ms to plan (by eye)


def turns_beside(step: Step) -> int:
    """How many turns of a loop run side by side; 1 where they wait for each other."""
    if not isinstance(step.op, Loop) or step.op.carried or len(step.bodies) != 1:
        return 1
    (body,) = step.bodies
    if not step.op.steady or any(one.kernel is None for one in body.steps):
        return 1
    most = gpu(body.speeds.name).memory // _SHARE
    room = step.op.room if isinstance(step.op.room, int) else _MOST
    each = body.arena_bytes + body.output_bytes + NUMBER_BYTES * body.counts + 2 * _ALIGNMENT
    return max(1, min(_MOST, room, most // each, _STEPS // max(1, len(body.steps))))


def bodies_of(step: Step) -> tuple[Plan, ...]:
    """The plans that a step's turns run: of several turns where these are side by side."""
    turns = turns_beside(step)
    return step.bodies if turns == 1 else (_several(step.bodies[0], turns),)


def whole_plans(plan: Plan) -> Sequence[Plan]:
    """The plan, and those that are run for the bodies in it."""
    inside = (part for step in plan.steps for body in bodies_of(step) for part in whole_plans(body))
    return [plan, *inside]


def _several(body: Plan, turns: int) -> Plan:
    """So many turns of a body as one plan.

    Its first input holds the numbers of the turns, `TURN_BYTES` apart; each output has a first axis
    of turns. What steps find out stays in the arena.
    """
    results = len(body.outputs) - body.counts
    arena = _up(body.arena_bytes)
    pitch = arena + _up(NUMBER_BYTES * body.counts)
    first = body.output_base

    def moved(ref: Ref, turn: int) -> Ref:
        base = ref.base
        if base == 0:
            return ref._replace(offset=ref.offset + turn * pitch)
        if base == 1:
            return ref._replace(offset=ref.offset + turn * TURN_BYTES)
        if base < first:
            return ref
        if base < first + results:
            nbytes = body.outputs[base - first].nbytes
            return ref._replace(offset=ref.offset + turn * nbytes)
        if base < body.constant_base:
            number = arena + NUMBER_BYTES * (base - first - results)
            return Ref(0, turn * pitch + number + ref.offset, ref.nbytes)
        return ref._replace(base=base - body.counts)

    def slots(each: Sequence[Slot], turn: int) -> tuple[Slot, ...]:
        return tuple(slot._replace(ref=moved(slot.ref, turn)) for slot in each)

    def of_turn(step: Step, turn: int) -> Step:
        phases = tuple(
            phase._replace(
                arguments=tuple(a._replace(ref=moved(a.ref, turn)) for a in phase.arguments)
            )
            for phase in step.phases
        )
        return replace(
            step, inputs=slots(step.inputs, turn), outputs=slots(step.outputs, turn),
            phases=phases, rows=None,
        )  # fmt: skip

    numbers = Port(body.inputs[0].name, DType.I64.value, (turns, TURN_BYTES // 8))
    return replace(
        body,
        inputs=(numbers, *body.inputs[1:]),
        outputs=tuple(replace(port, shape=(turns, *port.shape)) for port in body.outputs[:results]),
        steps=tuple(of_turn(step, turn) for step in body.steps for turn in range(turns)),
        arena_bytes=turns * pitch,
        live_bytes=turns * pitch,
        counts=0,
        cuts=(),
    )


def _up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
