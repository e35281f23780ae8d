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
    ThreadsOption,
    existing_model,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say
from saccade.cli._shape_texts import parse_programs
from saccade.errors import OptionError
from saccade.memory import size_text

__all__ = ["build"]

BuildDeviceOption = Annotated[str, typer.Option(metavar="cpu|cuda", help="Where it is to run.")]
ArchOption = Annotated[
    str | None, typer.Option(metavar="sm_90", help="Architecture of the GPU: sm_80 to sm_100.")
]
BuildMachineOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[,NAME]",
        help="What to choose kernels for: a GPU (h200, a100, …), or one CPU or several, whose "
        "programs stand side by side (zen3, zen4, sapphire-rapids, …).",
    ),
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
    threads: ThreadsOption = None,
    shape: ProgramShapesOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    json: JsonOption = None,
) -> None:
    """Compile MODEL as one file that needs no compiler to run, for this machine or others.

    A CPU runs the programs of the machine that it counts as, or the best that it can. Choices that
    were tuned on such a machine are taken from a file that `tune` exported.
    """
    # Without --shape one program, of the sizes that `program_shapes` finds.
    sets = parse_programs(shape)
    path = existing_model(model)
    check_outputs(path, [import_algorithms], output=output, json=json)
    from saccade.backends.cuda.gpus import machine_for
    from saccade.cli._model import compile_shaped, warn_of_refusals
    from saccade.cli._progress import working
    from saccade.cli._signature import program_shapes
    from saccade.devices import device_named

    if device != "cuda" and arch is not None:
        raise OptionError("--arch is for --device cuda")
    chosen = machine_for(arch, machine) if device == "cuda" else None
    named = [] if machine is None or chosen else machine.split(",")
    machines = [name.strip() for name in named]
    for name in machines:
        device_named("cpu").team(name)  # which refuses those that nobody describes
    compiled, asked, _ = compile_shaped(
        path,
        sets,
        device=device,
        precision=precision,
        machine=chosen,
        threads=threads,
        algorithms=import_algorithms,
        allow_reference=allow_reference or None,
    )
    sizes = program_shapes(compiled.inputs, asked)
    if import_algorithms is not None:
        for one in sizes:
            warn_of_refusals(compiled.plan(**one))
    whom = chosen or ", ".join(machines) or device
    with working(f"building {output} for {whom}"):
        nbytes = compiled.save(output, *sizes, machines=machines)
    say(f"wrote {output}: {size_text(nbytes)}, {len(sizes)} program(s), for {whom}")
    programs = [{name: list(shape) for name, shape in one.items()} for one in sizes]
    built = {"model": str(path), "output": str(output), "bytes": nbytes, "programs": programs}
    about = {"device": device, "machine": chosen, "machines": machines, "precision": precision}
    give_json(json, {**built, **about})
