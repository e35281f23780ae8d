"""A profile as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from saccade.errors import printable
from saccade.profile.peer import PeerLayer, PeerLayers
from saccade.tables import Column, fitted

if TYPE_CHECKING:
    from saccade.profile.types import FamilyTime, Profile, StepTime

__all__ = ["table"]

_RATES = {False: ("GFLOP/s", "GB/s", "roofline"), True: ("TFLOP/s", "TB/s", "roofline")}
_ABOVE = "roofline above 100%: from caches rather than memory, or fewer operations by Winograd"
Row = tuple[str, ...]


def table(profile: Profile, peer: PeerLayers | None = None) -> str:
    """Steps, then totals by kernel, then where the rest of the time is."""
    if not profile.steps:
        return "there is nothing to time"
    times, left = peer.beside(s.name for s in profile.steps) if peer else ({}, ())
    # Without its version, which would widen the column.
    name = peer.engine.partition(" ")[0] if peer else ""
    told = dict.fromkeys(fact for s in profile.steps for facts in s.facts for fact in facts)
    head = [
        Column("step", left=True),
        Column("µs"),
        Column("%"),
        *map(Column, _RATES[profile.tera]),
    ]
    rows = [_step_row(profile, step) for step in profile.steps]
    if peer:
        head += [Column(name), Column("ratio")]
        # Steps may share a name (the parts of a Concat): the layer stands beside the first.
        unseen = dict(times)
        rows = [
            row + _peer_cells(step.microseconds, unseen.pop(step.name, None))
            for row, step in zip(rows, profile.steps, strict=True)
        ]
    head += [Column(more, spare=True) for more in ("busy", *told)]
    rows = [
        (*row, f"{100 * step.busy:.0f}%", *_facts(step, told))
        for row, step in zip(rows, profile.steps, strict=True)
    ]
    lines = fitted(head, rows, map(_how, profile.steps), named="step")
    lines += ["", *_families(profile), "", *_ending(profile)]
    if peer:
        lines += _peer_ending(profile, peer, times, left)
    return "\n".join(lines)


def _step_row(profile: Profile, step: StepTime) -> Row:
    return (
        f"{step.op} {step.name}".lstrip(),
        f"{step.microseconds:.1f}",
        f"{100 * step.microseconds / profile.total:.1f}",
        *_rates(profile, step.gflops, step.gbytes),
        f"{100 * step.roofline:.0f}%",
    )


def _how(step: StepTime) -> str:
    """The kernel with its config, and the times of several phases."""
    config = "" if step.config == step.op else step.config
    phases = "+".join(f"{time:.1f}" for time in step.phases) if len(step.phases) > 1 else ""
    parts = f"{step.kernel} {config}".rstrip(), f"phases {phases}" if phases else ""
    return "; ".join(filter(None, parts))


def _rates(profile: Profile, gflops: float, gbytes: float) -> Row:
    """In the units of the head."""
    if profile.tera:
        return (f"{gflops / 1e3:.1f}", f"{gbytes / 1e3:.2f}")
    return (f"{gflops:.1f}", f"{gbytes:.1f}")


def _facts(step: StepTime, told: Iterable[str]) -> Row:
    """A cell for each fact; once if all phases agree, else theirs one after the other."""
    cells = []
    for name in told:
        values = [str(facts.get(name, "")) for facts in step.facts]
        cells.append(values[0] if len(set(values)) == 1 else "+".join(values))
    return tuple(cells)


def _peer_cells(ours: float, theirs: float | None) -> Row:
    return ("", "") if theirs is None else (f"{theirs:.1f}", f"{theirs / ours:.2f}")


def _families(profile: Profile) -> list[str]:
    def row(family: FamilyTime) -> Row:
        time = family.microseconds
        return (
            family.kernel,
            str(family.steps),
            f"{time:.1f}",
            f"{100 * time / profile.total:.1f}",
            *_rates(profile, family.flops / time / 1e3, family.bytes / time / 1e3),
            f"{100 * family.floor / time:.0f}%",
        )

    head = [Column("kernel", left=True), *map(Column, ("steps", "µs", "%", *_RATES[profile.tera]))]
    return fitted(head, [row(family) for family in profile.families], named="kernel")


def _ending(profile: Profile) -> list[str]:
    shares, whole = profile.shares, profile.whole
    above = any(step.roofline > 1 for step in profile.steps)
    more = [] if whole is None else [f"a run launched at once takes {whole:.1f} µs"]
    return [
        f"total {profile.total:.1f} µs on {profile.threads} thread(s): "
        f"{100 * shares.working:.1f}% in kernels, {100 * shares.imbalance:.1f}% imbalance, "
        f"{100 * shares.barriers:.1f}% barriers",
        f"floor {profile.floor:.1f} µs: {100 * profile.floor / profile.total:.0f}% of it reached",
        *more,
        *([_ABOVE] if above else []),
    ]


def _peer_ending(
    profile: Profile, peer: PeerLayers, times: dict[str, float], left: Sequence[PeerLayer]
) -> list[str]:
    matched = sum(times.values())
    ours = sum(step.microseconds for step in profile.steps if step.name in times)
    rest = sum(layer.microseconds for layer in left)
    lines = [
        f"{peer.engine}: {matched + rest:.1f} µs in layers; "
        f"{matched:.1f} beside {ours:.1f} of ours, {rest:.1f} without a match"
    ]
    longest = sorted(left, key=lambda layer: -layer.microseconds)[:5]
    lines += [f"  {la.microseconds:.1f} µs {la.kind} {la.names[0]}" for la in longest]
    return list(map(printable, lines))
