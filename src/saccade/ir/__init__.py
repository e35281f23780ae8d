"""The small intermediate representation: operator families over dims and index maps."""

from saccade.ir.body import Body, BodyNode, BodyOp, Turn, embed
from saccade.ir.counts import Count
from saccade.ir.dim import Dim
from saccade.ir.dtype import DType
from saccade.ir.expr import Expr
from saccade.ir.graph import Graph, Node, Value
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.op import Array, Op, TensorType, Work

__all__ = [
    "Array",
    "Body",
    "BodyNode",
    "BodyOp",
    "Count",
    "DType",
    "Dim",
    "Expr",
    "Factor",
    "Graph",
    "IndexMap",
    "Node",
    "Op",
    "TensorType",
    "Turn",
    "Value",
    "Work",
    "embed",
]
