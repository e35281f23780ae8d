"""JSON to records: a value is taken as what the annotations say, or refused with its place."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import TypeVar, cast

__all__ = ["MalformedError", "decode"]

T = TypeVar("T")


class MalformedError(ValueError):
    """Data is not what it should be; the message says where and why."""


def decode(kind: type[T], value: object, where: str = "the report") -> T:
    """A record of a class, from what JSON gave.

    Args:
        kind: A dataclass of numbers, strings, booleans, None, tuples, mappings and others of these.
        value: From `json.loads`.
        where: What errors call it.

    Raises:
        MalformedError: If it does not fit.
    """
    return cast("T", _taken(kind, value, where))


def _taken(kind: object, value: object, where: str) -> object:
    """The value as one of a type; the type as annotations have it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, value, where)
    if origin is tuple:
        return _sequence(inner, value, where)
    if origin is Mapping:
        if not isinstance(value, dict):
            raise MalformedError(f"{where} is no mapping")
        return {name: _taken(inner[1], one, f"{where}[{name!r}]") for name, one in value.items()}
    if origin in (UnionType, typing.Union):
        return _any_of(inner, value, where)
    return _plain(kind, value, where)


@lru_cache(maxsize=64)
def _fields(kind: type) -> dict[str, object]:
    # Annotations are texts, and slow to evaluate.
    hints = typing.get_type_hints(kind)
    assert dataclasses.is_dataclass(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _record(kind: type, value: object, where: str) -> object:
    known = _fields(kind)
    if not isinstance(value, dict) or set(value) != set(known):
        raise MalformedError(f"{where} must have exactly {', '.join(known)}")
    return kind(**{name: _taken(hint, value[name], name) for name, hint in known.items()})


def _sequence(inner: tuple[object, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise MalformedError(f"{where} is no list")
    if inner[-1] is Ellipsis:
        return tuple(_taken(inner[0], one, f"{where}[{i}]") for i, one in enumerate(value))
    if len(value) != len(inner):
        raise MalformedError(f"{where} must have {len(inner)} elements")
    return tuple(_taken(kind, one, where) for kind, one in zip(inner, value, strict=True))


def _any_of(kinds: tuple[object, ...], value: object, where: str) -> object:
    for kind in kinds:
        try:
            return _taken(kind, value, where)
        except MalformedError:
            continue
    wanted = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise MalformedError(f"{where} is {type(value).__name__}, not {wanted}")


def _plain(kind: object, value: object, where: str) -> object:
    # Exactly: True would pass for an integer. JSON writes whole numbers of either kind alike.
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise MalformedError(
            f"{where} is {type(value).__name__}, not {getattr(kind, '__name__', kind)}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise MalformedError(f"{where} is no finite number")
    return value
