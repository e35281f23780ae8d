"""Sequences while a model is imported: lists of what is in them, without a trace in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic
from saccade.ir import DType, Value

__all__ = ["Item", "Result", "Rows", "TensorList"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What a loop put into a sequence, a tensor in each turn.

    Attributes:
        value: The tensors along a new first axis; None within the loop, where they are not known.
    """

    value: Value | None


Item = Value | Symbolic | Rows


@dataclass(frozen=True, slots=True, eq=False)
class TensorList:
    """A sequence of tensors.

    Attributes:
        items: What is in it.
        dtype: Element type of its tensors; None if nothing says it.
    """

    items: tuple[Item, ...]
    dtype: DType | None = None

    def tensors(self) -> list[Value | Symbolic]:
        """The tensors in it.

        Raises:
            Refusal: If data decide how many there are.
        """
        found = [item for item in self.items if not isinstance(item, Rows)]
        if len(found) < len(self.items):
            raise Refusal("a sequence is as long as data decide")
        return found

    def place(self, position: int, past: int = 0) -> int:
        """Where an item is, from the front.

        Args:
            position: From the front, or negative, from the end.
            past: How far behind the last one a position may be.

        Raises:
            Refusal: If that depends on how many turns a loop makes, or if there is no such item.
        """
        count = len(self.items)
        at = position if position >= 0 else position + count
        # Behind rows nobody knows how many items there are: places count from either end.
        passed = self.items[:at] if position >= 0 else self.items[at:]
        if any(isinstance(item, Rows) for item in passed):
            raise Refusal("a place in a sequence depends on how many turns a loop makes")
        if not 0 <= at < count + past:
            raise Refusal(f"there is no item {position} in a sequence of {count}")
        return at

    def with_items(self, items: Sequence[Item]) -> TensorList:
        """Another sequence of such tensors."""
        return TensorList(tuple(items), self.dtype)


Result = Value | Symbolic | TensorList
"""What an ONNX value became."""
