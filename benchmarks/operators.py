"""Tables of PyTorch operators, from what `saccade bench-ops --json` recorded on each machine."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import RecordError
from benchmarks.report_cpu import machine_name

__all__ = [
    "FILE",
    "GPU_FILE",
    "PEERS",
    "Document",
    "documents",
    "ratio_text",
    "render",
    "render_gpu",
    "versions",
]

FILE, GPU_FILE = "operators.json", "operators_cuda.json"
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
GPU_DTYPES = {"float32": "fp32", "float16": "fp16"}
PEERS = {"torchvision": "torchvision", "torch": "PyTorch", "copy": "a copy"}
_OURS = "float32"  # in place of a peer
_KEYS = ("operator", "case", "peer", "dtype", "threads", "ours_ms", "peer_ms", "ratio", "aim")


@dataclass(frozen=True, slots=True)
class Document:
    """What was recorded on one machine.

    Attributes:
        machine: As `saccade bench-ops` describes it.
        gpu: The operands' device, where it is none of the processor's.
        rows: A row for each operator, case, peer and dtype.
    """

    machine: Mapping[str, Any]
    gpu: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def title(self) -> str:
        """The GPU, or the processor."""
        return self.gpu or machine_name(self.machine)


def documents(folder: Path, name: str = FILE) -> list[Document]:
    """What a folder and the folders in it hold, a document for each machine.

    Raises:
        RecordError: A row is not what `bench-ops` writes, or two files are of one machine.
    """
    paths = [path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.exists()]
    found = sorted((_read(path) for path in paths), key=lambda one: one.title)
    for one, other in itertools.pairwise(found):
        if one.title == other.title and one.machine == other.machine:
            raise RecordError(f"{folder}: two files of {name} are of one machine")
    return found


def render(folder: Path) -> str:
    """Markdown, machine by machine: a row for each case, its figures in each dtype side by side.

    Raises:
        RecordError: As of `documents`.
    """
    return _joined(folder, FILE, _of_processor)


def _of_processor(document: Document) -> str:
    beside = [row for row in document.rows if row["peer"] in PEERS]
    gains = {
        (r["operator"], r["case"], r["dtype"]): r["ratio"]
        for r in document.rows
        if r["peer"] == _OURS
    }
    calls = [row for row in document.rows if row["peer"] == "empty"]
    widths = "/".join(str(n) for n in sorted({row["threads"] for row in document.rows}))
    return "\n".join((
        f"### {document.title}", "", f"{widths} threads, medians; {versions(document.rows)}.", "",
        *_table(beside, gains), *_calls(calls),
    ))  # fmt: skip


def render_gpu(folder: Path) -> str:
    """The same for GPUs: microseconds, float32 and float16 side by side.

    Raises:
        RecordError: As of `documents`.
    """
    return _joined(folder, GPU_FILE, _of_gpu)


def _of_gpu(document: Document) -> str:
    head = ["operator", "case", "beside"]
    for name in GPU_DTYPES.values():
        head += [f"{name}: ours, µs", "peer, µs", "peer over ours", "aim"]
    told = f"Medians; {versions(document.rows)}."
    lines = [f"### {document.title}", "", told, "", f"| {' | '.join(head)} |"]
    lines.append("|---" * len(head) + "|")
    known = {(r["operator"], r["case"], r["peer"], r["dtype"]): r for r in document.rows}
    for operator, case, peer in dict.fromkeys(key[:3] for key in known if key[2] in PEERS):
        cells = [operator, case, PEERS[peer]]
        for dtype in GPU_DTYPES:
            row = known.get((operator, case, peer, dtype))
            cells += [""] * 4 if row is None else _gpu_figures(row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _joined(folder: Path, name: str, render: Callable[[Document], str]) -> str:
    found = documents(folder, name)
    if not found:
        raise RecordError(f"{folder}: no {name}")
    return "\n\n".join(map(render, found))


def _read(path: Path) -> Document:
    document = json.loads(path.read_text())
    rows = document["results"]
    for row in rows:
        if any(key not in row for key in _KEYS) or not _positive(row["ours_ms"], row["peer_ms"]):
            raise RecordError(f"{path.name}: not a row of bench-ops: {row}")
    if not rows:
        raise RecordError(f"{path.name}: no rows")
    return Document(document["machine"], document.get("gpu", ""), rows)


def _gpu_figures(row: Mapping[str, Any]) -> list[str]:
    ours, peer = (_number(1e3 * row[key]) for key in ("ours_ms", "peer_ms"))
    return [ours, peer, ratio_text(row["ratio"]), f"{row['aim_us']:g}" if "aim_us" in row else ""]


def _positive(*values: float) -> bool:
    return all(math.isfinite(value) and value > 0 for value in values)


def versions(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of the peers, and when they were timed."""
    days = sorted({row["taken"][:10] for row in rows})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    versions: dict[str, str] = {}
    for row in rows:
        versions |= row["versions"]
    peers = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"{peers}, measured {when}"


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
        cells += [f"{aim:g}x", "" if gain is None else ratio_text(gain)]
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
    return [_number(row["ours_ms"]), _number(row["peer_ms"]), ratio_text(row["ratio"])]


def ratio_text(value: float) -> str:
    """`1.24x`, `24x`."""
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def _number(value: float) -> str:
    """Three significant digits without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
