"""Inputs whose values decide shapes: a model is imported anew for each value of theirs.

What such a model takes and gives is known from its file alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from saccade.frontend.onnx.held_types import spelled, type_of
from saccade.frontend.onnx.survey import Survey
from saccade.frontend.onnx.symbolic import MAX_ELEMENTS
from saccade.shapes import ANY
from saccade.signature import TensorInfo

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["declared", "value_inputs"]

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_OPERANDS: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2),
    "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2),
    "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "If": (0,),
    "Loop": (0, 1), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4), "OneHot": (1,),
    "Pad": (1, 2, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3),
    "STFT": (1, 3), "SequenceAt": (1,), "SequenceErase": (1,), "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4), "Split": (1,), "SplitToSequence": (1,), "Squeeze": (1,),
    "Tile": (1, 2), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,), "Upsample": (1,),
    **dict.fromkeys(_REDUCTIONS, (1,)),
}  # fmt: skip
"""Operands whose values have to be known while a node is imported."""
_OF_SHAPES = frozenset({"Shape", "Size"})


def value_inputs(graph: onnx_ir.Graph, refused: Iterable[onnx_ir.Node]) -> tuple[str, ...]:
    """Names of the inputs whose values would let nodes be imported that were refused.

    Args:
        graph: Of the model.
        refused: At least one.

    Returns:
        In the graph's order; none if a node was refused for another reason, or reads what is
        computed from large inputs.
    """
    inputs = {v for v in graph.inputs if v.name not in graph.initializers}
    wanted: set[onnx_ir.Value] = set()
    for node in refused:
        places = () if node.domain not in ("", "ai.onnx") else _OPERANDS.get(node.op_type, ())
        read = [node.inputs[i] for i in places if i < len(node.inputs)]
        found = _sources([value for value in read if value is not None], inputs)
        # If one node stays refused, values for the others do not help.
        if not found or not all(map(_small, found)):
            return ()
        wanted |= found
    return tuple(value.name or "" for value in graph.inputs if value in wanted)


def declared(value: onnx_ir.Value, *, held: bool = False) -> TensorInfo | None:
    """What the file says of an input or output, if that is enough to go by.

    Args:
        value: The input or output.
        held: Whether it may be what no memory holds.
    """
    dtype, name = Survey.dtype_of(value), value.name or ""
    if held and (dtype is None or value.shape is None):
        return TensorInfo(name, spelled(type_of(value)), ("...",), held=True)
    if dtype is None:
        return None
    if value.shape is None:
        return TensorInfo(name, dtype.value, ("...",))
    shape = list[int | str]()
    for axis, extent in enumerate(value.shape):
        size = extent if isinstance(extent, int) else extent.value
        if size is None or size in ANY:
            size = f"{name}_dim_{axis}"
        shape.append(size)
    return TensorInfo(name, dtype.value, tuple(shape))


def _sources(values: Iterable[onnx_ir.Value], inputs: set[onnx_ir.Value]) -> set[onnx_ir.Value]:
    """Inputs that values are computed from, other than by their shapes."""
    found: set[onnx_ir.Value] = set()
    seen: set[onnx_ir.Value] = set()
    left = list(values)
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        maker = value.producer()
        if value in inputs:
            found.add(value)
        elif maker is not None and maker.op_type not in _OF_SHAPES:
            left += [operand for operand in maker.inputs if operand is not None]
    return found


def _small(value: onnx_ir.Value) -> bool:
    """Whether an input may hold sizes, axes or scales: a scalar or a short list of numbers."""
    shape = value.shape
    if shape is None or len(shape) > 1 or Survey.dtype_of(value) is None:
        return False
    # An unknown length may be short.
    return all(not isinstance(size, int) or size <= MAX_ELEMENTS for size in shape)
