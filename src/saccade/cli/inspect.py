"""`saccade inspect`: what the compiler made of a model, without running it."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say_all, say_fitted
from saccade.cli._shape_texts import parse_shapes, usual_shapes
from saccade.errors import OptionError

if TYPE_CHECKING:
    from saccade.cli._shapes import Sizes
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
    json: JsonOption = None,
) -> None:
    """Print what MODEL is, its graph after a pass, its plan, reasons for kernels, or code.

    Reasons are a line for each step: the kernel with the microseconds that it is expected to take;
    below it every other one, with its estimate or why it cannot be taken.
    """
    views = sum((stage is not None, plan, reasons, stages, assembly is not None))
    if views > 1:
        raise OptionError("choose one of --stage, --plan, --reasons, --assembly and --stages")
    shapes = parse_shapes(shape)
    path = existing_model(model)
    check_outputs(path, [import_algorithms], json=json)
    from saccade.bundlefile import is_bundle
    from saccade.cli._model import compile_shaped
    from saccade.cli._signature import fixed_shapes

    if views == 0 and is_bundle(path):  # which need not run here
        _bundle(path, json)
        return
    compiled, (sizes,), _ = compile_shaped(
        path,
        [usual_shapes(path, shapes)],
        device=device,
        precision=precision,
        threads=threads,
        algorithms=import_algorithms,
        machine=machine,
        allow_reference=allow_reference or None,
    )
    facts: dict[str, Any] = {"model": str(path)}
    if stages:
        facts["stages"] = list(compiled.stages)
        say_all(compiled.stages)
    elif stage is not None:
        if stage not in compiled.stages:
            raise OptionError(f"--stage {stage!r} is not one of {', '.join(compiled.stages)}")
        facts["graph"] = compiled.graph(stage)
        say_fitted(facts["graph"].splitlines())
    elif plan:
        made = compiled.plan(**fixed_shapes(compiled.inputs, sizes))
        facts["plan"] = loads(made.to_json())
        say_fitted(str(made).splitlines())
    elif reasons:
        made = compiled.plan(**fixed_shapes(compiled.inputs, sizes))
        facts["steps"] = [_choice(step) for step in made.steps]
        say_fitted(line for step in facts["steps"] for line in _reasons(step))
        say_fitted(f"tuned choice not taken for {reason}" for reason in made.refused)
    elif assembly is not None:
        found = compiled.assembly(assembly, **fixed_shapes(compiled.inputs, sizes))
        facts["assembly"] = {name: list(texts) for name, texts in found.items()}
        say_all(line for name, texts in found.items() for line in _code(name, texts))
    else:
        facts = _whole(path, compiled, sizes)
    give_json(json, facts)


def _bundle(path: Path, json: Path | None) -> None:
    """Print what a bundle says of itself."""
    from saccade.cli._summary import bundle_facts, bundle_summary

    facts = bundle_facts(path)
    say_fitted(bundle_summary(facts))
    give_json(json, facts)


def _whole(path: Path, compiled: ModelLike, sizes: Sizes) -> dict[str, Any]:
    """Print the summary and the signature; what they say."""
    from saccade.cli._summary import end_facts, file_facts, signature, summary, work_facts

    facts = file_facts(path)
    work, unknown = work_facts(compiled, sizes)
    say_fitted(summary(facts, work, unknown))
    ends = end_facts(compiled.inputs, compiled.outputs)
    say_fitted(signature(ends))
    say_fitted([f"stages: {', '.join(compiled.stages)}"])
    say_fitted(f"note: {remark}" for remark in compiled.remarks)
    more = {"stages": list(compiled.stages), "remarks": list(compiled.remarks)}
    return {**facts, "run": work, **ends, **more}


def _choice(step: StepLike) -> dict[str, Any]:
    """What a step takes, what it is expected to need, and why it is no other."""
    return {
        "op": step.op.title,
        "name": step.name,
        "by": step.by,
        "estimate_us": None if step.kernel is None else step.estimate,
        "measured": step.measured,
        "reasons": list(map(str, step.reasons)),
    }


def _reasons(step: Mapping[str, Any]) -> Iterator[str]:
    """The step with its kernel, then one line for every candidate that was passed over."""
    how = "on the host"
    if step["estimate_us"] is not None:
        how = f"{step['estimate_us']:.1f} µs {'measured' if step['measured'] else 'estimated'}"
    yield f"{step['op']} {step['name']}: {step['by']}, chosen: {how}"
    for reason in step["reasons"]:
        yield f"    {reason}"


def _code(name: str, texts: Sequence[str]) -> Iterator[str]:
    """A line that names the step and the phase, then its code."""
    for index, text in enumerate(texts):
        yield f"{name}, phase {index + 1} of {len(texts)}:"
        # Tabs would be printed as escapes.
        yield from text.expandtabs().splitlines()
    if not texts:
        yield f"{name}: no code, it runs on the host or is a view"
