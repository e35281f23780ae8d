"""Names of calls and of variants, the same in every process, for files that people read."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

from saccade.ir import Op
from saccade.ir.serialize import encode_op
from saccade.kernels.base import Call, Launch, View, per_call

__all__ = ["call_key", "config_record", "variant_id"]

_SHOWN = {"op", "inputs", "outputs", "constant", "target"}


@per_call
def call_key(call: Call) -> str:
    """All that a call is, in one line; calls are equal when their keys are."""
    pairs = zip(call.inputs, call.constant, strict=True)
    operands = ", ".join(f"{'const ' if known else ''}{_view(v)}" for v, known in pairs)
    results = ", ".join(map(_view, call.outputs))
    return f"{_op(call.op)}: {operands} -> {results}; {call.target.isa}{_settings(call)}"


def _settings(call: Call) -> str:
    """Whatever else the call holds, whether this code knows it or not."""
    # Equal calls may differ in fields that do not compare, such as `memo`.
    fields = (f for f in dataclasses.fields(call) if f.compare and f.name not in _SHOWN)
    return "".join(f", {f.name} {getattr(call, f.name)}" for f in fields)


def _op(op: Op) -> str:
    """Family, and the attributes that differ from their defaults."""
    plain = {f.name: f.default for f in dataclasses.fields(op)}
    family, encoded = encode_op(op)
    told = [f"{n}={_text(v)}" for n, v in encoded.items() if getattr(op, n) != plain[n]]
    return f"{family}({', '.join(told)})"


def _text(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, dict):
        if "class" in value:
            return _fields(value["class"], value["fields"])
        (inner,) = value.values()
        return _fields(*inner) if "op" in value else _text(inner)
    return str(value)


def _fields(name: str, fields: Mapping[str, object]) -> str:
    """A class with all of its fields: what is inside an operator's attribute."""
    return f"{name}({','.join(f'{field}={_text(v)}' for field, v in fields.items())})"


def _view(view: View) -> str:
    """Type and shape, strides where storage is not row-major, what pads pixels, `View.aligned`."""
    dense, step = [], 1
    for n in reversed(view.shape):
        dense.append(step)
        step *= n
    shape = ",".join(map(str, view.shape))
    strides = "" if view.strides == tuple(reversed(dense)) else f"@[{_join(view.strides)}]"
    room = f"+{view.room}{'z' * view.zeros}" if view.room else ""
    return f"{view.dtype.value}[{shape}]{strides}{room}{'=' * view.aligned}"


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def variant_id(launches: Sequence[Launch]) -> str:
    """A digest of everything that distinguishes one variant for a call from the others."""
    # Of the text: hashes of strings differ between processes.
    return hashlib.sha256(repr(tuple(launches)).encode()).hexdigest()[:16]


def config_record(launches: Sequence[Launch]) -> list[dict[str, object]]:
    """For people: what the code of each phase depends on, and into how many chunks it is cut."""
    return [{**dataclasses.asdict(one.config), "chunks": one.chunks} for one in launches]
