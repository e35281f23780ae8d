"""Small graphs drawn node by node, valid but strange, and what ONNX's reference makes of them.

Every node is evaluated as it is drawn: what the reference refuses is not in the graph, and later
nodes see real arrays. A float is *exact* if every way to compute it gives the same bits (a small
multiple of 1/16 all along); only such ones go where a rounding error would decide.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import assume
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

__all__ = ["Drawing", "DrawnGraph", "Nothing", "difference", "drawn_graph"]

GRID, LARGEST = 16, 2.0**15
"""Exact floats are multiples of the inverse of the first, below the second."""
MOST_ELEMENTS = 4096
FLOATS = ("float32", "float64")
INTEGERS = ("int64", "int32", "uint8", "int8", "uint64")
KINDS = (*FLOATS, *INTEGERS, "bool")
OPSETS = (13, 17, 18, 21, 23)


class Nothing(Exception):  # noqa: N818 - a recipe that does not fit is no error
    """No operand fits a recipe, or the reference does not take the node."""


@dataclass(frozen=True, repr=False)
class DrawnGraph:
    """A model, what it is given, and what it has to give.

    Attributes:
        model: The model.
        feeds: Inputs by name.
        wanted: Outputs by name.
        exact: Names of the outputs that must be met to the bit.
        scale: The largest magnitude that a float had on the way.
        named: Whether sizes of inputs are names.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    wanted: Mapping[str, np.ndarray]
    exact: frozenset[str]
    scale: float
    named: bool

    def __repr__(self) -> str:
        shown = {k: (v.dtype.name, v.shape, v.ravel()[:12].tolist()) for k, v in self.feeds.items()}
        weights = {t.name: numpy_helper.to_array(t).tolist() for t in self.model.graph.initializer}
        return f"{onnx.printer.to_text(self.model)}\n{shown}\n{weights}"


