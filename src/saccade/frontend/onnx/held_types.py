"""Types of what no memory of a plan holds: strings, sequences, optional values, unknown sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saccade.frontend.onnx.survey import SPELLED
from saccade.ir import DType

if TYPE_CHECKING:
    import onnx
    import onnx_ir

__all__ = ["element_of", "spelled", "type_of"]

_DTYPES = {name: dtype for dtype, name in SPELLED.items()}


def type_of(value: onnx_ir.Value) -> onnx.TypeProto:
    """What the file says of a value; nothing where it says nothing."""
    import onnx_ir  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    return onnx_ir.serde.serialize_value(value).type


def element_of(kind: onnx.TypeProto) -> DType | None:
    """Element type of a tensor; None for what is none, or of a type that Saccade does not have."""
    import onnx  # noqa: PLC0415

    if kind.WhichOneof("value") != "tensor_type":
        return None
    return _DTYPES.get(onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type))


def spelled(kind: onnx.TypeProto) -> str:
    """A type as users read it: `float32`, `string`, `sequence(float32)`, `optional(...)`."""
    import onnx  # noqa: PLC0415

    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return f"sequence({spelled(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({spelled(kind.optional_type.elem_type)})"
    if which == "map_type":
        key = onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()
        return f"map({key}, {spelled(kind.map_type.value_type)})"
    if which != "tensor_type":
        return str(which or "unknown").removesuffix("_type")
    element = kind.tensor_type.elem_type
    if element == onnx.TensorProto.STRING:
        return "string"
    # What NumPy does not have is called as `ml_dtypes` does.
    return onnx.helper.tensor_dtype_to_np_dtype(element).name
