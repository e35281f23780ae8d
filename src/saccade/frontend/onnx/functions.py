"""Operators that ONNX defines by others: the nodes that stand for one of them.

The standard gives a good third of its operators a body, for some of them made for the operands'
types. What no importer takes, or takes but in part, is imported as its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from saccade.frontend.onnx.survey import SPELLED

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from saccade.frontend.onnx.call import Operand

__all__ = ["FunctionBody", "body_of", "has_body"]

_BROKEN = (ValueError, TypeError, LookupError, RuntimeError, AttributeError)
"""What onnx and onnx-ir raise for a node that does not fit its own schema."""


class _Schema(Protocol):
    """What onnx's stub of `OpSchema` leaves out."""

    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: Sequence[int]
    context_dependent_function_opset_versions: Sequence[int]

    @property
    def function_body(self) -> onnx.FunctionProto: ...
    def get_function_with_opset_version(self, version: int, /) -> bytes: ...
    def get_context_dependent_function(self, node: bytes, types: list[bytes], /) -> bytes: ...
    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: list[bytes], /
    ) -> bytes: ...


class FunctionBody(NamedTuple):
    """What stands for a node.

    Attributes:
        function: Its nodes, and the values that its operands are called.
        outputs: The values that its results are; None for those that are not computed.
    """

    function: onnx_ir.Function
    outputs: tuple[onnx_ir.Value | None, ...]


def body_of(
    node: onnx_ir.Node, opset: int, operands: Sequence[Operand | None]
) -> FunctionBody | None:
    """What the standard says that a node does, attributes filled in.

    Args:
        node: Of an operator of the standard.
        opset: Version of its operator set.
        operands: What it reads; None where an optional operand is absent.

    Returns:
        None if its operator has no body, or none for these operands.
    """
    import onnx  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir
    import onnx_ir  # noqa: PLC0415

    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        given = onnx_ir.serde.serialize_node(node)
        types = [_type(operand) for operand in operands]
        text = _text(cast("_Schema", schema), opset, given, types)
        if text is None:
            return None
        proto = onnx.FunctionProto()
        proto.ParseFromString(text)
        # Later ones win: defaults of the body, of the schema, and what the node says.
        attributes = {one.name: one for one in proto.attribute_proto}
        attributes |= {name: one.default_value for name, one in schema.attributes.items()}
        attributes |= {one.name: one for one in given.attribute}
        _fill(proto.node, attributes)
        # Bodies leave out what nobody asks for, and name it as a result all the same.
        results = list(proto.output)
        made = {name for part in proto.node for name in part.output}
        del proto.output[:]
        proto.output.extend(name for name in results if name in made)
        function = onnx_ir.serde.deserialize_function(proto)
        named = {value.name: value for value in function.outputs}
        return FunctionBody(function, tuple(named.get(name) for name in results))
    # No error: without a body the node is refused for a reason of its own.
    except (onnx.defs.SchemaError, onnx_ir.serde.SerdeError, *_BROKEN):
        return None


def has_body(node: onnx_ir.Node, opset: int) -> bool:
    """Whether the standard makes an operator of others, for some operands at least."""
    import onnx  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    try:
        schema = cast("_Schema", onnx.defs.get_schema(node.op_type, opset, node.domain))
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def _text(
    schema: _Schema, opset: int, node: onnx.NodeProto, types: Iterable[bytes]
) -> bytes | None:
    """The newest body for this operator set, serialised."""
    given = node.SerializeToString(), list(types)
    if schema.has_context_dependent_function:
        newest = _newest(schema.context_dependent_function_opset_versions, opset)
        if newest is None:
            return schema.get_context_dependent_function(*given) or None
        return schema.get_context_dependent_function_with_opset_version(newest, *given) or None
    if schema.has_function:
        newest = _newest(schema.function_opset_versions, opset)
        if newest is None:
            return schema.function_body.SerializeToString()
        return schema.get_function_with_opset_version(newest) or None
    return None


def _newest(versions: Sequence[int], opset: int) -> int | None:
    return max((version for version in versions if version <= opset), default=None)


def _type(operand: Operand | None) -> bytes:
    """A type of ONNX, serialised; sizes that are not known have none."""
    import onnx  # noqa: PLC0415

    found = onnx.TypeProto()
    if operand is not None:
        found.tensor_type.elem_type = getattr(onnx.TensorProto, SPELLED[operand.dtype])
        shape = found.tensor_type.shape
        for size in operand.shape:
            axis = shape.dim.add()
            if isinstance(size, int):
                axis.dim_value = size
    return found.SerializeToString()


def _fill(nodes: Iterable[onnx.NodeProto], attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Put attributes where nodes refer to them; references to what is not given go away."""
    for node in nodes:
        kept = []
        for attribute in node.attribute:
            name, source = attribute.name, attribute.ref_attr_name
            if source:
                found = attributes.get(source)
                # The schema has a nameless default for attributes without one.
                if found is None or not found.name:
                    continue
                attribute.CopyFrom(found)
                attribute.name = name
            _fill(attribute.g.node, attributes)
            for graph in attribute.graphs:
                _fill(graph.node, attributes)
            kept.append(attribute)
        if len(kept) != len(node.attribute):
            copies = list(kept)
            del node.attribute[:]
            node.attribute.extend(copies)
