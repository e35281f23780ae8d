"""One ONNX node as an importer sees it: typed attributes, operands, and the way to emit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from saccade.errors import ModelError
from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.refusal import MisfitError, Refusal
from saccade.frontend.onnx.symbolic import Symbolic, whole_dims
from saccade.ir import Array, Dim, Op, Value
from saccade.ir.dim import Affine

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["Importer", "OnnxNode", "Operand"]

Operand = Value | Symbolic


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node.

    Attributes:
        node: As `onnx_ir` holds it.
        operands: Resolved inputs; None where an optional one is absent, or a sequence.
        opset: Version of the node's operator set.
        build: The graph under construction.
        array_of: Reads a tensor attribute.
        given: The operands, sequences among them.
    """

    node: onnx_ir.Node
    operands: tuple[Operand | None, ...]
    opset: int
    build: Builder
    array_of: Callable[[onnx_ir.TensorProtocol], Array]
    given: tuple[Result | None, ...] = ()

    @property
    def name(self) -> str:
        """Name for messages and for the results."""
        return self.node.name or (self.node.outputs[0].name if self.node.outputs else "") or ""

    def _attribute(self, name: str, kind: str) -> onnx_ir.Attr | None:
        """An attribute that holds something; None for a reference that nobody filled, too."""
        attribute = self.node.attributes.get(name)
        if attribute is None:
            return None
        if attribute.type.name != kind:
            raise ModelError(
                f"attribute {name!r} of {self.node.op_type} {self.name!r} is of type "
                f"{attribute.type.name}, not {kind}"
            )
        # As if the attribute were not there: its default holds.
        return None if attribute.value is None else attribute

    def integer(self, name: str, default: int) -> int:
        """An INT attribute."""
        found = self._attribute(name, "INT")
        return default if found is None else found.as_int()

    def flag(self, name: str, *, default: bool = False) -> bool:
        """An INT attribute that is 0 or 1.

        Raises:
            ModelError: If it is another number.
        """
        value = self.integer(name, int(default))
        if value not in (0, 1):
            raise self.broken(f"{name} is {value}, neither 0 nor 1")
        return bool(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An INTS attribute."""
        found = self._attribute(name, "INTS")
        return None if found is None else tuple(found.as_ints())

    def number(self, name: str, default: float) -> float:
        """A FLOAT attribute."""
        found = self._attribute(name, "FLOAT")
        return default if found is None else found.as_float()

    def finite(self, name: str, default: float) -> float:
        """A FLOAT attribute that is neither NaN nor infinite.

        Raises:
            ModelError: If it is.
        """
        value = self.number(name, default)
        if not isfinite(value):
            raise self.broken(f"{name} is {value}")
        return value

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """A FLOATS attribute."""
        found = self._attribute(name, "FLOATS")
        return None if found is None else tuple(found.as_floats())

    def text(self, name: str, default: str) -> str:
        """A STRING attribute."""
        found = self._attribute(name, "STRING")
        if found is None:
            return default
        # Text in a file need not be UTF-8; what is no known word is refused by the importer.
        value: object = found.value
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def tensor(self, name: str) -> Array | None:
        """A TENSOR attribute."""
        found = self._attribute(name, "TENSOR")
        return None if found is None else self.array_of(found.value)

    def has(self, index: int) -> bool:
        """Whether the operand is there."""
        return index < len(self.operands) and self.operands[index] is not None

    def operand(self, index: int) -> Operand:
        """An operand, whatever is known of it.

        Raises:
            ModelError: If it is absent.
        """
        if not self.has(index):
            raise ModelError(f"{self.node.op_type} {self.name!r} lacks its input {index}")
        found = self.operands[index]
        assert found is not None
        return found

    def listed(self, index: int) -> TensorList:
        """An operand that is a sequence.

        Raises:
            ModelError: If it is none.
        """
        found = self.given[index] if index < len(self.given) else None
        if not isinstance(found, TensorList):
            raise self.broken(f"its input {index} is no sequence")
        return found

    def value(self, index: int) -> Value:
        """An operand as a tensor of the graph.

        Raises:
            Refusal: If it is made of more sizes than a tensor of them may have.
        """
        return self.as_value(self.operand(index))

    def as_value(self, found: Operand) -> Value:
        """What became of a value, as a tensor of the graph; see `value`."""
        if isinstance(found, Symbolic):
            size = self.build.found(found, self.name)
            if size is None:
                raise Refusal(self.build.untold or "computes with symbolic sizes as data")
            return size
        return found

    def constant(self, index: int, what: str) -> Array:
        """The array of an operand that has to be known, in float32 where it is float16.

        Raises:
            Refusal: If it is not.
        """
        found = self.operand(index)
        array = None if isinstance(found, Symbolic) else self.build.array(found)
        if array is None:
            raise Refusal(f"{what} must be a constant")
        return array

    def content(self, index: int) -> Symbolic | None:
        """The elements of an operand as far as they are known; None if computed at run time."""
        return self.build.content(self.operand(index))

    def dims(self, index: int, what: str) -> tuple[Dim, ...]:
        """The elements of an integer operand as dims.

        Raises:
            Refusal: If they depend on data.
        """
        content = self.content(index)
        if content is None:
            raise self.depends(what)
        return whole_dims(content)

    def depends(self, what: str) -> Refusal:
        """That data decide something, with what kept sizes from deciding it, if anything did."""
        untold = self.build.untold
        return Refusal(f"{what} depends on data" + (f", perhaps as {untold}" if untold else ""))

    def integers_of(self, index: int, what: str) -> tuple[int, ...]:
        """The elements of an integer operand that must not depend on symbols either."""
        found = self.dims(index, what)
        known = tuple(int(element) for element in found if not isinstance(element, Affine))
        if len(known) < len(found):
            raise Refusal(f"{what} must not depend on the size of the input")
        return known

    def shape(self, index: int) -> tuple[Dim, ...]:
        """Shape of an operand."""
        return self.operand(index).shape

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis.

        Raises:
            ModelError: If there is no such axis.
        """
        if not -rank <= axis < rank:
            raise ModelError(f"{self.node.op_type} {self.name!r}: no axis {axis} in rank {rank}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Non-negative axes, sorted, none twice."""
        # Negative axes may name an axis twice, too, so that they are counted from the front first.
        found = sorted(self.axis(axis, rank) for axis in axes)
        if len(set(found)) != len(found):
            raise ModelError(f"{self.node.op_type} {self.name!r}: axes {list(axes)} repeat")
        return tuple(found)

    def emit(self, op: Op, *inputs: Value) -> Value:
        """Apply an operator with one result."""
        (output,) = self.build.emit(op, inputs, self.name)
        return output

    def broken(self, message: str) -> ModelError:
        """The error for a node that contradicts itself."""
        return MisfitError(f"{self.node.op_type} {self.name!r}: {message}")


Importer = Callable[[OnnxNode], Sequence[Result | None]]
"""The results; None for an optional value that is not there."""
