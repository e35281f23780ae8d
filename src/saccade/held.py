"""What a run holds that no memory of a plan can.

Strings, sequences, optional values, elements of types that Saccade does not have, and tensors whose
sizes nobody knows beforehand.

In graphs, plans and programs a number stands for such an object (int64, no axes): its handle, which
steps are given when a model is imported, and inputs by their places. The objects themselves are the
run's. Only steps that ONNX's reference implementation computes know of them, and they run on the
thread that the run was begun on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import numpy as np

from saccade.errors import InputError, LaunchError
from saccade.signature import TensorInfo

__all__ = ["FIRST_OF_STEPS", "get", "given", "holding", "put"]

FIRST_OF_STEPS = 1 << 20
"""Handles from here on are those of steps; a model has fewer inputs."""

_HELD: ContextVar[dict[int, object] | None] = ContextVar("saccade_held", default=None)


@contextmanager
def holding(objects: Mapping[int, object] | None = None) -> Iterator[None]:
    """A run's objects, until it ends; within a run that holds some already, that run's.

    Args:
        objects: Those that the caller gave, by handle; None where there are none of his.
    """
    if objects is None and _HELD.get() is not None:
        yield
        return
    token = _HELD.set(dict(objects or {}))
    try:
        yield
    finally:
        _HELD.reset(token)


def given(
    inputs: Sequence[TensorInfo], values: Mapping[str, object]
) -> AbstractContextManager[None]:
    """`holding` of what the caller gave, by the places of its inputs.

    Args:
        inputs: Of the model; the `dtype` of those that are held is the type: `string`,
            `sequence(float32)`, …
        values: Of all inputs, by name. An array or what makes one, a list of these for a sequence,
            None for an absent optional value.

    Raises:
        InputError: If one is of another type.
    """
    return holding(
        {
            place: _taken(info, info.dtype, values[info.name])
            for place, info in enumerate(inputs)
            if info.held
        }
    )


def get(handle: int) -> object:
    """The object that a handle stands for.

    Raises:
        LaunchError: If no run holds it.
    """
    objects = _HELD.get()
    if objects is None or handle not in objects:
        raise LaunchError(f"no run holds the object {handle}")
    return objects[handle]


def put(handle: int, value: object) -> None:
    """Let a handle stand for an object, until the run ends.

    Raises:
        LaunchError: If there is no run.
    """
    objects = _HELD.get()
    if objects is None:
        raise LaunchError(f"there is no run to hold the object {handle}")
    objects[handle] = value


def _taken(info: TensorInfo, kind: str, value: object) -> object:
    """What the caller gave for an input, as ONNX's reference implementation takes it."""
    outer, _, inner = kind.partition("(")
    if outer == "optional":
        return None if value is None else _taken(info, inner[:-1], value)
    if outer == "sequence":
        if not isinstance(value, (list, tuple)):
            raise InputError(f"input {info.name!r} is {info.dtype}: give a list")
        return [_taken(info, inner[:-1], one) for one in value]
    if inner:
        raise InputError(f"input {info.name!r} is {info.dtype}, which cannot be given")
    array = np.asarray(value)
    if kind == "string":
        if array.dtype.kind in "USO":
            return array.astype(object)
        raise InputError(f"input {info.name!r} must be strings, given is {array.dtype}")
    if array.dtype.name != kind:
        raise InputError(f"input {info.name!r} must be {kind}, given is {array.dtype}")
    return array
