"""Runs a graph node by node with its operators' NumPy references: slow, and the judge of passes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from saccade.errors import InputError
from saccade.ir import Array, DType, Graph, Value, storage
from saccade.ir.dim import Affine, evaluate, symbols_of

__all__ = ["interpret", "sizes_of"]


def sizes_of(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The sizes of the symbols that stand alone in the shape of some input.

    Raises:
        InputError: If an input is missing, or two inputs disagree.
    """
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        if value.name not in inputs:
            raise InputError(f"input {value.name!r} is missing")
        shape = inputs[value.name].shape
        if len(shape) != value.rank:
            raise InputError(f"input {value.name!r} has {len(shape)} axes, not {value.rank}")
        for have, dim in zip(shape, value.shape, strict=True):
            # A size cannot be read off a sum or a product of symbols.
            alone = isinstance(dim, Affine) and symbols_of(dim) == {str(dim)}
            if alone and sizes.setdefault(str(dim), have) != have:
                raise InputError(f"{dim} is both {sizes[str(dim)]} and {have}")
    return sizes


def interpret(
    graph: Graph, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """All outputs by the names in `graph.output_names`.

    What is stored in float16 or bfloat16 is computed in float32 and rounded once (`ir/storage.py`).

    Axes whose size steps find out are as long as their bounds; those sizes are among the outputs.

    Args:
        graph: Any graph.
        inputs: An array for each input, by name.
        sizes: Sizes of the symbols; by default read off the inputs.

    Raises:
        InputError: If an input is missing or does not have the graph's shape or element type.
        AssertionError: If an operator's result is not of the shape and element type that the graph
            states.
    """
    known = graph.with_bounds(sizes_of(graph, inputs) if sizes is None else sizes)
    found: dict[Value, Array] = dict(graph.constants)
    for value in graph.inputs:
        array = np.asarray(inputs[value.name])
        shape = tuple(evaluate(dim, known) for dim in value.shape)
        if array.shape != shape or array.dtype != value.dtype.numpy:
            raise InputError(
                f"input {value.name!r} is {array.dtype}{list(array.shape)}, "
                f"not {value.dtype.value}{list(shape)}"
            )
        found[value] = array
    for node in graph.nodes:
        arrays = storage.reference(node.op.bind(known), [found[value] for value in node.inputs])
        for value, array in zip(node.outputs, arrays, strict=True):
            shape = tuple(evaluate(dim, known) for dim in value.shape)
            states = f"{value.dtype.value}{list(shape)}"
            gives = f"{array.dtype}{list(array.shape)}"
            fits = storage.holds(value.dtype, DType.of(array.dtype))
            assert array.shape == shape and fits, (
                f"{node.op.family} {node.name!r} gives {gives}, the graph states {states}"
            )
            found[value] = array.astype(value.dtype.numpy, copy=False)
    names = graph.output_names or tuple(value.name for value in graph.outputs)
    return {name: found[value] for name, value in zip(names, graph.outputs, strict=True)}
