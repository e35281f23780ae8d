"""Models whose import has to know sizes: a few are tried, to know whether any helps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from saccade import errors
from saccade.errors import ModelError, NeedsValuesError, UnsupportedModelError
from saccade.frontend.onnx.value_inputs import declared
from saccade.ir import Array, Dim, Graph, Value
from saccade.signature import Signature

if TYPE_CHECKING:
    import onnx_ir

    from saccade.frontend.onnx.listed import Result

__all__ = ["Import", "Known", "free_shapes", "needs_values", "sized"]

Known: TypeAlias = "Mapping[str, Array | tuple[int | None, ...]]"
"""Of inputs by name: values, or shapes, where None leaves an axis as the file has it."""
_PROBES = (320, 224, 64, 16)
"""Multiples of 32 and of 7, as windows of 7 want them, and small ones: some files hold for no sizes
that are much larger than those that they were written for."""


class Import(Protocol):
    """One import of a model."""

    def run(self) -> Graph:
        """The graph.

        Raises:
            UnsupportedModelError: If something is missing.
        """

    def free_shapes(self) -> dict[str, tuple[Dim, ...]]:
        """Inputs whose sizes are not known, and their shapes, once it has run."""

    def lacks(self) -> bool:
        """Whether it met an operator that there is none for, whatever the sizes."""

    def needs(
        self, rows: Sequence[errors.Unsupported], names: tuple[str, ...], *, sized: bool = False
    ) -> UnsupportedModelError:
        """The error for a model that runs once more is known of its inputs."""


def sized(lowering: Callable[[Known], Import], known: Known) -> Graph:
    """The graph of an import.

    Args:
        lowering: Imports, with what is known.
        known: To begin with.

    Raises:
        UnsupportedModelError: If something is missing.
        NeedsValuesError: If nothing would be missing for fixed sizes, or if it holds for none of
            those that are tried.
    """
    first = lowering(known)
    try:
        return first.run()
    except UnsupportedModelError as error:
        free = first.free_shapes()
        if not free or isinstance(error, NeedsValuesError):
            raise
        # What no symbols can tell may be plain numbers for each size.
        contradicted = not first.lacks()
        for size in _PROBES:
            sizes = {name: _probe(shape, size) for name, shape in free.items()}
            try:
                lowering({**known, **sizes}).run()
            except NeedsValuesError as needs:
                raise first.needs(error.rows, needs.names, sized=True) from None
            except (UnsupportedModelError, errors.PlanError):
                contradicted = False
                continue
            except ModelError:
                continue
            raise first.needs(error.rows, (), sized=True) from None
        # It holds for none of these sizes, as files do that keep one in a constant: which ones it
        # holds for, the caller's will tell.
        if contradicted:
            raise first.needs(error.rows, (), sized=True) from None
        raise


def _probe(shape: Sequence[Dim], size: int) -> tuple[int, ...]:
    """A shape with its free axes of one size, but for a batch."""
    return tuple(
        d if isinstance(d, int) else (1 if axis == 0 else size) for axis, d in enumerate(shape)
    )


def free_shapes(
    graph: onnx_ir.Graph,
    found: Mapping[onnx_ir.Value, Result],
    held: Collection[Value],
) -> dict[str, tuple[Dim, ...]]:
    """Inputs whose sizes are not known, and their shapes; none of what no memory holds.

    Args:
        graph: Of the model.
        found: What its values became.
        held: Those that have no sizes.
    """
    inputs = (v for v in graph.inputs if v.name not in graph.initializers)
    shapes = {
        source.name or "": value.shape
        for source in inputs
        if isinstance(value := found.get(source), Value) and value not in held
    }
    open_ = any(not isinstance(d, int) for shape in shapes.values() for d in shape)
    return shapes if open_ else {}


def needs_values(
    graph: onnx_ir.Graph,
    rows: Sequence[errors.Unsupported],
    names: tuple[str, ...],
    *,
    sized: bool,
    held: bool,
) -> UnsupportedModelError:
    """The error for a model that runs once more is known of its inputs.

    Args:
        graph: Of the model.
        rows: What is missing.
        names: Of inputs whose values have to be known.
        sized: Whether the sizes of the others have to be.
        held: Whether inputs may be what no memory holds.
    """
    given = [value for value in graph.inputs if value.name not in graph.initializers]
    sides = [[declared(v, held=held) for v in side] for side in (given, graph.outputs)]
    inputs, outputs = ([info for info in side if info is not None] for side in sides)
    if any(None in side for side in sides):
        return UnsupportedModelError(rows)
    signature = Signature(tuple(inputs), tuple(outputs))
    return NeedsValuesError(rows, names, signature.to_json(), sized)
