"""Input shapes that the user chose, in place of those that the file declares.

What a file computes is left as it is, and so are the numbers that it writes out. A file that was
made for one size may hold that size as a number, in the target of a Reshape for one: where another
size comes to stand against it the import ends in an error, as a -1 beside it would take up the
difference, and images would be mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from saccade.errors import InputError, ModelError, meant
from saccade.ir import Dim
from saccade.ir.dim import evaluate, symbols_of
from saccade.shapes import ANY, Axis, FrozenShapes
from saccade.signature import shape_text

if TYPE_CHECKING:
    import onnx_ir

__all__ = [
    "Axes",
    "FixedByFileError",
    "Own",
    "declare",
    "declared",
    "opened",
    "refuse_reshape",
    "refuse_sizes",
    "resolve",
    "written_for",
]

Axes: TypeAlias = "Mapping[str, tuple[Axis, ...]]"
"""Of inputs by name."""
Own: TypeAlias = "Mapping[tuple[str, int], int]"
"""By input and axis, the size that the file fixes where another one may come."""


class FixedByFileError(ModelError):
    """A node holds for the file's own size alone."""


def resolve(model: onnx_ir.Model, shapes: FrozenShapes) -> tuple[Axes, Own]:
    """What inputs are to be declared as, and which sizes of the file others may come for.

    A name of the file that is fixed or renamed for one input is so for all that are not given.

    Raises:
        InputError: If there is no such input, or it has another rank or no shape at all.
    """
    inputs = {v.name or "": v for v in model.graph.inputs if v.name not in model.graph.initializers}
    for name, axes in shapes:
        _check_fits(name, axes, inputs)
    renamed = _renamed(inputs, shapes)
    given = dict(shapes)
    found, own = dict[str, tuple[Axis, ...]](), dict[tuple[str, int], int]()
    for name, value in inputs.items():
        before = _axes(value)
        if name in given:
            axes = given[name]
        elif before is not None:
            axes = tuple(renamed.get(a, a) if isinstance(a, str) else a for a in before)
        else:
            continue
        found[name] = axes
        for axis, size in enumerate(before or ()):
            if isinstance(size, int) and size != axes[axis]:
                own[name, axis] = size
    return found, own


def opened(axes: Axes, own: Own) -> Axes:
    """The same, with an axis free where its number is not the file's."""
    return {
        name: tuple(
            None if (name, axis) in own and isinstance(size, int) else size
            for axis, size in enumerate(sizes)
        )
        for name, sizes in axes.items()
    }


def declare(model: onnx_ir.Model, axes: Axes) -> None:
    """Change what a model says of its inputs, in place."""
    import onnx_ir as ir  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    for value in model.graph.inputs:
        name = value.name or ""
        if name in axes:
            value.shape = ir.Shape(axes[name])
    # What the file says of its outputs was of its own inputs.
    for value in model.graph.outputs:
        if value.shape is not None and value.name not in axes:
            value.shape = ir.Shape([None] * len(value.shape))


def refuse_reshape(
    node: str, shape: Sequence[Dim], target: Sequence[Dim], own: Mapping[str, int]
) -> None:
    """Refuse a target that has a number where another one than the file's may come.

    Looked at are the axes that are kept, from either end.

    Args:
        node: What it is called in the error.
        shape: Of the operand.
        target: Of the result.
        own: By symbol, the size that the file fixes.

    Raises:
        FixedByFileError: If there is such a number.
    """
    if own:
        refuse_sizes(node, *_first_changed(zip(shape, target, strict=False)), own)
        back = zip(reversed(shape), reversed(target), strict=False)
        refuse_sizes(node, *_first_changed(back), own)


def _first_changed(pairs: Iterable[tuple[Dim, Dim]]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    for before, after in pairs:
        if before != after:
            return (before,), (after,)
    return (), ()


def refuse_sizes(
    node: str, before: Sequence[Dim], after: Sequence[Dim], own: Mapping[str, int]
) -> None:
    """Refuse sizes of the file itself where it may have others: they stand there as numbers.

    Args:
        node: What it is called in the error.
        before: Of axes.
        after: What a node makes of each.
        own: By symbol, the size that the file fixes.

    Raises:
        FixedByFileError: If one of them is the file's own.
    """
    for size, number in zip(before, after, strict=True) if own else ():
        names = symbols_of(size)
        told = isinstance(number, int) and names and names <= own.keys()
        if told and evaluate(size, own) == number:
            sizes = ", ".join(f"{name}={value}" for name, value in own.items())
            raise FixedByFileError(
                f"{node} was written for the file's own input shape ({sizes}): for another "
                "one, export the model with these sizes open"
            )


def written_for(problem: object, axes: Axes) -> FixedByFileError:
    """The error of a file that holds for its own sizes alone.

    Args:
        problem: What does not fit at others.
        axes: As the file declares them.
    """
    own = ", ".join(
        f"{name} {shape_text(['?' if axis is None else axis for axis in shape])}"
        for name, shape in axes.items()
    )
    return FixedByFileError(
        f"{problem}: this was written for the file's own input shape ({own}): for another one, "
        "export the model with these sizes open"
    )


def declared(model: onnx_ir.Model) -> Axes:
    """What a model says of its inputs."""
    each = ((value.name or "", _axes(value)) for value in model.graph.inputs)
    return {name: axes for name, axes in each if axes is not None}


def _axes(value: onnx_ir.Value) -> tuple[Axis, ...] | None:
    """What the file says of an input; None if it does not know its rank."""
    if value.shape is None:
        return None
    sizes = (d if isinstance(d, int) else d.value for d in value.shape)
    return tuple(None if size in ANY else size for size in sizes)


def _check_fits(name: str, axes: Sequence[Axis], inputs: Mapping[str, onnx_ir.Value]) -> None:
    import onnx_ir as ir  # noqa: PLC0415 - see above

    if name not in inputs:
        near = meant(name, inputs)
        raise InputError(
            f"shapes: there is no input {name!r}{near}; the model has {', '.join(inputs)}"
        )
    value = inputs[name]
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        raise InputError(f"shapes: input {name!r} is no tensor and has no shape")
    before = _axes(value)
    if before is not None and len(before) != len(axes):
        raise InputError(
            f"shapes: input {name!r} has {len(before)} axes in the file, given are {len(axes)}"
        )


def _renamed(inputs: Mapping[str, onnx_ir.Value], shapes: FrozenShapes) -> dict[str, int | str]:
    """What became of the file's names; a number says more than another name.

    A name that inputs were given different numbers for is no name of one size, and stays.
    """
    found: dict[str, int | str] = {}
    apart: set[str] = set()
    for name, axes in shapes:
        for own, new in zip(_axes(inputs[name]) or (), axes, strict=False):
            if not isinstance(own, str) or new is None:
                continue
            old = found.setdefault(own, new)
            if isinstance(old, int) and isinstance(new, int) and old != new:
                apart.add(own)
            if isinstance(new, int):
                found[own] = new
    return {own: new for own, new in found.items() if own not in apart}
