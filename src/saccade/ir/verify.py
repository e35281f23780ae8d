"""Checks a graph's invariants.

Run between passes, so that a broken rewrite is found where it happened.
"""

from __future__ import annotations

from saccade.errors import ModelError, printable
from saccade.ir import storage
from saccade.ir.dim import sub
from saccade.ir.dtype import DType
from saccade.ir.graph import Graph, Node, Value
from saccade.ir.op import Array, TensorType

__all__ = ["VerifyError", "verify"]


class VerifyError(ModelError):
    """A graph breaks an invariant: of a model that was read, or by a bug in a pass."""


def verify(graph: Graph) -> None:
    """Check that the graph is whole.

    Value names are unique, every value is known before it is used and produced once, recorded types
    are those that the operators give, constants have the type of their value and are read-only, and
    every output is known and has a name. An equality of dims that cannot be decided passes.

    Raises:
        VerifyError: Naming the node or value, and what is wrong with it.
    """
    _check_values(graph)
    # Values compare by identity: a copy of one, under the same name, is another.
    known = set(graph.inputs)
    for value, array in graph.constants.items():
        _check_constant(value, array, known)
        known.add(value)
    for node in graph.nodes:
        where = describe(node)
        for value in node.inputs:
            if value not in known:
                raise VerifyError(f"{where}: reads {value!r} before it is known")
        for value in node.outputs:
            if value in known:
                raise VerifyError(f"{where}: gives {value!r}, which is known already")
        _check_types(node, where)
        known.update(node.outputs)
    for value in graph.outputs:
        if value not in known:
            raise VerifyError(f"output {value!r} of the graph is not known")
    if len(graph.output_names) not in (0, len(graph.outputs)):
        names, outputs = len(graph.output_names), len(graph.outputs)
        raise VerifyError(f"the graph has {outputs} outputs but {names} names for them")
    # Programs read such a size as one int64 to cut outputs with.
    for count, value in zip(graph.counts, graph.outputs[len(graph.results) :], strict=True):
        if value.type != TensorType(DType.I64, (1,)):
            raise VerifyError(f"the size of {count.symbol!r} is {value!r}")


def describe(node: Node) -> str:
    """How messages name a node."""
    results = ", ".join(f"%{printable(value.name)}" for value in node.outputs)
    return f"node {printable(node.name)!r} ({results} = {node.op.family})"


def _check_values(graph: Graph) -> None:
    seen: set[str] = set()
    for value in graph.values():
        if value.name in seen:
            raise VerifyError(f"two values are called {value.name!r}")
        seen.add(value.name)
        if any(isinstance(dim, int) and dim < 0 for dim in value.shape):
            raise VerifyError(f"{value!r} has a negative dim")


def _check_constant(value: Value, array: Array, known: set[Value]) -> None:
    if value in known:
        raise VerifyError(f"constant {value!r} is an input too")
    if array.dtype != value.dtype.numpy or array.shape != value.shape:
        raise VerifyError(f"constant {value!r} holds {array.dtype}{list(array.shape)}")
    if array.flags.writeable:
        raise VerifyError(f"constant {value!r} can be written to")


def _check_types(node: Node, where: str) -> None:
    try:
        inferred = storage.infer(node.op, [value.type for value in node.inputs])
    except ModelError as error:
        raise VerifyError(f"{where}: {error}") from error
    if len(inferred) != len(node.outputs):
        raise VerifyError(f"{where}: {len(node.outputs)} outputs, the operator {len(inferred)}")
    for value, wanted in zip(node.outputs, inferred, strict=True):
        if not storage.holds(value.dtype, wanted.dtype) or _differ(value.type, wanted):
            dims = ", ".join(map(str, wanted.shape))
            raise VerifyError(f"{where}: {value!r} should be {wanted.dtype.value}[{dims}]")


def _differ(recorded: TensorType, inferred: TensorType) -> bool:
    if len(recorded.shape) != len(inferred.shape):
        return True
    # Symbolic gaps pass: `H` beside `2*(H//2)` is equal for some sizes, and plans check which.
    gaps = (sub(a, b) for a, b in zip(recorded.shape, inferred.shape, strict=True))
    return any(isinstance(gap, int) and gap != 0 for gap in gaps)
