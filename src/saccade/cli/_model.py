"""The engine as the commands see it: compiled late, and with the inputs of the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.cli._print import say
from saccade.cli._progress import working
from saccade.cli._shape_texts import usual_shapes
from saccade.cli._shapes import Asked, Sizes, declared_as, merged, sizes_in, told
from saccade.errors import UnsupportedModelError

if TYPE_CHECKING:
    import onnx

    from saccade.cli._images import Preparation
    from saccade.cli._types import Arrays, ModelLike, PlanLike

__all__ = ["compile_for", "compile_model", "compile_shaped", "warn_of_refusals"]

_MOST_WARNINGS = 5


def compile_model(
    source: Path | onnx.ModelProto,
    *,
    algorithms: Path | None = None,
    shapes: Asked | None = None,
    **options: str | int | Path | None,
) -> ModelLike:
    """`saccade.compile`, with a spinner and the options that are given (are not None)."""
    import saccade  # noqa: PLC0415 - NumPy and the engine are not needed before

    package: Any = saccade
    label = source if isinstance(source, Path) else "the model"
    with working(f"compiling {label}"):
        given = {**options, "algorithms": algorithms, "shapes": shapes}
        chosen = {name: value for name, value in given.items() if value is not None}
        model: ModelLike = package.compile(source, **chosen)
    return model


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
    from saccade.cli._signature import read_inputs  # noqa: PLC0415 - NumPy, for who runs a model

    def compiled_for(shapes: Asked | None = None) -> ModelLike:
        return compile_model(path, algorithms=algorithms, shapes=shapes, **options)

    if any(not isinstance(axis, int) for one in sets for axes in one.values() for axis in axes):
        sets = told(read_inputs(path), sets)
        axes = merged(sets)
        return compiled_for(axes), sizes_in(sets), axes
    try:
        compiled = compiled_for()
    except UnsupportedModelError:
        # What cannot be run at open sizes may be at one of these.
        if not any(sets):
            raise
        sets = told(read_inputs(path), sets)
        axes = merged(sets)
        return compiled_for(axes), sizes_in(sets), axes
    sets = told(compiled.inputs, sets)
    declared = declared_as(compiled.inputs, sets)
    if declared is not None:
        compiled = compiled_for(declared)
    return compiled, sizes_in(sets), declared


def compile_for(
    path: Path,
    files: Sequence[str] | None,
    shapes: Asked,
    *,
    algorithms: Path | None = None,
    preparation: Preparation | None = None,
    **options: str | int | None,
) -> tuple[ModelLike, Arrays]:
    """A compiled model and what to run it on, see `make_feeds`; warns of algorithms not taken."""
    from saccade.cli._feeds import make_feeds  # noqa: PLC0415 - NumPy, which inspect does without

    shapes = usual_shapes(path, shapes, files)
    compiled, (sizes,), _ = compile_shaped(path, [shapes], algorithms=algorithms, **options)
    feeds = make_feeds(compiled.inputs, files, sizes, preparation)
    if algorithms is not None:
        warn_of_refusals(compiled.plan(**{name: array.shape for name, array in feeds.items()}))
    return compiled, feeds


def warn_of_refusals(plan: PlanLike) -> None:
    """Say on stderr which of the user's algorithms were not taken, and why."""
    for reason in plan.refused[:_MOST_WARNINGS]:
        say(f"saccade: warning: default taken for {reason}", sys.stderr)
    more = len(plan.refused) - _MOST_WARNINGS
    if more > 0:
        say(f"saccade: warning: and for {more} more; see inspect --reasons", sys.stderr)