@dataclass
class Drawing:
    """A graph so far.

    Attributes:
        draw: Hypothesis's.
        opset: Of the model.
        named: Whether sizes of inputs may be names.
        values: Arrays by name.
        exact: Names of exact ones.
        nodes, weights, inputs: Of the graph.
    """

    draw: Callable[[st.SearchStrategy[Any]], Any]
    opset: int
    named: bool
    values: dict[str, np.ndarray] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    # -- drawing ---------------------------------------------------------------------------------

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def one_of(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def axis(self, rank: int) -> int:
        """One of the axes, counted from either end."""
        if rank == 0:
            raise Nothing
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        """Some of the axes, none twice, in any order."""
        chosen = self.draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
        return [a - rank if self.flag() else a for a in chosen]

    def pick(
        self,
        kinds: Sequence[str] = KINDS,
        fits: Callable[[np.ndarray], bool] = lambda _: True,
        *,
        exact: bool = False,
    ) -> str:
        """A value that is there, of some kinds."""
        names = [
            name
            for name, a in self.values.items()
            if a.dtype.name in kinds and fits(a) and (not exact or self.is_exact(name))
        ]
        if not names:
            raise Nothing
        return str(self.one_of(names))

    def is_exact(self, name: str) -> bool:
        return self.values[name].dtype.kind in "iub" or name in self.exact

    def array(self, kind: str, shape: Sequence[int]) -> np.ndarray:
        """Small whole numbers, or halves."""
        seed = self.integer(0, 2**16)
        numbers = np.asarray(np.random.default_rng(seed).integers(-8, 9, tuple(shape)))
        if kind.startswith("u"):
            numbers = np.abs(numbers)
        # Divisions of arrays without axes give numbers that are none.
        numbers = numbers > 0 if kind == "bool" else numbers / 2 if kind in FLOATS else numbers
        return np.array(numbers, kind)

    def shape(self, least: int = 0, most: int = 4) -> list[int]:
        sizes = st.sampled_from((1, 2, 3, 5, 1, 4, 0))
        return list(self.draw(st.lists(sizes, min_size=least, max_size=most)))

    # -- building --------------------------------------------------------------------------------

    def add_input(self) -> None:
        kind, shape = self.one_of((*FLOATS, *FLOATS[:1], *KINDS)), self.shape()
        name = f"x{len(self.inputs)}"
        self.values[name] = self.array(kind, shape)
        self.exact.add(name)
        named = self.named and self.integer(0, 3) == 0
        dims = [f"{name}_{i}" if named and n else n for i, n in enumerate(shape)]
        number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        self.inputs.append(helper.make_tensor_value_info(name, number, dims))

    def constant(self, array: np.ndarray) -> str:
        """An initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        self.values[name] = array
        self.exact.add(name)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def emit(
        self,
        op: str,
        operands: Sequence[str],
        *,
        outputs: int = 1,
        exact: bool = False,
        **more: Any,
    ) -> list[str]:
        """A node, with what the reference makes of it.

        Args:
            op: The operator.
            operands: Names; empty ones are left out.
            outputs: How many results.
            exact: Whether exact operands give exact results.
            more: Attributes.
        """
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, list(operands), names, **more)
        given = {name: self.values[name] for name in operands if name}
        results = _evaluated(node, given, names, self.opset)
        for array in results:
            if array.dtype.name not in KINDS or array.size > MOST_ELEMENTS:
                raise Nothing
            if array.dtype.kind == "f" and not (np.abs(array) < LARGEST).all():
                raise Nothing
        sound = exact and all(self.is_exact(name) for name in given)
        self.nodes.append(node)
        for name, array in zip(names, results, strict=True):
            self.values[name] = array
            if sound and (array.dtype.kind != "f" or (array * GRID == np.rint(array * GRID)).all()):
                self.exact.add(name)
        return names

    def done(self) -> DrawnGraph:
        """The graph; what nobody reads, and something else, is given."""
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output]
        outputs = [name for name in made if name not in read or self.integer(0, 4) == 0]
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(self.values[name].dtype), None
            )
            for name in outputs
        ]
        used = [t for t in self.weights if t.name in read]
        graph = helper.make_graph(self.nodes, "g", self.inputs, infos, used)
        imports = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=9)
        peaks = [np.abs(a).max(initial=0.0) for a in self.values.values() if a.dtype.kind == "f"]
        return DrawnGraph(
            model,
            {value.name: self.values[value.name] for value in self.inputs},
            {name: self.values[name] for name in outputs},
            frozenset(name for name in outputs if self.is_exact(name)),
            float(max(peaks, default=1.0)),
            any(d.dim_param for v in self.inputs for d in v.type.tensor_type.shape.dim),
        )


def _evaluated(
    node: onnx.NodeProto, given: Mapping[str, np.ndarray], names: Sequence[str], opset: int
) -> list[np.ndarray]:
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    results = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in names]
    graph = helper.make_graph([node], "g", infos, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = ReferenceEvaluator(model).run(None, dict(given))
        # It has no errors of its own: whatever is raised says that it does not take the node.
        except Exception as error:
            raise Nothing from error
    return [np.asarray(one) for one in found]


def drawn_graph(
    recipes: Sequence[Callable[[Drawing], None]], *, named: bool
) -> st.SearchStrategy[DrawnGraph]:
    """Graphs of up to six nodes, each by one of the recipes; sizes of inputs may be names."""

    @st.composite
    def graphs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> DrawnGraph:
        drawing = Drawing(draw, draw(st.sampled_from(OPSETS)), named)
        for _ in range(draw(st.integers(1, 3))):
            drawing.add_input()
        for _ in range(draw(st.integers(1, 8))):
            before = len(drawing.nodes)
            if before >= 6:
                break
            try:
                draw(st.sampled_from(recipes))(drawing)
            except Nothing:
                continue
        assume(drawing.nodes)
        return drawing.done()

    return graphs()


def difference(found: np.ndarray, name: str, graph: DrawnGraph) -> str:
    """What is wrong with an output; empty if nothing is."""
    wanted = graph.wanted[name]
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{name}: {found.dtype} {found.shape} for {wanted.dtype} {wanted.shape}"
    if name in graph.exact or wanted.dtype.kind != "f":
        near = np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f")
    else:
        # Of all that was added and subtracted, some rounding errors are left.
        near = np.allclose(found, wanted, 1e-4, 1e-5 * max(graph.scale, 1.0), equal_nan=True)
    return "" if near else f"{name}: {found.ravel()[:20]} for {wanted.ravel()[:20]}"
