"""Plans as JSON, and back: `load(dump(plan)) == plan`.

Operators are written as class name and fields, expressions as their text. A config is read back
through the class that its kernel names, a record inside it through the type of its field.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict

from saccade.devices import device_named
from saccade.errors import PlanError
from saccade.ir import DType
from saccade.ir.serialize import decode_op, encode_op
from saccade.kernels.base import Config, Packing, View
from saccade.kernels.machine import Machine
from saccade.layout.types import Searched
from saccade.plan.types import (
    Argument,
    Constant,
    Cut,
    Phase,
    Plan,
    Port,
    Ref,
    Role,
    RowCount,
    Slot,
    Step,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["dump", "load"]

_VERSION = 8  # of the format; no other is read
# What reading any text may end in; deep nesting is a RecursionError.
_MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)


_SlotRecord = (
    tuple[list[int], str, list[int], list[int]]
    | tuple[list[int], str, list[int], list[int], int, bool]
)
"""Place, type, shape, strides; of padded ones their room, and whether it holds zeros."""


class _PhaseRecord(TypedDict):
    """A phase in JSON; each argument is its name, its role and its place."""

    config: dict[str, object]
    arguments: list[tuple[str, str, list[int]]]
    integers: dict[str, int | list[int]]
    chunks: int


class _StepRecord(TypedDict):
    """A step in JSON; bodies are plans, as texts."""

    name: str
    op: list[object]
    inputs: list[_SlotRecord]
    outputs: list[_SlotRecord]
    kernel: str | None
    phases: list[_PhaseRecord]
    estimate: float
    reasons: list[str]
    note: str
    measured: bool
    least_flops: float | None
    bodies: list[str]
    rows: tuple[int, int, list[int], list[int], list[int], list[int]] | None


def dump(plan: Plan) -> str:
    """The plan as JSON."""
    record = {
        "version": _VERSION,
        "sizes": dict(plan.sizes),
        "threads": plan.threads,
        "isa": plan.isa,
        "inputs": [_values(port) for port in plan.inputs],
        "outputs": [_values(port) for port in plan.outputs],
        "constants": [_constant(constant) for constant in plan.constants],
        "steps": [_step(step) for step in plan.steps],
        "arena_bytes": plan.arena_bytes,
        "live_bytes": plan.live_bytes,
        "notes": plan.notes,
        "speeds": _values(plan.speeds),
        "exact": plan.exact,
        "searched": plan.searched and _values(plan.searched),
        "refused": plan.refused,
        "counts": plan.counts,
        "cuts": [_values(cut) for cut in plan.cuts],
        "device": plan.device,
    }
    # Asked about configs alone: all else is of types that JSON knows.
    return json.dumps(record, default=_named)


def load(text: str) -> Plan:
    """The plan that `dump` wrote.

    Raises:
        PlanError: If the text is not a plan of this version.
    """
    try:
        record = json.loads(text)
        if record["version"] != _VERSION:
            raise PlanError(f"a plan of version {record['version']}, this is version {_VERSION}")
        return Plan(
            record["sizes"],
            record["threads"],
            record["isa"],
            tuple(_read_port(*port) for port in record["inputs"]),
            tuple(_read_port(*port) for port in record["outputs"]),
            tuple(_read_constant(*entry) for entry in record["constants"]),
            tuple(_read_step(entry, record["device"]) for entry in record["steps"]),
            record["arena_bytes"],
            record["live_bytes"],
            tuple(record["notes"]),
            Machine(*record["speeds"]),
            record["exact"],
            record["searched"] and Searched(*record["searched"]),
            tuple(record["refused"]),
            record["counts"],
            tuple(Cut(*cut) for cut in record["cuts"]),
            device=record["device"],
        )
    except _MALFORMED as error:
        raise PlanError(f"this is not a plan: {error!r}") from error


def _read_port(name: str, dtype: str, shape: list[int]) -> Port:
    return Port(name, dtype, tuple(shape))


def _constant(constant: Constant) -> list[object]:
    packing = constant.packing
    return [constant.sources, packing and list(packing), constant.nbytes]


def _read_constant(
    sources: list[str], packing: tuple[str, list[object], list[int], int] | None, nbytes: int
) -> Constant:
    if packing is None:
        return Constant(tuple(sources), None, nbytes)
    function, parameters, inputs, size = packing
    how = Packing(function, tuple(map(_tuples, parameters)), tuple(inputs), size)
    return Constant(tuple(sources), how, nbytes)


def _step(step: Step) -> dict[str, object]:
    return {
        "name": step.name,
        "op": encode_op(step.op),
        "inputs": [_slot(slot) for slot in step.inputs],
        "outputs": [_slot(slot) for slot in step.outputs],
        "kernel": step.kernel,
        "phases": [_phase(phase) for phase in step.phases],
        "estimate": step.estimate,
        "reasons": step.reasons,
        "note": step.note,
        "measured": step.measured,
        "least_flops": step.least_flops,
        "bodies": list(map(dump, step.bodies)),
        "rows": step.rows,
    }


def _read_step(entry: _StepRecord, device: str) -> Step:
    kernel = entry["kernel"]
    return Step(
        entry["name"],
        decode_op(entry["op"], device_named(device).operators),
        tuple(_read_slot(*slot) for slot in entry["inputs"]),
        tuple(_read_slot(*slot) for slot in entry["outputs"]),
        kernel,
        () if kernel is None else tuple(_read_phase(device, kernel, p) for p in entry["phases"]),
        entry["estimate"],
        tuple(entry["reasons"]),
        entry["note"],
        entry["measured"],
        entry["least_flops"],
        tuple(map(load, entry["bodies"])),
        entry["rows"] and _read_rows(*entry["rows"]),
    )


def _read_rows(source: int, known: int, *lists: list[int]) -> RowCount:
    inputs, outputs, readers, whole = map(tuple, lists)
    return RowCount(source, known, inputs, outputs, readers, whole)


def _slot(slot: Slot) -> list[object]:
    view = slot.view
    rest = [view.room, view.zeros, view.aligned] if view.room or view.aligned else []
    return [list(slot.ref), view.dtype.value, view.shape, view.strides, *rest]


def _read_slot(
    ref: list[int], dtype: str, shape: list[int], strides: list[int], room: int = 0, *flags: bool
) -> Slot:
    return Slot(Ref(*ref), View(DType(dtype), tuple(shape), tuple(strides), room, *flags))


def _phase(phase: Phase) -> dict[str, object]:
    return {
        "config": phase.config,
        "arguments": [(a.name, a.role.value, list(a.ref)) for a in phase.arguments],
        "integers": phase.integers,
        "chunks": phase.chunks,
    }


def _read_phase(device: str, kernel: str, entry: _PhaseRecord) -> Phase:
    config = _record(device_named(device).kernel(kernel).config, entry["config"])
    arguments = tuple(Argument(n, Role(role), Ref(*ref)) for n, role, ref in entry["arguments"])
    integers = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry["integers"].items()
    }
    return Phase(config, arguments, integers, entry["chunks"])


# Annotations are texts, and slow to evaluate.
@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, type]:
    return typing.get_type_hints(kind)


@lru_cache(maxsize=64)
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _values(record: DataclassInstance) -> list[object]:
    """Its fields, not copied all the way down, which would take as long as planning."""
    return [getattr(record, name) for name in _names(type(record))]


def _named(record: DataclassInstance) -> dict[str, object]:
    """A config, or a record inside one."""
    return dict(zip(_names(type(record)), _values(record), strict=True))


def _record(kind: type, fields: dict[str, object]) -> Config:
    """A config, or a record inside one."""
    hints = _hints(kind)
    made: Config = kind(
        **{
            name: _record(_class(hints[name]), value) if isinstance(value, dict) else _tuples(value)
            for name, value in fields.items()
        }
    )
    return made


def _class(hint: type) -> type:
    """The record that a field holds, which may be one or None."""
    return next((one for one in typing.get_args(hint) if one is not type(None)), hint)


def _tuples(value: object) -> object:
    """JSON knows no tuples; plans hold no lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
