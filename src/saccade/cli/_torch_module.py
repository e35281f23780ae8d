"""An ONNX file as a PyTorch module at fixed shapes, for peers that compile modules.

The module is a straight line of PyTorch's operators over the file's own weights. What only shapes
and constants go into is computed while it is made, so that nothing of it is left to be traced, and
`softmax(q · kᵀ) · v` becomes the operator that PyTorch's users write for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from saccade.cli._torch_operators import OPERATORS, attention, softmax
from saccade.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["torch_module"]

_HEADS = 4  # axes of attention's operands


def torch_module(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> torch.fx.GraphModule:
    """The network of a file, in float32 on the host; takes its inputs in order, gives a tuple.

    Args:
        path: The file.
        shapes: Of its inputs, by name.

    Raises:
        OptionError: If it has an operator that is not known, or shapes that depend on data.
    """
    model = onnx.load(str(path))
    builder = _Builder({one.domain: one.version for one in model.opset_import})
    for tensor in model.graph.initializer:
        builder.known[tensor.name] = numpy_helper.to_array(tensor)
    for value in model.graph.input:
        # Old files list their weights among the inputs, too.
        if value.name not in builder.known:
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            builder.take(value.name, shapes[value.name], kind)
    for node in model.graph.node:
        builder.add(node)
    return builder.module([value.name for value in model.graph.output])


class _Builder:
    """Values of a graph in the making: arrays where they are known, else nodes with their shapes.

    Args:
        opsets: Version of ONNX's operators by domain.
    """

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self.known: dict[str, NDArray[Any]] = {}
        self._opsets = dict(opsets)
        self._root = torch.nn.Module()
        self._graph = torch.fx.Graph()
        self._nodes: dict[str, torch.fx.Node] = {}
        self._weights: dict[str, torch.fx.Node] = {}

    def take(self, name: str, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        """An input; halves are what the module computes in, as all floating point is."""
        node = self._graph.placeholder(f"input_{len(self._nodes)}")
        real = np.issubdtype(kind, np.floating)
        dtype = torch.float32 if real else torch.from_numpy(np.empty(0, kind)).dtype
        node.meta["value"] = torch.empty(shape, dtype=dtype, device="meta")
        self._nodes[name] = node

    def add(self, node: onnx.NodeProto) -> None:
        """A node, in the order of the file."""
        given = [name for name in node.input if name]
        # First of all: sizes are known here even where the operand is not.
        if node.op_type == "Shape" and node.input[0] in self._nodes:
            self._shape(node)
        elif all(name in self.known for name in given):
            self._fold(node)
        elif node.op_type in ("Identity", "Dropout"):
            self._nodes[node.output[0]] = self._nodes[node.input[0]]
        else:
            self._call(node)

    def module(self, outputs: list[str]) -> torch.fx.GraphModule:
        """All of it."""
        self._graph.output(tuple(self._node(name) for name in outputs))
        _join_attention(self._graph)
        # Factors that became a scale are read by nobody now.
        self._graph.eliminate_dead_code()
        return torch.fx.GraphModule(self._root, self._graph).eval()

    def _shape(self, node: onnx.NodeProto) -> None:
        sizes = self._nodes[node.input[0]].meta["value"].shape
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        part = sizes[given.get("start", 0) : given.get("end", len(sizes))]
        self.known[node.output[0]] = np.array(part, np.int64)

    def _fold(self, node: onnx.NodeProto) -> None:
        """Compute by ONNX's own reference."""
        if node.op_type == "Identity":  # of weights, which files share that way
            self.known[node.output[0]] = self.known[node.input[0]]
            return
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - 0.3 s

        made = ReferenceEvaluator(node, opsets=self._opsets)
        found = made.run(None, {name: self.known[name] for name in node.input if name})
        self.known.update(zip(node.output, map(np.asarray, found), strict=True))

    def _call(self, node: onnx.NodeProto) -> None:
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
            raise OptionError(f"{node.op_type} is none of the operators that it is converted with")
        how = OPERATORS[node.op_type]
        arguments = tuple(
            None if not name else self._listed(name, node) if i in how.host else self._operand(name)
            for i, name in enumerate(node.input)
        )
        attributes = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
        if node.op_type == "Split" and len(arguments) == 1 and "split" not in attributes:
            # Before operator set 18 the outputs say into how many equal parts.
            attributes["num_outputs"] = len(node.output)
        made = self._made(how.call, arguments, attributes)
        if len(node.output) == 1:
            self._nodes[node.output[0]] = made
            return
        for i, (name, value) in enumerate(zip(node.output, made.meta["value"], strict=False)):
            part = self._graph.call_function(_item, (made, i))
            part.meta["value"] = value
            self._nodes[name] = part

    def _made(
        self, call: Callable[..., Any], arguments: tuple[Any, ...], attributes: dict[str, Any]
    ) -> torch.fx.Node:
        """A call, with what it gives for operands that have shapes but no elements."""
        node = self._graph.call_function(call, arguments, attributes)
        empty = [a.meta["value"] if isinstance(a, torch.fx.Node) else a for a in arguments]
        node.meta["value"] = call(*empty, **attributes)
        return node

    def _listed(self, name: str, node: onnx.NodeProto) -> list[Any] | None:
        if name not in self.known:
            raise OptionError(f"{node.op_type} {node.name} takes a shape that depends on data")
        # An empty list stands for an input left out, as Resize's `scales` beside `sizes`.
        return self.known[name].reshape(-1).tolist() or None

    def _operand(self, name: str) -> Any:  # noqa: ANN401 - a node or a number
        # Scalars as Python's numbers: `_unscaled` and `gather` look for those.
        known = self.known.get(name)
        return known.item() if known is not None and known.ndim == 0 else self._node(name)

    def _node(self, name: str) -> torch.fx.Node:
        if name in self._nodes:
            return self._nodes[name]
        array = self.known[name]
        if name not in self._weights:
            tensor = torch.from_numpy(np.array(array))  # a copy that may be written to
            # One type for all: the engine turns the module into that of the precision asked for.
            tensor = tensor.float() if tensor.is_floating_point() else tensor
            target = f"weight_{len(self._weights)}"
            self._root.register_parameter(target, torch.nn.Parameter(tensor, requires_grad=False))
            made = self._graph.get_attr(target)
            made.meta["value"] = tensor.to("meta")
            self._weights[name] = made
        return self._weights[name]


