"""`saccade compare`: are the answers the same as another engine's?"""

# ruff: noqa: PLC0415 - NumPy and the engines are imported when the command runs, not for --help

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    InputOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_onnx,
    input_paths,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say_all, say_fitted
from saccade.cli._shape_texts import parse_shapes
from saccade.errors import OptionError
from saccade.tables import Column, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx

    from saccade.testing.compare import Comparison

__all__ = ["compare"]

_ENGINES = "onnxruntime|reference"
AgainstOption = Annotated[
    str,
    typer.Option(
        metavar=_ENGINES,
        help="Whose answers are right.",
        autocompletion=lambda: _ENGINES.split("|"),
    ),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="R",
        help="Largest relative error; default: 2e-5 for fp32.",
    ),
]
FloorOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="A", help="Difference of an element that is none; default: 1e-6."
    ),
]
LayersOption = Annotated[
    bool,
    typer.Option(
        "--layers", help="Compare every value that inputs decide (which keeps layers unfused)."
    ),
]


def compare(
    model: ModelArgument,
    *,
    against: AgainstOption = "onnxruntime",
    layers: LayersOption = False,
    input_: InputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
    tolerance: ToleranceOption = None,
    floor: FloorOption = None,
    json: JsonOption = None,
) -> None:
    """Compare MODEL's outputs with another engine's; exit status 1 when they differ too much.

    An output is ok when its relative error is at most --tolerance, all of it and its outermost ring
    of pixels alone, or when no element differs by more than --floor.
    """
    shapes = parse_shapes(shape)
    path = existing_onnx(model)
    check_outputs(path, input_paths(input_), json=json)
    from saccade.cli._feeds import make_feeds
    from saccade.cli._model import compile_model
    from saccade.cli._progress import working
    from saccade.cli._reference import EXPECTATIONS, every_value
    from saccade.cli._shapes import declared_as, redeclared, sizes_in, told
    from saccade.cli._signature import is_half, read_inputs
    from saccade.testing.compare import (
        ABSOLUTE_FLOOR,
        BF16_TOLERANCE,
        FP16_TOLERANCE,
        FP32_TOLERANCE,
        compare_outputs,
    )

    if against not in EXPECTATIONS:
        raise OptionError(f"--against {against!r} is not one of {', '.join(EXPECTATIONS)}")
    # TF32 has as many bits of mantissa as float16.
    coarse = {"fp16": FP16_TOLERANCE, "tf32": FP16_TOLERANCE, "bf16": BF16_TOLERANCE}
    if tolerance is None:
        tolerance = coarse.get(precision, FP16_TOLERANCE if is_half(path) else FP32_TOLERANCE)
    floor = ABSOLUTE_FLOOR if floor is None else floor
    asked = told(read_inputs(path), [shapes])
    axes = declared_as(read_inputs(path), asked)
    source: Path | onnx.ModelProto = path if axes is None else redeclared(path, axes)
    source = every_value(source) if layers else source
    compiled = compile_model(
        source if layers else path,
        shapes=axes,
        device=device,
        precision=precision,
        threads=threads,
        allow_reference=allow_reference or None,
    )
    (sizes,) = sizes_in(asked)
    feeds = make_feeds(compiled.inputs, input_, sizes)
    with working(f"running {against}"):
        expected = EXPECTATIONS[against](source, feeds, allow_reference)
    results = compare_outputs(compiled.run(feeds), expected)
    say_all(_table(results, tolerance, floor))
    say_fitted(_legend(against, tolerance, floor))
    differing = [one for one in results if not one.within(tolerance, floor)]
    rows = [asdict(one) | {"ok": one not in differing} for one in results]
    about = {"model": str(path), "against": against, "tolerance": tolerance, "floor": floor}
    # Infinity and NaN are no JSON.
    give_json(json, about | {"ok": not differing, "outputs": list(map(_finite, rows))})
    if differing:
        raise typer.Exit(1)


def _table(results: Sequence[Comparison], tolerance: float, floor: float) -> list[str]:
    head = (
        Column("output", left=True), Column("relative L2"), Column("outer ring"),
        Column("largest"), Column("verdict", left=True),
    )  # fmt: skip
    rows = []
    for one in results:
        ring = "-" if one.ring_l2 is None else f"{one.ring_l2:.2e}"
        ok = one.within(tolerance, floor)
        verdict = "ok" if ok else "differs" if one.problem else f"above {tolerance:.0e}"
        rows.append((one.name, f"{one.relative_l2:.2e}", ring, f"{one.largest:.2e}", verdict))
    return fitted(head, rows, [one.problem or "" for one in results], named="output")


def _legend(against: str, tolerance: float, floor: float) -> Iterator[str]:
    yield ""
    yield f"relative L2: ‖ours - theirs‖ / ‖theirs‖ over all elements; theirs is {against}'s"
    yield "outer ring: the same over the outermost pixels alone, where wrong padding shows"
    yield "largest: the largest difference of one element"
    yield f"ok: both norms at most {tolerance:.0e}, or no element differs by more than {floor:.0e}"


def _finite(row: dict[str, object]) -> dict[str, object]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
