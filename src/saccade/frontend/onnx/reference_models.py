"""Models of one node, for ONNX's shape inference and for its reference implementation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saccade.frontend.onnx.survey import SPELLED

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from saccade.ir import Array, Dim, DType

__all__ = [
    "ReadValue", "Symbols", "bodies", "captured", "draws", "has_reference", "inferred", "is_tensor",
    "model_of", "shape_of", "tensor_type",
]  # fmt: skip

_RAISED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What the reference implementation raises for a node that it does not have."""
_DRAWS = frozenset({
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip
"""Operators whose results are random."""
_ANY_SIZE = 24
"""What stands for a symbol, to see whether sizes decide: a multiple of most that divides any."""


@dataclass(frozen=True, slots=True)
class ReadValue:
    """What a node reads.

    Attributes:
        name: Within the model.
        kind: Its type.
        array: Its elements, where they are known and few.
    """

    name: str
    kind: onnx.TypeProto
    array: Array | None = None


@dataclass(slots=True)
class Symbols:
    """Names of dims within a model."""

    names: dict[Dim, str] = field(default_factory=dict)

    def name(self, dim: Dim) -> str:
        """Of a dim that is no number."""
        return self.names.setdefault(dim, f"saccade{len(self.names)}")


def tensor_type(dtype: DType, shape: Iterable[Dim | None], symbols: Symbols) -> onnx.TypeProto:
    """A tensor's type; None for sizes of which nothing is known."""
    import onnx  # noqa: PLC0415 - warm starts need no onnx

    found = onnx.TypeProto()
    found.tensor_type.elem_type = getattr(onnx.TensorProto, SPELLED[dtype])
    sizes = found.tensor_type.shape
    for size in shape:
        axis = sizes.dim.add()
        if isinstance(size, int):
            axis.dim_value = size
        elif size is not None:
            axis.dim_param = symbols.name(size)
    return found


def is_tensor(kind: onnx.TypeProto) -> bool:
    """Whether a type is a tensor's."""
    return bool(kind.WhichOneof("value") == "tensor_type")


def shape_of(kind: onnx.TypeProto, known: Mapping[str, Dim]) -> tuple[Dim, ...] | None:
    """A tensor's sizes; None if one of them, or their number, is not known.

    Args:
        kind: The type.
        known: Dims by their names within the model.
    """
    if not is_tensor(kind) or not kind.tensor_type.HasField("shape"):
        return None
    shape: list[Dim] = []
    for axis in kind.tensor_type.shape.dim:
        if axis.HasField("dim_value"):
            shape.append(axis.dim_value)
        elif axis.dim_param in known:
            shape.append(known[axis.dim_param])
        else:
            return None
    return tuple(shape)


def draws(graph: onnx.GraphProto) -> bool:
    """Whether a node anywhere inside is random."""
    return any(
        node.op_type in _DRAWS
        or any(draws(body) for one in node.attribute for body in (one.g, *one.graphs))
        for node in graph.node
    )


def model_of(
    node: onnx.NodeProto, operands: Sequence[ReadValue], versions: Mapping[str, int]
) -> onnx.ModelProto:
    """A model of one node, whose outputs have no types.

    Args:
        node: Its operands called as `operands` are.
        operands: All that it reads.
        versions: Of operator sets, by domain.
    """
    import onnx  # noqa: PLC0415
    from onnx import helper  # noqa: PLC0415

    inputs = [onnx.ValueInfoProto(name=one.name, type=one.kind) for one in operands]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    sets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    graph = helper.make_graph([node], "reference", inputs, outputs)
    return helper.make_model(graph, opset_imports=sets)


def inferred(
    model: onnx.ModelProto, operands: Sequence[ReadValue], *, sized: bool = False
) -> list[onnx.TypeProto]:
    """Types of a model's outputs, as far as ONNX's shape inference tells.

    Args:
        model: From `model_of`.
        operands: As there.
        sized: Whether symbols stand for a number.
    """
    import onnx  # noqa: PLC0415
    from onnx import numpy_helper  # noqa: PLC0415

    known = onnx.ModelProto()
    known.CopyFrom(model)
    # Inference takes no initializer for a constant that is an input as well.
    arrays = {one.name for one in operands if one.array is not None}
    inputs = [value for value in known.graph.input if value.name not in arrays]
    del known.graph.input[:]
    known.graph.input.extend(inputs)
    known.graph.initializer.extend(
        numpy_helper.from_array(one.array, one.name) for one in operands if one.array is not None
    )
    if sized:
        for value in known.graph.input:
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param:
                    axis.dim_value = _ANY_SIZE
    try:
        found = onnx.shape_inference.infer_shapes(known, data_prop=True)
    # What does not fit is found by whoever runs it.
    except (onnx.shape_inference.InferenceError, *_RAISED):
        found = known
    return [value.type for value in found.graph.output]


def has_reference(model: onnx.ModelProto) -> bool:
    """Whether the reference implementation has all of a model."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    try:
        ReferenceEvaluator(model)
    except _RAISED:
        return False
    return True


def captured(graph: onnx_ir.Graph, inner: Collection[onnx_ir.Value] = ()) -> list[onnx_ir.Value]:
    """Values from outside that a body reads, each once.

    Args:
        graph: The body.
        inner: Values of bodies around it that are none from outside.
    """
    own = {*inner, *graph.inputs, *graph.initializers.values()}
    found: dict[onnx_ir.Value, None] = {}
    for node in graph:
        own.update(node.outputs)
    for node in graph:
        found.update((value, None) for value in node.inputs if value is not None)
        for attribute in node.attributes.values():
            for body in bodies(attribute):
                found.update(dict.fromkeys(captured(body, own)))
    found.update(dict.fromkeys(graph.outputs))
    return [value for value in found if value not in own]


def bodies(attribute: onnx_ir.Attr) -> Sequence[onnx_ir.Graph]:
    """The graphs in an attribute."""
    if attribute.type.name == "GRAPH":
        return (attribute.as_graph(),)
    return attribute.as_graphs() if attribute.type.name == "GRAPHS" else ()