def _item(values: tuple[Any, ...], index: int) -> Any:  # noqa: ANN401 - a tensor
    return values[index]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever an attribute holds
    return value if isinstance(value, (int, float, bytes)) else tuple(value)


def _join_attention(graph: torch.fx.Graph) -> None:
    """Write softmax(q · kᵀ) · v as one operator, factors of q and kᵀ as its scale."""
    for node in list(graph.nodes):
        scores = node.args[0] if node.target is softmax else None
        if not isinstance(scores, torch.fx.Node) or not _is_product(scores, node):
            continue
        (after,) = node.users if len(node.users) == 1 else (None,)
        rank = node.meta["value"].dim()
        # PyTorch's operator normalises over the last axis, and no other.
        last = node.kwargs.get("axis", -1) % rank == rank - 1
        if after is None or not _is_product(after, None) or after.args[0] is not node or not last:
            continue
        if rank != _HEADS:
            continue
        (q, before), (kt, behind) = (_unscaled(one) for one in scores.args)
        with graph.inserting_before(after):
            made = graph.call_function(
                attention, (q, kt, after.args[1]), {"scale": before * behind}
            )
        made.meta = dict(after.meta)
        after.replace_all_uses_with(made)
        # Readers first: a node that is still read cannot be erased.
        for gone in (after, node, scores):
            graph.erase_node(gone)


def _is_product(node: torch.fx.Node, user: torch.fx.Node | None) -> bool:
    """Whether it is a matrix product, of which `user` is the only one that reads it."""
    product = node.target is OPERATORS["MatMul"].call
    return product and (user is None or list(node.users) == [user])


def _unscaled(node: object) -> tuple[torch.fx.Node, float]:
    """The operand of a product with a number, and the number."""
    assert isinstance(node, torch.fx.Node)
    if node.target is OPERATORS["Mul"].call and isinstance(node.args[1], float):
        assert isinstance(node.args[0], torch.fx.Node)
        return node.args[0], node.args[1]
    return node, 1.0
