"""`saccade warm`: programs for sizes to come, left in the cache for later starts."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    ModelArgument,
    PrecisionOption,
    ProgramShapesOption,
    ThreadsOption,
    existing_model,
    parse_programs,
)
from saccade.cli._print import say

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
) -> None:
    """Prepare MODEL for input sizes: later starts with the same options find them in the cache."""
    # Without --shape one program, of the sizes that `fixed_shapes` finds.
    sets = parse_programs(shape)
    path = existing_model(model)
    from saccade.cli._progress import working
    from saccade.cli._shapes import compile_shaped
    from saccade.cli._signature import fixed_shapes

    compiled, asked, declared = compile_shaped(
        path,
        sets,
        device=device,
        precision=precision,
        threads=threads,
        algorithms=import_algorithms,
        allow_reference=allow_reference or None,
    )
    sizes = [fixed_shapes(compiled.inputs, one) for one in asked]
    with working(f"preparing {len(sizes)} program(s)"):
        compiled.warm(*sizes)
    say(f"{path}: {len(sizes)} program(s) ready")
    if declared is not None:
        say(f"the file declares other shapes: they are found with shapes={dict(declared)}")
