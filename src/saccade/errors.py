"""Every error that a user can cause.

All derive from `SaccadeError`, and each message says what is wrong, where, and what to do. Messages
quote files, which anyone may have written: whatever a terminal would obey is escaped in their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saccade.memory import free_bytes, size_text

__all__ = [
    "CacheError",
    "CompileError",
    "DeviceError",
    "InputError",
    "LaunchError",
    "LoopError",
    "ModelError",
    "OperandError",
    "OptionError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "PlanError",
    "SaccadeError",
    "Unsupported",
    "UnsupportedModelError",
    "meant",
    "printable",
]

_LONGEST_NAME, _LONGEST_CELL, _LONGEST_MESSAGE = 200, 100, 4000  # characters
_MOST_ROWS = 200


def printable(text: object, longest: int = _LONGEST_NAME) -> str:
    r"""Text from a file as one line that is safe to show.

    Control characters, line breaks, marks that turn the direction of writing, lone surrogates and
    whatever else does not print are spelled as Python would (`\x1b`, `\n`, `\u202e`).

    Args:
        text: A name, or anything with a text.
        longest: Characters of the result at most; of longer texts the middle is left out.
    """
    line = str(text)
    # Before anything is escaped: text from a file may have any length.
    if len(line) > longest:
        half = (longest - 1) // 2
        line = f"{line[:half]}…{line[-half:]}"
    if line.isprintable():
        return line
    escaped = "".join(c if c.isprintable() else _escape(c) for c in line)
    # Escapes are longer than what they stand for.
    return escaped if len(escaped) <= longest else escaped[: longest - 1] + "…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def meant(name: object, known: Iterable[str]) -> str:
    """What to say behind a name that is none of those: the nearest of them, if one is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - for who mistypes

    near = get_close_matches(name, list(known), 1) if isinstance(name, str) else ()
    return f" (is {near[0]} meant?)" if near else ""


class SaccadeError(Exception):
    """Base of every error that a user of Saccade can cause."""

    def __str__(self) -> str:
        """The message as one line; `args` has it as it was given."""
        return printable(super().__str__(), _LONGEST_MESSAGE)


class ModelError(SaccadeError):
    """The model file is broken, hostile, or not ONNX."""


class InputError(SaccadeError, ValueError):
    """An input's name, shape, dtype or device does not fit the model."""


class OperandError(SaccadeError, RuntimeError):
    """A PyTorch operator was given operands that do not fit it or each other."""

    def __str__(self) -> str:
        """The message as it is: no operator quotes a file, and some say what torchvision says."""
        return Exception.__str__(self)


class OptionError(SaccadeError, ValueError):
    """An option, or a combination of options, makes no sense."""


class PlanError(SaccadeError):
    """No plan exists for these sizes."""


class OutOfMemoryError(PlanError, MemoryError):
    """What a run needs for inputs of these sizes is more memory than the system gives."""

    @staticmethod
    def of(arena: int, outputs: int) -> OutOfMemoryError:
        """The error of a plan, for bytes of its arena and of its outputs."""
        free, whole = free_bytes(), arena + outputs
        missing = free is not None and whole > free
        return OutOfMemoryError(
            f"inputs of these sizes need {whole} bytes of memory ({arena} while it runs, "
            f"{outputs} for the outputs), which the system does not give: use smaller ones"
            + (f"; {size_text(whole - (free or 0))} are missing" if missing else "")
        )


class CompileError(SaccadeError):
    """A kernel could not be compiled."""


class DeviceError(SaccadeError, RuntimeError):
    """The device cannot be used: it, its driver or what reaches them is missing, or has failed."""


class LaunchError(SaccadeError):
    """The arguments of a kernel do not fit its code (a bug in Saccade)."""


class LoopError(SaccadeError, RuntimeError):
    """A loop whose end data decide goes on beyond a bound of `Limits`."""


class CacheError(SaccadeError):
    """The cache folder cannot be used."""


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
        remedy: What could be done.
    """

    operator: str
    dtype: str
    reason: str
    count: int
    nodes: tuple[str, ...]
    remedy: str = ""


class UnsupportedModelError(ModelError):
    """The model is well formed but uses what Saccade cannot run; lists everything at once."""

    def __init__(self, rows: Sequence[Unsupported]) -> None:
        self.rows = tuple(rows)
        super().__init__(_table(self.rows))

    def __str__(self) -> str:
        """The table: a line for each row, whose cells are escaped."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[UnsupportedModelError], tuple[object, ...]]:
        # Children send errors as pickles, which are made anew from `args`: those hold the table.
        return type(self), (self.rows,)


class NeedsValuesError(UnsupportedModelError):
    """The same, but that all of it may be run once the values, or sizes, of inputs are known.

    Attributes:
        names: Of inputs whose values have to be known.
        signature: Of the model, as `Signature.to_json` spells it.
        sized: Whether the sizes of the other inputs have to be.
    """

    def __init__(
        self,
        rows: Sequence[Unsupported],
        names: tuple[str, ...],
        signature: str,
        sized: bool = False,
    ) -> None:
        super().__init__(rows)
        self.names, self.signature, self.sized = names, signature, sized

    def __reduce__(self) -> tuple[type[NeedsValuesError], tuple[object, ...]]:
        return type(self), (self.rows, self.names, self.signature, self.sized)


def _table(rows: Sequence[Unsupported]) -> str:
    head = ("operator", "dtype", "count", "reason", "what could be done", "first nodes")
    # A file may have a row for each of its nodes.
    body = [_cells(row) for row in rows[:_MOST_ROWS]]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *body]
    ]
    if len(rows) > _MOST_ROWS:
        lines.append(f"and {len(rows) - _MOST_ROWS} more rows; see the error's `rows`")
    total = sum(row.count for row in rows)
    return f"{total} node(s) of this model are not supported:\n" + "\n".join(lines)


def _cells(row: Unsupported) -> tuple[str, ...]:
    nodes = ", ".join(printable(name, _LONGEST_CELL) for name in row.nodes)
    cells = (printable(text, _LONGEST_CELL) for text in (row.operator, row.dtype))
    texts = (printable(text, 4 * _LONGEST_CELL) for text in (row.reason, row.remedy))
    return (*cells, str(row.count), *texts, nodes)
