"""Write the tables of the pages, and their plots, from the records: `python -m benchmarks.report`.

With --check nothing is written, and the exit status is 1 if a page or a plot is out of date.
Records lie in `benchmarks/results` and in folders there, one for each further machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import gpu_detectors, headline, operators, plot, report_cpu, report_gpu
from benchmarks.record import RecordError

__all__ = ["IMAGES", "PAGES", "RESULTS", "ROOT", "main", "marks", "replace_section"]

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
IMAGES: Mapping[str, Callable[[Path], list[plot.Panel]]] = {
    "docs/images/headline.svg": headline.panels,
    "docs/images/machines.svg": headline.all_panels,
}
"""Plots, by their files."""
PAGES: Mapping[str, Mapping[str, Callable[[Path], str]]] = {
    "README.md": {"headline": headline.render},
    "docs/benchmarks.md": {"headlines": headline.render_all, "results": report_cpu.render},
    "docs/gpu.md": {"gpu": report_gpu.render, "gpu-detectors": gpu_detectors.render},
    "docs/operators.md": {"operators": operators.render, "gpu-operators": operators.render_gpu},
}
"""Sections of pages, by the names in their markers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite sections and plots, or with --check say whether they are up to date."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the pages are")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    try:
        wanted = _wanted(options.root, options.results)
        stale = [path for path, text in wanted.items() if _text(path) != text]
    except (OSError, RecordError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    for path in stale:
        if options.check:
            said = f"{path} is out of date: run python -m benchmarks.report"
            print(f"benchmarks: {said}", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
    return 1 if options.check and stale else 0


def _wanted(root: Path, results: Path) -> dict[Path, str]:
    """The files as they should be."""
    files = {root / image: plot.render(panels(results)) for image, panels in IMAGES.items()}
    for page, sections in PAGES.items():
        text = (root / page).read_text()
        for name, render in sections.items():
            text = replace_section(text, f"\n{render(results)}\n", marks(name))
        files[root / page] = text
    return files


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def marks(name: str) -> tuple[str, str]:
    """What a section stands between."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def replace_section(text: str, section: str, marks: tuple[str, str]) -> str:
    """`text` with what stands between the markers replaced.

    Raises:
        RecordError: The markers are not there, once each and in order.
    """
    begin, end = marks
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise RecordError(f"the page needs one {begin} and one {end} after it")
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    return f"{head}{begin}\n{section}\n{end}{tail}"


if __name__ == "__main__":
    sys.exit(main())
