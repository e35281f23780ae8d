"""Kernels compiled ahead for described machines: what `saccade-kernels` is made of.

    python -m saccade.prebuild FOLDER MODEL[:SHAPE] … [--machine NAME] …

A MODEL is an ONNX file; SHAPE, such as 1x3x224x224, is of its only input that has free axes. FOLDER
gets a file for each processor (`backends/cpu/runtime/prebuilt.py`), with what the models take at
these sizes and at others around them, in float32, for teams of one to eight. They are found where
the folder is called `saccade_kernels` and lies on Python's path.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

import saccade
from saccade.backends.cpu.backend import CpuBackend
from saccade.backends.cpu.machines import MACHINES
from saccade.backends.cpu.runtime.driver import compile_driver
from saccade.backends.cpu.runtime.driver_text import driver_text
from saccade.backends.cpu.runtime.objects import encode_object, mark_of, text_object
from saccade.backends.cpu.runtime.prebuilt import file_name, write_prebuilt
from saccade.errors import OptionError
from saccade.processes import Processes

__all__ = ["main", "prebuild"]

_TEAMS = (1, 2, 4, 8)
"""Widths of teams, which tiles depend on."""
_MACHINES = ("zen4", "zen5", "sapphire-rapids", "sapphire-rapids-amx", "zen3", "desktop-avx2")


def prebuild(folder: Path, models: Iterable[str], machines: Sequence[str]) -> dict[str, int]:
    """Write the files; how many kernels each machine has.

    Args:
        folder: Where; it is made if it is not there.
        models: As on the command line.
        machines: Names of described machines.

    Raises:
        OptionError: If a model has several inputs with free axes, or no shape is given for one.
        SaccadeError: As of `saccade.compile`.
    """
    models, counts = list(models), {}
    files = defaultdict[str, dict[str, bytes]](dict)  # machines may share one
    for machine in machines:
        named = set[str]()
        for model, threads in product(models, _TEAMS):
            entries, name = _entries(model, machine, threads)
            files[name] |= entries
            named |= entries.keys()
        counts[machine] = len(named)
    folder.mkdir(parents=True, exist_ok=True)
    for name, entries in files.items():
        write_prebuilt(folder / name, entries)
    return counts


def _entries(text: str, machine: str, threads: int) -> tuple[dict[str, bytes], str]:
    """What one model needs on a machine, and the name of the file that it belongs to."""
    path, _, given = text.partition(":")
    # With the cache: most of what one team takes is what the others do.
    model = saccade.compile(path, machine=machine, threads=threads)
    shapes = [
        tuple(map(int, given.split("x"))) if given and not _fixed(info.shape) else info.shape
        for info in model.inputs
    ]
    known = [tuple(d for d in shape if isinstance(d, int)) for shape in shapes]
    free = [shape for shape, sizes in zip(shapes, known, strict=True) if len(sizes) < len(shape)]
    if free:
        raise OptionError(
            f"{path} has free axes: give a shape behind a colon, as in a.onnx:1x3x64x64"
        )
    engine = model._started()
    backend = engine.backend
    if not isinstance(backend, CpuBackend):
        raise OptionError("only kernels for CPUs are compiled ahead")
    plan, more = engine.kernels(known)
    keys = [*backend.wanted(plan, engine.graph, engine.identity), *more]
    with closing(Processes()) as processes:
        files = backend.objects.get(keys, processes)
    target = backend.target
    driver = text_object(driver_text(target), target, compile_driver(target))
    found = {file.symbol: encode_object(file) for file in (driver, *files.values())}
    return {**found, mark_of(target): b""}, file_name(target.code)


def _fixed(shape: tuple[int | str, ...]) -> bool:
    return all(isinstance(d, int) for d in shape)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m saccade.prebuild")
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL[:SHAPE]")
    parser.add_argument(
        "--machine", action="append", choices=sorted(MACHINES), help="default: x86-64's"
    )
    given = parser.parse_args(arguments)
    counts = prebuild(given.folder, given.models, given.machine or _MACHINES)
    for machine, count in counts.items():
        print(f"{machine}: {count} kernels")


if __name__ == "__main__":
    main()
