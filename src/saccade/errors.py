"""Every error that a user can cause.

All derive from `SaccadeError`, and each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "CacheError",
    "CacheWarning",
    "CompileError",
    "InputError",
    "ModelError",
    "OperandError",
    "OptionError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "PlanError",
    "SaccadeError",
    "Unsupported",
    "UnsupportedModelError",
]


class SaccadeError(Exception):
    """Base of every error that a user of Saccade can cause."""


class ModelError(SaccadeError):
    """The model file is broken, hostile, or not ONNX."""


class InputError(SaccadeError, ValueError):
    """An input's name, shape, dtype or device does not fit the model."""


class OperandError(SaccadeError, RuntimeError):
    """A PyTorch operator was given operands that do not fit it or each other."""


class OptionError(SaccadeError, ValueError):
    """An option, or a combination of options, makes no sense."""


class PlanError(SaccadeError):
    """No plan exists for these sizes."""


class OutOfMemoryError(PlanError, MemoryError):
    """What a run needs for inputs of these sizes is more memory than the system gives."""

    @staticmethod
    def of(arena: int, outputs: int) -> OutOfMemoryError:
        """The error of a plan, for bytes of its arena and of its outputs."""
        return OutOfMemoryError(
            f"inputs of these sizes need {arena + outputs} bytes of memory ({arena} while it runs, "
            f"{outputs} for the outputs), which the system does not give: use smaller ones"
        )


class CompileError(SaccadeError):
    """A kernel could not be compiled."""


class CacheError(SaccadeError):
    """The cache folder cannot be used."""


class CacheWarning(UserWarning):
    """A part of the cache is not used, because others could have written it or it cannot be used.

    Everything works without it, but each start compiles anew.
    """


class OutOfBoundsError(SaccadeError, IndexError):
    """A kernel compiled in checked mode left its buffer (a bug in Saccade)."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One row of the table in `UnsupportedModelError`.

    Attributes:
        operator: ONNX operator, with its domain when that is not the default one.
        dtype: Element type of the first input, as ONNX spells it.
        reason: Why it cannot be run.
        count: How many nodes share operator, dtype and reason.
        nodes: Names of the first few of them.
    """

    operator: str
    dtype: str
    reason: str
    count: int
    nodes: tuple[str, ...]


class UnsupportedModelError(ModelError):
    """The model is well formed but uses what Saccade cannot run; lists everything at once."""

    def __init__(self, rows: Sequence[Unsupported]) -> None:
        self.rows = tuple(rows)
        head = ("operator", "dtype", "count", "reason", "first nodes")
        body = [
            (row.operator, row.dtype, str(row.count), row.reason, ", ".join(row.nodes))
            for row in rows
        ]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [head, *body]
        ]
        total = sum(row.count for row in rows)
        super().__init__(f"{total} node(s) of this model are not supported:\n" + "\n".join(lines))

    def __reduce__(self) -> tuple[type[UnsupportedModelError], tuple[tuple[Unsupported, ...]]]:
        return type(self), (self.rows,)
