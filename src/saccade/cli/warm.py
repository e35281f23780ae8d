"""`saccade warm`: programs for sizes to come, left in the cache for later starts."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ProgramShapesOption,
    ThreadsOption,
    existing_model,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say, say_fitted
from saccade.cli._shape_texts import parse_programs

__all__ = ["warm"]


def warm(
    model: ModelArgument,
    *,
    shape: ProgramShapesOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    json: JsonOption = None,
) -> None:
    """Prepare MODEL for input sizes: later starts with the same options find them in the cache."""
    # Without --shape one program, of the sizes that `program_shapes` finds.
    sets = parse_programs(shape)
    path = existing_model(model)
    check_outputs(path, [import_algorithms], json=json)
    from saccade.cli._model import compile_shaped
    from saccade.cli._progress import working
    from saccade.cli._signature import program_shapes

    compiled, asked, declared = compile_shaped(
        path,
        sets,
        device=device,
        precision=precision,
        threads=threads,
        algorithms=import_algorithms,
        allow_reference=allow_reference or None,
    )
    sizes = program_shapes(compiled.inputs, asked)
    with working(f"preparing {len(sizes)} program(s)"):
        compiled.warm(*sizes)
    say(f"{path}: {len(sizes)} program(s) ready")
    if declared is not None:
        say_fitted([f"the file declares other shapes: found with shapes={dict(declared)}"])
    programs = [{name: list(shape) for name, shape in one.items()} for one in sizes]
    shapes = {name: list(axes) for name, axes in (declared or {}).items()}
    give_json(json, {"model": str(path), "programs": programs, "shapes": shapes or None})
