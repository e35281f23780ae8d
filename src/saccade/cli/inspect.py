"""`saccade inspect`: what the compiler made of a model, without running it."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    parse_shapes,
)
from saccade.cli._print import say_all
from saccade.errors import OptionError

if TYPE_CHECKING:
    from saccade.cli._types import ModelLike, StepLike

__all__ = ["inspect"]

StageOption = Annotated[
    str | None, typer.Option(metavar="PASS", help="Print the graph after this pass.")
]
AssemblyOption = Annotated[
    str | None,
    typer.Option(
        "--assembly", "--sass", metavar="STEPS",
        help="Print the machine code of steps whose names fit: conv1, layer1*, '*'.",
    ),
]  # fmt: skip
MachineOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Plan as another machine would: zen4, h200, …"),
]


def inspect(
    model: ModelArgument,
    *,
    stage: StageOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan.")] = False,
    reasons: Annotated[bool, typer.Option("--reasons", help="Print why each kernel.")] = False,
    assembly: AssemblyOption = None,
    stages: Annotated[bool, typer.Option("--stages", help="List the passes.")] = False,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    machine: MachineOption = None,
) -> None:
    """Print MODEL's signature, its graph after a pass, its plan, reasons for kernels, or code."""
    if sum((stage is not None, plan, reasons, stages, assembly is not None)) > 1:
        raise OptionError("choose one of --stage, --plan, --reasons, --assembly and --stages")
    shapes = parse_shapes(shape)
    path = existing_model(model)
    from saccade.cli._shapes import compile_shaped
    from saccade.cli._signature import fixed_shapes

    compiled, (sizes,), _ = compile_shaped(
        path,
        [shapes],
        device=device,
        precision=precision,
        threads=threads,
        algorithms=import_algorithms,
        machine=machine,
        allow_reference=allow_reference or None,
    )
    if stages:
        say_all(compiled.stages)
    elif stage is not None:
        if stage not in compiled.stages:
            raise OptionError(f"--stage {stage!r} is not one of {', '.join(compiled.stages)}")
        print(compiled.graph(stage))  # escaped, as the plan is
    elif plan:
        print(compiled.plan(**fixed_shapes(compiled.inputs, sizes)))
    elif reasons:
        made = compiled.plan(**fixed_shapes(compiled.inputs, sizes))
        say_all(line for step in made.steps for line in _reasons(step))
        say_all(f"tuned choice not taken for {reason}" for reason in made.refused)
    elif assembly is not None:
        found = compiled.assembly(assembly, **fixed_shapes(compiled.inputs, sizes))
        say_all(line for name, texts in found.items() for line in _code(name, texts))
    else:
        say_all(_signature(compiled))
        say_all(f"note: {remark}" for remark in compiled.remarks)


def _signature(compiled: ModelLike) -> Iterator[str]:
    for kind, infos in (("input", compiled.inputs), ("output", compiled.outputs)):
        for info in infos:
            shape = "x".join(map(str, info.shape)) or "scalar"
            yield f"{kind} {info.name}: {info.dtype} {shape}"
    yield f"stages: {', '.join(compiled.stages)}"


def _reasons(step: StepLike) -> Iterator[str]:
    """The step with its kernel, then one line for every candidate that was passed over."""
    yield f"{step.name}: {step.by}"
    for reason in step.reasons:
        parts = reason if isinstance(reason, tuple) else (reason,)
        yield f"    {': '.join(map(str, parts))}"


def _code(name: str, texts: Sequence[str]) -> Iterator[str]:
    """A line that names the step and the phase, then its code."""
    for index, text in enumerate(texts):
        yield f"{name}, phase {index + 1} of {len(texts)}:"
        # Tabs would be printed as escapes.
        yield from text.expandtabs().splitlines()
    if not texts:
        yield f"{name}: no code, it runs on the host or is a view"
