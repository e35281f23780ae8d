"""Checked protobuf -> onnx-ir model with functions inlined, in order, without dead nodes.

Of the normalisations that onnx-ir and onnxscript offer only those run here that the importers do
not give for free: they alias Identity, fold constants and shapes, and drop what no output needs
while they walk the graph. The optimizer of onnxscript would double the time of a cold start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import ModelError
from saccade.frontend.onnx import external
from saccade.frontend.onnx.check import References
from saccade.frontend.onnx.skeleton import OWN_FILE
from saccade.ir import Array

if TYPE_CHECKING:
    import onnx
    import onnx_ir

__all__ = ["array_reader", "normalise"]

_OLDEST, _DOMAINS = 1, ("", "ai.onnx")
_CONTRADICTIONS = (
    ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, MemoryError,
)  # fmt: skip
"""What onnx-ir and NumPy raise; their messages may quote the file, so no traceback shows them."""


def normalise(proto: onnx.ModelProto) -> onnx_ir.Model:
    """The model as onnx-ir holds it.

    Raises:
        ModelError: If onnx-ir cannot read it or its functions cannot be inlined.
    """
    import onnx_ir  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir
    from onnx_ir.passes.common import (  # noqa: PLC0415
        InlinePass,
        RemoveUnusedNodesPass,
        TopologicalSortPass,
    )

    steps: list[onnx_ir.passes.PassBase] = [InlinePass()] if proto.functions else []
    # `check` lets nodes stand in any order; `lower` walks them once.
    steps += [TopologicalSortPass(), RemoveUnusedNodesPass()]
    try:
        model = onnx_ir.from_proto(proto)
        for step in steps:
            model = step(model).model
    except (onnx_ir.serde.SerdeError, onnx_ir.passes.PassError) as error:
        raise ModelError(f"onnx-ir cannot read this model: {error}") from None
    except _CONTRADICTIONS as error:
        raise ModelError(f"this model contradicts itself: {error}") from None
    _check_opset(model)
    return model


def _check_opset(model: onnx_ir.Model) -> None:
    from onnx.defs import onnx_opset_version  # noqa: PLC0415

    for domain in _DOMAINS:
        version = model.opset_imports.get(domain)
        if version is not None and not _OLDEST <= version <= onnx_opset_version():
            raise ModelError(
                f"operator set {version} is not one of {_OLDEST} to {onnx_opset_version()}; "
                "convert the model with onnx.version_converter"
            )


def array_reader(references: References) -> Callable[[onnx_ir.TensorProtocol], Array]:
    """Turns onnx-ir tensors into arrays; external data stays mapped."""

    def read(tensor: onnx_ir.TensorProtocol) -> Array:
        try:
            return _array(tensor, references)
        except (*_CONTRADICTIONS, OverflowError) as error:
            raise ModelError(f"tensor {tensor.name!r} cannot be read: {error}") from None

    return read


def _array(tensor: onnx_ir.TensorProtocol, references: References) -> Array:
    import onnx_ir  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    if not isinstance(tensor, onnx_ir.ExternalTensor):
        return np.asarray(tensor.numpy())
    place = external.key(tensor.location, tensor.offset, tensor.nbytes)
    raw, bits = references[place], tensor.dtype.bitwidth
    if bits < 8:
        raw = _unpacked(raw, bits, tensor.size)
    array: Array = raw.view(tensor.dtype.numpy()).reshape(tensor.shape.numpy())
    # Weights among other fields hardly ever are aligned; they are about to be written elsewhere.
    return array if array.flags.aligned or tensor.location == OWN_FILE else array.copy()


def _unpacked(raw: external.Bytes, bits: int, count: int) -> external.Bytes:
    """Elements of a few bits, a byte each: the first one is in a byte's lowest bits."""
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    parts = (raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(-1)[:count]
