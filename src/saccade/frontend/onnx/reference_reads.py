"""What a node reads that ONNX's reference implementation is to compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saccade.frontend.onnx.builder import CONTENT_ELEMENTS, Builder
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.reference_models import (
    ReadValue,
    Symbols,
    bodies,
    captured,
    tensor_type,
)
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic, whole_dims
from saccade.ir import Dim, DType, Value
from saccade.ir.counts import depends, multiple_of

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from saccade.frontend.onnx.call import OnnxNode, Operand

__all__ = ["ReferenceReads", "reads_held", "reads_of"]


@dataclass(slots=True)
class ReferenceReads:
    """What a node reads: in the model of one node, and in the graph.

    Attributes:
        plain: Of the model: those that are values.
        sized: Of the model: those that are made of sizes.
        values: Of the graph.
        types: Element types of these, None for handles.
        sizes: Operands that are made of sizes.
        cuts: Value, axis, symbol whose size says how many of its elements are true, and how many
            there are for each of that.
        symbols: Of all.
    """

    plain: list[ReadValue] = field(default_factory=list)
    sized: list[ReadValue] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    types: list[DType | None] = field(default_factory=list)
    sizes: list[Symbolic] = field(default_factory=list)
    cuts: list[tuple[int, int, str, int]] = field(default_factory=list)
    symbols: Symbols = field(default_factory=Symbols)

    @property
    def operands(self) -> list[ReadValue]:
        """Of the model, in order."""
        return [*self.plain, *self.sized]

    def take(self, build: Builder, name: str, operand: Operand, node: str) -> None:
        """Note what a node reads.

        Raises:
            Refusal: If it is made of fractions, or it is not known which elements are true.
        """
        taken = operand
        # What inputs' sizes tell is known before the run, and the reference's shapes may need it.
        if isinstance(taken, Symbolic) and build.finds(taken):
            taken = build.found(taken, node) or taken
        if isinstance(taken, Symbolic):
            whole_dims(taken)  # refuses fractions
            self.sizes.append(taken)
            kind = tensor_type(taken.dtype, taken.shape, self.symbols)
            self.sized.append(ReadValue(name, kind))
        else:
            self.add(build, name, taken)

    def add(self, build: Builder, name: str, value: Value) -> None:
        """Note a value of the graph.

        Raises:
            Refusal: If it is not known which of its elements are true.
        """
        place = len(self.values)
        self.values.append(value)
        if value in build.held:
            self.types.append(None)
            self.plain.append(ReadValue(name, build.held[value]))
            return
        self.types.append(value.dtype)
        shape: list[Dim | None] = list(value.shape)
        for axis, dim in enumerate(value.shape):
            if depends(dim, build.counts):
                true = multiple_of(dim, build.counts)
                if true is None or not isinstance(true[1], int):
                    raise Refusal(f"reads an axis of {dim} elements, which depends on data")
                self.cuts.append((place, axis, true[0], true[1]))
                shape[axis] = None
        array = build.array(value) if build.is_known(value) else None
        if array is not None and array.size <= CONTENT_ELEMENTS:
            array = array.astype(value.dtype.numpy)
        else:
            array = None
        kind = tensor_type(value.dtype, shape, self.symbols)
        self.plain.append(ReadValue(name, kind, array))


def reads_of(
    call: OnnxNode,
    found: Mapping[onnx_ir.Value, Result],
    proto: onnx.NodeProto,
    sequence: Callable[[TensorList], Value],
) -> ReferenceReads:
    """All that a node and its bodies read.

    Args:
        call: The node.
        found: What values of the model became.
        proto: The node, whose operands get names of their own here.
        sequence: Makes a sequence a value of the graph.

    Raises:
        Refusal: If one is not there, or no tensor.
    """
    direct: list[tuple[str, Result]] = []
    for i, operand in enumerate(call.given):
        proto.input[i] = "" if operand is None else f"saccade.{i}"
        if operand is not None:
            direct.append((f"saccade.{i}", operand))
    for value in _outer(call.node):
        if value not in found:
            raise Refusal(f"a body reads {value.name!r}, which is not there")
        direct.append((value.name or "", found[value]))
    reads = ReferenceReads()
    for name, result in direct:
        operand = sequence(result) if isinstance(result, TensorList) else result
        reads.take(call.build, name, operand, call.name)
    return reads


def reads_held(node: onnx_ir.Node, found: Mapping[onnx_ir.Value, Result], build: Builder) -> bool:
    """Whether a node, or a body of it, reads what no memory holds."""
    if not build.held:
        return False
    read = [*(value for value in node.inputs if value is not None), *_outer(node)]
    return any(found.get(value) in build.held for value in read)


def _outer(node: onnx_ir.Node) -> list[onnx_ir.Value]:
    """What bodies of a node read from outside."""
    found: dict[onnx_ir.Value, None] = {}
    for attribute in node.attributes.values():
        for body in bodies(attribute):
            found.update(dict.fromkeys(captured(body)))
    return list(found)
