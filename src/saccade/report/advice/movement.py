"""Steps that compute little, and move much."""

from __future__ import annotations

from saccade.report.advice.found import Found, command, found_in
from saccade.report.types import Report, ReportStep

__all__ = ["layout_copies", "lone_elementwise", "moves", "type_conversions"]

_MOVES = "movement."
_ELEMENTS = "pointwise."
"""How names of kernels begin that move elements, or compute each of its own."""


def layout_copies(report: Report) -> Found | None:
    """Values that are copied into another order, for their readers or for the caller."""
    lost = {i: step.time for i, step in enumerate(report.steps) if step.reorder and step.time}
    if not lost:
        return None
    worst = report.steps[max(lost, key=lambda i: lost[i])]
    return found_in(
        report, lost,
        "{count} only copied values, into another layout or place",
        "Neighbours want a value in different orders, or beside others, so it is written twice. "
        "The longest is "
        f"{worst.name}: {worst.note.removeprefix('copy: ')}",
        _remedy(report, worst),
    )  # fmt: skip


def _remedy(report: Report, step: ReportStep) -> str:
    places = [place.where for place in step.outputs]
    if any(where.startswith("output") for where in places):
        return (
            "# Let the model end in the order that it computes in; a Transpose there is a view.\n"
            "output = output.permute(0, 2, 3, 1)  # in the module, before torch.onnx.export"
        )
    return (
        "# What wants the other order is named here; tuning may find neighbours that agree.\n"
        + command(report, "inspect", "--reasons") + "\n" + command(report, "tune")
    )  # fmt: skip


def moves(report: Report) -> Found | None:
    """Steps of the model that hand on elements as they are."""
    lost = {
        i: step.time
        for i, step in enumerate(report.steps)
        if step.kernel.startswith(_MOVES) and not step.reorder and step.time
    }
    return found_in(
        report, lost,
        "{count} of the model moved data and computed nothing",
        "Transposes, slices, joins and padding that no neighbour could take over read and write "
        "all of their elements once more.",
        "# Leave these out of the model, or put them where their neighbours are convolutions:\n"
        "# {names}\n" + command(report, "inspect", "--stage compose_moves"),
    )  # fmt: skip


def lone_elementwise(report: Report) -> Found | None:
    """Element by element operators that became part of no neighbour."""
    lost = {
        i: step.time
        for i, step in enumerate(report.steps)
        if step.kernel.startswith(_ELEMENTS) and not step.reorder and not _converts(step)
    }
    return found_in(
        report, lost,
        "{count} computed element by element, apart from their neighbours",
        "Within the step that makes their operand they would cost next to nothing; apart they read "
        "and write whole values. Most often something else reads the value in between.",
        "# Why each of them was left alone stands below the graph:\n"
        + command(report, "inspect", "--stage fuse_epilogue"),
    )  # fmt: skip


def type_conversions(report: Report) -> Found | None:
    """Steps that only change the element type."""
    lost = {i: step.time for i, step in enumerate(report.steps) if _converts(step) and step.time}
    return found_in(
        report, lost,
        "{count} only converted element types",
        "Parts of the model are of different types; what lies between them is read and written "
        "once more. It is about {names}.",
        "# Export the model in one type, for example all of it in float32:\n"
        "torch.onnx.export(model.float(), example.float(), path)",
    )  # fmt: skip


def _converts(step: ReportStep) -> bool:
    """Whether a step gives its operand in another type, and does nothing else."""
    if not step.kernel.startswith(_ELEMENTS) or len(step.inputs) != 1 or len(step.outputs) != 1:
        return False
    source, result = step.inputs[0], step.outputs[0]
    # A cast alone counts no operation, or one for each element.
    count = 1
    for size in result.shape:
        count *= size
    return source.dtype != result.dtype and step.flops <= count
