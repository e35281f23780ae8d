"""What `--shape` asks for: sizes to run at, or other input shapes than the file declares.

Shapes that fit the file are those of a run, so that its programs are the ones that every start with
the same options finds. Whatever does not fit, and every name, has the model compiled for inputs
that are declared otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from saccade.cli._types import ModelLike, TensorInfoLike
from saccade.errors import InputError, UnsupportedModelError

if TYPE_CHECKING:
    import onnx

    from saccade.shapes import Axis

__all__ = ["Asked", "Sizes", "compile_shaped", "declared_as", "redeclared", "sizes_in"]

Asked: TypeAlias = "Mapping[str, tuple[Axis, ...]]"
"""As `--shape` gives them: by input, "" for the only one; numbers, names, None for any size."""
Sizes: TypeAlias = "dict[str, tuple[int, ...]]"


def compile_shaped(
    path: Path,
    sets: Sequence[Asked],
    *,
    algorithms: Path | None = None,
    **options: str | int | None,
) -> tuple[ModelLike, list[Sizes], Asked | None]:
    """A model that runs at each set of shapes, and the sizes in them.

    And what its inputs are declared as, where that is not what the file says.

    Raises:
        InputError: If an input is not told, or shapes do not fit the model whatever it declares.
    """
    from saccade.cli._model import compile_model  # noqa: PLC0415 - they know each other
    from saccade.cli._signature import read_inputs  # noqa: PLC0415 - NumPy, for who runs a model

    def compiled_for(shapes: Asked | None = None) -> ModelLike:
        return compile_model(path, algorithms=algorithms, shapes=shapes, **options)

    if any(not isinstance(axis, int) for one in sets for axes in one.values() for axis in axes):
        axes = _merged(_told(read_inputs(path), sets))
        return compiled_for(axes), sizes_in(sets), axes
    try:
        compiled = compiled_for()
    except UnsupportedModelError:
        # What cannot be run at open sizes may be at one of these.
        if not any(sets):
            raise
        axes = _merged(_told(read_inputs(path), sets))
        return compiled_for(axes), sizes_in(sets), axes
    declared = declared_as(compiled.inputs, sets)
    if declared is not None:
        compiled = compiled_for(declared)
    return compiled, sizes_in(sets), declared


def declared_as(inputs: Sequence[TensorInfoLike], sets: Sequence[Asked]) -> Asked | None:
    """What the inputs have to be declared as for all these shapes; None if they fit as they are.

    Raises:
        InputError: If it is not told which input a shape is for.
    """
    told = _told(inputs, sets)
    known = {info.name: info.shape for info in inputs}
    pairs = [(known.get(name, ()), axes) for one in told for name, axes in one.items()]
    if all(isinstance(axis, int) for _, axes in pairs for axis in axes):
        # Where no declaration helps, whoever takes the sizes says what is wrong.
        unfit = any(len(size) != len(axes) for size, axes in pairs)
        if unfit or all(
            isinstance(size, str) or size == axis
            for sizes, axes in pairs
            for size, axis in zip(sizes, axes, strict=True)
        ):
            return None
    return _merged(told)


def _told(inputs: Sequence[TensorInfoLike], sets: Sequence[Asked]) -> list[Asked]:
    """Each shape under the name of its input."""
    from saccade.cli._signature import name_the_only  # noqa: PLC0415 - see above

    return [name_the_only(one, inputs) if "" in one else one for one in sets]


def _merged(sets: Sequence[Asked]) -> Asked:
    """One declaration for all; an axis that they do not agree on may be of any size."""
    merged: dict[str, tuple[Axis, ...]] = {}
    for name, axes in ((name, axes) for one in sets for name, axes in one.items()):
        before = merged.setdefault(name, axes)
        if len(before) != len(axes):
            raise InputError(f"--shape gives input {name!r} {len(before)} axes, and {len(axes)}")
        merged[name] = tuple(a if a == b else None for a, b in zip(before, axes, strict=True))
    return merged


def sizes_in(sets: Sequence[Asked]) -> list[Sizes]:
    """The shapes that are of numbers alone; where there are names, sizes are left to defaults."""
    return [
        {
            name: tuple(axis for axis in axes if isinstance(axis, int))
            for name, axes in one.items()
            if all(isinstance(axis, int) for axis in axes)
        }
        for one in sets
    ]


def redeclared(path: Path, axes: Asked) -> onnx.ModelProto:
    """The file with its inputs declared otherwise, for other engines to run.

    Sizes that it states of what is computed were of its own inputs, and are left out.
    """
    import onnx  # noqa: PLC0415 - for who compares

    model = onnx.load(str(path))
    for value in model.graph.input:
        if value.name in axes:
            del value.type.tensor_type.shape.dim[:]
            for axis in axes[value.name]:
                dim = value.type.tensor_type.shape.dim.add()
                if isinstance(axis, int):
                    dim.dim_value = axis
                elif axis is not None:
                    dim.dim_param = axis
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return model
