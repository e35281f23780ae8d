"""Collects what a model uses that Saccade cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from saccade.errors import Unsupported
from saccade.ir import DType

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["CONTROL_FLOW", "SPELLED", "Survey", "operator_of"]

_FIRST_NODES = 3
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""ONNX's own operators that have bodies which Saccade runs."""

_DTYPES = {
    "FLOAT": DType.F32, "FLOAT16": DType.F16, "DOUBLE": DType.F64, "INT64": DType.I64,
    "INT32": DType.I32, "INT16": DType.I16, "INT8": DType.I8, "UINT8": DType.U8,
    "UINT16": DType.U16, "UINT32": DType.U32, "UINT64": DType.U64, "BOOL": DType.BOOL,
    "BFLOAT16": DType.BF16, "FLOAT8E4M3FN": DType.F8E4M3FN, "FLOAT8E4M3FNUZ": DType.F8E4M3FNUZ,
    "FLOAT8E5M2": DType.F8E5M2, "FLOAT8E5M2FNUZ": DType.F8E5M2FNUZ, "FLOAT8E8M0": DType.F8E8M0,
    "FLOAT4E2M1": DType.F4E2M1, "INT4": DType.I4, "UINT4": DType.U4, "INT2": DType.I2,
    "UINT2": DType.U2,
}  # fmt: skip
SPELLED = {dtype: name for name, dtype in _DTYPES.items()}
"""What ONNX calls element types."""


def operator_of(node: onnx_ir.Node) -> str:
    """A node's operator, with its domain where that is not the default one."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


class Survey:
    """The rows of `UnsupportedModelError`, in the order in which they were met."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], list[str]] = {}

    def refuse(self, operator: str, dtype: str, reason: str, name: str) -> None:
        """Note one node."""
        self.rows.setdefault((operator, dtype, reason), []).append(name)

    def refuse_node(self, node: onnx_ir.Node, reason: str, dtype: DType | None = None) -> None:
        """Note one node, named by itself or by its first result.

        Args:
            node: The node.
            reason: Why it cannot be run.
            dtype: Element type of its first input, if the file does not say.
        """
        first = next((value for value in node.inputs if value is not None), None)
        # Files need not name the types of values inside; an imported operand has one.
        spelled = "-" if first is None else self.type_name(first)
        if spelled == "-" and dtype is not None:
            spelled = SPELLED[dtype]
        name = node.name or (node.outputs[0].name if node.outputs else "") or ""
        self.refuse(operator_of(node), spelled, reason, name)

    def table(self, remedies: Mapping[str, str]) -> list[Unsupported]:
        """All rows.

        Args:
            remedies: What could be done, by operator.
        """
        return [
            Unsupported(
                operator, dtype, reason, len(names), tuple(names[:_FIRST_NODES]),
                remedies.get(operator, ""),
            )
            for (operator, dtype, reason), names in self.rows.items()
        ]  # fmt: skip

    def why(self, node: onnx_ir.Node) -> str:
        """The reason for an operator that has no importer."""
        if node.domain == "com.microsoft.nchwc":
            return (
                "laid out for the machine that wrote the file; write it again with "
                "ORT_ENABLE_EXTENDED, or give the original"
            )
        if node.op_type.startswith("String"):
            return "strings"
        return "no such operator in Saccade"

    @staticmethod
    def is_numeric(dtype: object) -> bool:
        """Whether Saccade has this ONNX element type."""
        return getattr(dtype, "name", None) in _DTYPES

    @staticmethod
    def dtype_of(value: onnx_ir.Value) -> DType | None:
        """The declared element type, None if there is none that Saccade has."""
        if value.type is None or type(value.type).__name__ != "TensorType":
            return None
        return _DTYPES.get(value.type.dtype.name)

    @staticmethod
    def type_name(value: onnx_ir.Value) -> str:
        """The element type as ONNX spells it."""
        if value.const_value is not None:
            return str(value.const_value.dtype.name)
        if value.type is None:
            return "-"
        dtype = getattr(value.type, "dtype", None)
        return str(dtype.name) if dtype is not None else type(value.type).__name__
