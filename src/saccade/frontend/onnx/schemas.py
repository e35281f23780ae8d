"""What ONNX's own tables say that a node may have.

An attribute that an operator set does not have is refused, not passed over: `axes` of a reduction,
say, became an operand later, and without it the result is another one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["ADDED", "fault"]

ADDED = frozenset({"EfficientNMS_TRT", "LayerNormalization", "SimplifiedLayerNormalization"})
"""What tools write into the standard's domain that it has not, or not in every set.

Their importers look at what such nodes have.
"""


def fault(node: onnx_ir.Node, opset: int) -> str | None:
    """What a node of the default domain has that its operator set knows nothing of.

    Args:
        node: As `onnx_ir` holds it.
        opset: Version of the operator set.
    """
    known = _known(node.op_type, opset)
    if known is None and node.op_type in ADDED:
        return None
    if known is None:
        return f"is not in operator set {opset}"
    attributes, inputs = known
    for name in node.attributes:
        if name not in attributes:
            return f"has no attribute {name!r} in operator set {opset}"
    if len(node.inputs) > inputs:
        return f"takes at most {inputs} inputs in operator set {opset}, not {len(node.inputs)}"
    return None


@cache
def _known(op_type: str, opset: int) -> tuple[frozenset[str], int] | None:
    """Names of the attributes, and how many inputs there may be."""
    from onnx import defs  # noqa: PLC0415 - warm starts need no onnx

    try:
        schema = defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None
    return frozenset(schema.attributes), schema.max_input
