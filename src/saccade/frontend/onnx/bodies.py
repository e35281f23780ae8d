"""What all nodes with bodies have in common: a body is imported for given inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from saccade.errors import ModelError
from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.listed import Result
from saccade.frontend.onnx.survey import Survey
from saccade.ir import DType, Value
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Pointwise

if TYPE_CHECKING:
    import onnx_ir

    from saccade.frontend.onnx.builder import Builder

__all__ = ["DEPENDS", "Bodies", "as_type"]

DEPENDS = "control flow that depends on data"


class Bodies(ABC):
    """What a lowering does with nodes that have bodies.

    Attributes:
        build: The graph under construction.
        found: What each ONNX value became.
        lost: Values behind nodes that are refused.
        absent: Optional values that are not there.
        survey: What cannot be run.
        refused: The nodes among that.
        inlined: Whether the nodes are those that the standard makes another one of.
    """

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.found: dict[onnx_ir.Value, Result] = {}
        self.lost: set[onnx_ir.Value] = set()
        self.absent: set[onnx_ir.Value] = set()
        self.survey = Survey()
        self.refused: list[onnx_ir.Node] = []
        self.inlined = False

    @abstractmethod
    def _nodes(self, graph: onnx_ir.Graph) -> None:
        """Import the nodes of a graph or a body, in place."""

    def _body(self, call: OnnxNode, name: str) -> onnx_ir.Graph:
        attribute = call.node.attributes.get(name)
        if attribute is None or attribute.type.name != "GRAPH":
            raise call.broken(f"lacks its {name}")
        graph: onnx_ir.Graph = attribute.value
        return graph

    def _turn(
        self, call: OnnxNode, body: onnx_ir.Graph, inputs: Sequence[Result]
    ) -> list[Result | None]:
        """The outputs of a body, None where one is behind a node that is refused."""
        if len(body.inputs) != len(inputs):
            raise call.broken(f"{len(inputs)} values for a body of {len(body.inputs)} inputs")
        for formal, operand in zip(body.inputs, inputs, strict=True):
            self.found[formal] = operand
        self._nodes(body)
        return [self.found.get(value) for value in self._made(body.outputs)]

    def _made(self, outputs: Iterable[onnx_ir.Value]) -> Iterable[onnx_ir.Value]:
        for value in outputs:
            if value not in self.found and value not in self.lost and value not in self.absent:
                raise ModelError(f"nothing makes the output {value.name!r} of a body")
            yield value


def as_type(call: OnnxNode, x: Value, dtype: DType) -> Value:
    """The value in another element type: bodies take and give float16 as float32."""
    return x if x.dtype is dtype else call.emit(Pointwise(IDENTITY, dtype), x)
