"""A plan as a table for people: one row a step, then memory, reorders and the floor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from saccade.errors import printable
from saccade.plan.floor import floor
from saccade.plan.rows import all_counted_steps
from saccade.plan.types import Plan, Ref, Step
from saccade.tables import Column, fitted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["called", "short_config", "table"]

_HEAD = (
    Column("#"),
    Column("step", left=True),
    Column("µs"),
    Column("MFLOP"),
    Column("MB"),
    Column("chunks", spare=True),
)
_LONGEST_LINE = 2000  # characters


def table(plan: Plan, width: int | None = None) -> str:
    """The plan as text; MB is what each operator reads and writes at least.

    Steps are called by operator and node. µs are estimates; those with a star were measured inside
    a program. Names come from a file and are escaped (`printable`).

    Args:
        plan: The plan.
        width: Characters of a line of the table; as many as the terminal has unless given.
    """
    rows = [_row(i, step) for i, step in enumerate(plan.steps)]
    lines = fitted(_HEAD, rows, [_how(plan, s) for s in plan.steps], named="step", width=width)
    summary = [printable(line, _LONGEST_LINE) for line in _summary(plan)]
    bodies = (line for step in plan.steps for line in _bodies(step))
    return "\n".join([*lines, "", *summary, *bodies])


def _bodies(step: Step) -> Iterator[str]:
    """The plans inside of a step, indented."""
    for number, body in enumerate(step.bodies):
        which = f" ({number + 1} of {len(step.bodies)})" if len(step.bodies) > 1 else ""
        yield ""
        yield f"body of {printable(step.name)}{which}, a program of its own:"
        yield from (f"  {line}".rstrip() for line in table(body).splitlines())


def _row(i: int, step: Step) -> tuple[str, ...]:
    return (
        str(i),
        called(step),
        f"{step.estimate:.1f}{'*' if step.measured else ' '}",
        f"{step.work.flops / 1e6:.2f}",
        f"{step.work.bytes / 1e6:.2f}",
        "+".join(str(phase.chunks) for phase in step.phases),
    )


def called(step: Step) -> str:
    """A step by its operator and its node."""
    return f"{step.op.title} {printable(step.name)}"


def _how(plan: Plan, step: Step) -> str:
    """The kernel with its config, where the results lie, and how many kernels were passed over."""
    config = short_config(step.phases[0].config) if step.phases else ""
    where = ", ".join(_where(plan, slot.ref) for slot in step.outputs)
    parts = (
        f"{step.kernel or f'{step.by} (host)'} {config}".rstrip(),
        f"to {where}" if where else "",
        f"{len(step.reasons)} passed over" if step.reasons else "",
    )
    return "; ".join(filter(None, parts))


def short_config(config: DataclassInstance) -> str:
    """A config for people: what is off, empty or of no effect is left out, nothing is cut."""
    parts = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, bool):
            parts += [field.name] if value else []
        elif isinstance(value, int | float):
            parts.append(f"{field.name} {value:g}")
        # `$0` is an expression that changes nothing.
        elif isinstance(value, str) and value and value != "$0":
            parts.append(value)
        elif isinstance(value, tuple) and value:
            parts.append(f"{field.name} {_listed(value)}")
    return " ".join(parts)


def _listed(value: object) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_listed, value))})"
    return str(value)


def _where(plan: Plan, ref: Ref) -> str:
    if ref.base == 0:
        return f"arena+{ref.offset}"
    if ref.base < plan.output_base:
        return f"{printable(plan.inputs[ref.base - 1].name)}+{ref.offset}"
    return f"{printable(plan.outputs[ref.base - plan.output_base].name)}+{ref.offset}"


def _summary(plan: Plan) -> list[str]:
    # Runs read what is packed: what it was made from does not count.
    read = [c for c, used in zip(plan.constants, plan.constants_read, strict=True) if used]
    packed = sum(c.nbytes for c in read if c.packing is not None)
    raw = sum(c.nbytes for c in read if c.packing is None)
    hosts = sum(step.kernel is None and not step.bodies for step in plan.steps)
    running = sum(bool(step.bodies) for step in plan.steps)
    least = floor(plan)
    sizes = ", ".join(f"{name}={size}" for name, size in plan.sizes.items()) or "none"
    measured = sum(step.measured for step in plan.steps)
    lines = [
        f"sizes: {sizes}; {plan.threads} thread(s), {plan.isa}, planned for {plan.speeds.name}",
        f"arena {plan.arena_bytes / 1e6:.2f} MB, "
        f"at most {plan.live_bytes / 1e6:.2f} MB live at once",
        f"constants: {packed / 1e6:.2f} MB packed, {raw / 1e6:.2f} MB as in the model",
        f"{len(plan.steps)} steps, {hosts} on the host, "
        + (f"{running} with bodies, " if running else "")
        + f"estimated {plan.estimate:.0f} µs"
        + (f" ({measured} measured*)" if measured else ""),
        f"floor {least.total:.0f} µs: arithmetic {least.arithmetic:.0f}, "
        f"memory {least.memory:.0f}, barriers {least.barriers:.0f}",
        _layouts(plan),
        *(
            f"{len(one.steps)} step(s) have as many rows as "
            f"{printable(plan.outputs[one.source].name)} says, {one.bound} at most: "
            f"{one.micros:.0f} µs"
            for one in all_counted_steps(plan)
        ),
        f"{len(plan.reorders)} reorder(s)",
    ]
    lines += [f"  {printable(step.name)}: {step.note}" for step in plan.reorders]
    lines += [
        f"  on the host: {printable(s.name)}: "
        f"{'; '.join(s.reasons) or f'{plan.device} has no kernel for {s.op.title}'}"
        for s in plan.steps
        if s.kernel is None and not s.bodies
    ]
    lines += [f"note: {note}" for note in plan.notes]
    lines += [f"tuned choice not taken: {reason}" for reason in plan.refused]
    return lines


def _layouts(plan: Plan) -> str:
    found = plan.searched
    if found is None:
        return "layouts by rule: nothing to choose"
    gap = f"at most {found.gap:.1f} µs from the best" if found.gap else "exact"
    return (
        f"layouts searched for {found.values} value(s), {gap}; "
        f"{found.saved:.1f} µs less than by rule"
    )
