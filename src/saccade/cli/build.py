"""`saccade build`: a model as one file that runs where no compiler is."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    ImportOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ProgramShapesOption,
    existing_model,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say
from saccade.cli._shape_texts import parse_programs
from saccade.errors import OptionError

__all__ = ["build"]

BuildDeviceOption = Annotated[str, typer.Option(metavar="cpu|cuda", help="Where it is to run.")]
ArchOption = Annotated[
    str | None, typer.Option(metavar="sm_90", help="Architecture of the GPU: sm_80 to sm_100.")
]
BuildMachineOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The GPU to choose kernels for: h200, a100, …")
]
BundleOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")
]


def build(
    model: ModelArgument,
    *,
    output: BundleOption,
    device: BuildDeviceOption = "cpu",
    arch: ArchOption = None,
    machine: BuildMachineOption = None,
    precision: PrecisionOption = "fp32",
    shape: ProgramShapesOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    json: JsonOption = None,
) -> None:
    """Compile MODEL for another machine, as one file that needs no compiler to run.

    Choices that were tuned on such a machine are taken from a file that `tune` exported.
    """
    # Without --shape one program, of the sizes that `program_shapes` finds.
    sets = parse_programs(shape)
    path = existing_model(model)
    check_outputs(path, [import_algorithms], output=output, json=json)
    from saccade.backends.cuda.gpus import machine_for
    from saccade.cli._model import compile_shaped, warn_of_refusals
    from saccade.cli._progress import working
    from saccade.cli._signature import program_shapes

    if device != "cuda" and (arch, machine) != (None, None):
        raise OptionError("--arch and --machine are for --device cuda: a CPU's is this one")
    chosen = machine_for(arch, machine) if device == "cuda" else None
    compiled, asked, _ = compile_shaped(
        path,
        sets,
        device=device,
        precision=precision,
        machine=chosen,
        algorithms=import_algorithms,
        allow_reference=allow_reference or None,
    )
    sizes = program_shapes(compiled.inputs, asked)
    if import_algorithms is not None:
        for one in sizes:
            warn_of_refusals(compiled.plan(**one))
    with working(f"building {output} for {chosen or device}"):
        nbytes = compiled.save(output, *sizes)
    say(f"wrote {output}: {nbytes / 1e6:.1f} MB, {len(sizes)} program(s), for {chosen or device}")
    programs = [{name: list(shape) for name, shape in one.items()} for one in sizes]
    built = {"model": str(path), "output": str(output), "bytes": nbytes, "programs": programs}
    give_json(json, {**built, "device": device, "machine": chosen, "precision": precision})
