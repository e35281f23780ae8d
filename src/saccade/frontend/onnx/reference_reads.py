"""What a node reads that ONNX's reference implementation is to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saccade.frontend.onnx.builder import CONTENT_ELEMENTS, Builder, whole_dims
from saccade.frontend.onnx.reference_models import (
    ReadValue,
    Symbols,
    bodies,
    captured,
    tensor_type,
)
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic
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
        operands: Of the model: those that are values, then those that are made of sizes.
        values: Of the graph.
        types: Element types of these, None for handles.
        sizes: Operands that are made of sizes.
        cuts: Value, axis, symbol whose size says how many of its elements are true, and how many
            there are for each of that.
        symbols: Of all.
    """

    operands: list[ReadValue] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    types: list[DType | None] = field(default_factory=list)
    sizes: list[Symbolic] = field(default_factory=list)
    cuts: list[tuple[int, int, str, int]] = field(default_factory=list)
    symbols: Symbols = field(default_factory=Symbols)

    def add(self, build: Builder, name: str, value: Value) -> None:
        """Note a value of the graph.

        Raises:
            Refusal: If it is not known which of its elements are true.
        """
        place = len(self.values)
        self.values.append(value)
        if value in build.held:
            self.types.append(None)
            self.operands.append(ReadValue(name, build.held[value]))
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
        self.operands.append(ReadValue(name, kind, array))


def reads_of(
    call: OnnxNode,
    found: Mapping[onnx_ir.Value, Operand],
    proto: onnx.NodeProto,
) -> ReferenceReads:
    """All that a node and its bodies read.

    Args:
        call: The node.
        found: What values of the model became.
        proto: The node, whose operands get names of their own here.

    Raises:
        Refusal: If one is not there, or no tensor.
    """
    direct: list[tuple[str, Operand]] = []
    for i, operand in enumerate(call.operands):
        proto.input[i] = "" if operand is None else f"saccade.{i}"
        if operand is not None:
            direct.append((f"saccade.{i}", operand))
    for value in _outer(call.node):
        if value not in found:
            raise Refusal(f"a body reads {value.name!r}, which is not there")
        direct.append((value.name or "", found[value]))
    reads, sizes = ReferenceReads(), list[ReadValue]()
    for name, operand in direct:
        taken = operand
        if isinstance(taken, Symbolic):
            taken = call.build.found(taken, call.name) or taken
        if isinstance(taken, Symbolic):
            whole_dims(taken)  # refuses fractions
            reads.sizes.append(taken)
            sizes.append(ReadValue(name, tensor_type(taken.dtype, taken.shape, reads.symbols)))
        else:
            reads.add(call.build, name, taken)
    # They are the last inputs of the model.
    reads.operands += sizes
    return reads


def reads_held(node: onnx_ir.Node, found: Mapping[onnx_ir.Value, Operand], build: Builder) -> bool:
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
