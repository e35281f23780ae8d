"""The table of PyTorch operators in the README, from what `saccade bench-ops --json` recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import RecordError

__all__ = ["FILE", "GPU_FILE", "render", "render_gpu"]

FILE, GPU_FILE = "operators.json", "operators_cuda.json"
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
GPU_DTYPES = {"float32": "fp32", "float16": "fp16"}
PEERS = {"torchvision": "torchvision", "torch": "PyTorch", "copy": "a copy"}
_OURS = "float32"  # in place of a peer
_KEYS = ("operator", "case", "peer", "dtype", "threads", "ours_ms", "peer_ms", "ratio", "aim")


def render(path: Path) -> str:
    """Markdown: a row for each case, its figures in each dtype side by side.

    Raises:
        RecordError: A row is not what `bench-ops` writes.
    """
    document, rows = _read(path)
    beside = [row for row in rows if row["peer"] in PEERS]
    gains = {(r["operator"], r["case"], r["dtype"]): r["ratio"] for r in rows if r["peer"] == _OURS}
    calls = [row for row in rows if row["peer"] == "empty"]
    return "\n".join((
        _circumstances(document["machine"], rows), "", *_table(beside, gains), *_calls(calls),
    ))  # fmt: skip


def render_gpu(path: Path) -> str:
    """The same for a GPU: microseconds, float32 and float16 side by side.

    Raises:
        RecordError: A row is not what `bench-ops` writes.
    """
    document, rows = _read(path)
    on = f"{document['gpu']}; {_versions(rows)}."
    head = ["operator", "case", "beside"]
    for name in GPU_DTYPES.values():
        head += [f"{name}: ours, µs", "peer, µs", "peer over ours", "aim"]
    lines = [on, "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    known = {(r["operator"], r["case"], r["peer"], r["dtype"]): r for r in rows}
    for operator, case, peer in dict.fromkeys(key[:3] for key in known if key[2] in PEERS):
        cells = [operator, case, PEERS[peer]]
        for dtype in GPU_DTYPES:
            row = known.get((operator, case, peer, dtype))
            cells += [""] * 4 if row is None else _gpu_figures(row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _read(path: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    document = json.loads(path.read_text())
    rows = document["results"]
    for row in rows:
        if any(key not in row for key in _KEYS) or not _positive(row["ours_ms"], row["peer_ms"]):
            raise RecordError(f"{path.name}: not a row of bench-ops: {row}")
    if not rows:
        raise RecordError(f"{path.name}: no rows")
    return document, rows


def _gpu_figures(row: Mapping[str, Any]) -> list[str]:
    ours, peer = (_number(1e3 * row[key]) for key in ("ours_ms", "peer_ms"))
    return [ours, peer, _ratio(row["ratio"]), f"{row['aim_us']:g}" if "aim_us" in row else ""]


def _positive(*values: float) -> bool:
    return all(math.isfinite(value) and value > 0 for value in values)


def _circumstances(machine: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    widths = "/".join(str(n) for n in sorted({row["threads"] for row in rows}))
    return (
        f"{machine['cpu']} (family {machine['family']}, model {machine['model']}), "
        f"{widths} threads, medians; {_versions(rows)}."
    )


def _versions(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of the peers, and when they were timed."""
    days = sorted({row["taken"][:10] for row in rows})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    versions: dict[str, str] = {}
    for row in rows:
        versions |= row["versions"]
    peers = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"{peers}; measured {when}"


def _table(
    rows: Sequence[Mapping[str, Any]], gains: Mapping[tuple[str, str, str], float]
) -> Iterator[str]:
    """A last column says how much faster ours are in bf16, where both took turns."""
    head = ["operator", "case", "beside"]
    for name in DTYPES.values():
        head += [f"{name}: ours, ms", "peer, ms", "peer over ours"]
    head += ["aim", "our fp32 over our bf16"]
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    known = {(r["operator"], r["case"], r["peer"], r["dtype"]): r for r in rows}
    for operator, case, peer in dict.fromkeys(key[:3] for key in known):
        cells, aim = [operator, case, PEERS[peer]], 0.0
        for dtype in DTYPES:
            row = known.get((operator, case, peer, dtype))
            aim = aim if row is None else row["aim"]
            cells += ["", "", ""] if row is None else _figures(row)
        gain = gains.get((operator, case, "bfloat16"))
        cells += [f"{aim:g}x", "" if gain is None else _ratio(gain)]
        yield f"| {' | '.join(cells)} |"


def _calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What small calls take beside operators that do nothing."""
    if not rows:
        return
    yield from ("", "Calls of 8 channels, microseconds over an operator that does nothing:", "")
    yield f"| operator | call | {' | '.join(DTYPES.values())} | aim |"
    yield "|---" * (len(DTYPES) + 3) + "|"
    known = {(r["operator"], r["case"], r["dtype"]): r for r in rows}
    for operator, case in dict.fromkeys(key[:2] for key in known):
        found = [known.get((operator, case, dtype)) for dtype in DTYPES]
        cells = ["" if row is None else _number(row["over_us"]) for row in found]
        aim = next(row["aim"] for row in found if row is not None)
        yield f"| {' | '.join((operator, case, *cells))} | {aim:g} |"


def _figures(row: Mapping[str, Any]) -> list[str]:
    return [_number(row["ours_ms"]), _number(row["peer_ms"]), _ratio(row["ratio"])]


def _ratio(value: float) -> str:
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def _number(value: float) -> str:
    """Three significant digits without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
