"""Bundles of whole networks on a GPU's machine without Triton, from code compiled elsewhere.

    python -m benchmarks.gpu_codes compile FILE MODELS CASE …    # needs Triton, no GPU
    python -m benchmarks.gpu_codes bundle FILE MODELS FOLDER     # needs neither

A CASE is `resnet50:fp16:32x3x224x224`. FILE holds machine code alone, of some kilobytes a kernel,
where bundles would hold every weight; FOLDER gets MODEL_PRECISION.saccade with a program for each
of the cases, as `benchmarks.suite --bundles` takes them. MODELS holds ONNX files, or weightless
ones and the `fill.py` that draws their weights.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import saccade
from benchmarks.models import prepare
from saccade.backends.cuda.backend import CudaBackend
from saccade.backends.cuda.codegen.compile import decode_cubin, encode_cubin
from saccade.backends.cuda.cubins import Cubins
from saccade.options import Options
from saccade.processes import Processes

_HEAD = "head.json"


class _Recorded:
    """Code of all models that are planned while it is open, which may start with some of it."""

    def __init__(self, known: Cubins | None = None) -> None:
        self._known, self.cubins = known, list[Cubins]()
        self._plain = CudaBackend.__init__

    def __enter__(self) -> _Recorded:
        recorded, plain = self, self._plain

        def started(backend: CudaBackend, options: Options, processes: Processes) -> None:
            plain(backend, options, processes)
            if recorded._known is not None:
                backend.cubins = recorded._known
            recorded.cubins.append(backend.cubins)

        CudaBackend.__init__ = started  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        CudaBackend.__init__ = self._plain  # type: ignore[method-assign]


def _bundled(cases: Iterable[str], models: Path, folder: Path, machine: str) -> None:
    """Write MODEL_PRECISION.saccade for each model and precision of the cases."""
    wanted = defaultdict[tuple[str, str], list[tuple[int, ...]]](list)
    for case in cases:
        model, precision, shape = case.split(":")
        wanted[model, precision].append(tuple(map(int, shape.split("x"))))
    with tempfile.TemporaryDirectory() as scratch:
        paths = prepare(models, [model for model, _ in wanted], Path(scratch))
        for (name, precision), shapes in wanted.items():
            model = saccade.compile(
                paths[name], device="cuda", precision=precision, machine=machine
            )
            (info,) = model.inputs
            model.save(folder / f"{name}_{precision}.saccade", *({info.name: s} for s in shapes))


def compile_codes(file: Path, models: Path, cases: Sequence[str], machine: str) -> int:
    """Compile what the cases need into a file; how many kernels that are."""
    with _Recorded() as recorded, tempfile.TemporaryDirectory() as folder:
        _bundled(cases, models, Path(folder), machine)
    codes = {
        Cubins.portable_name(key): encode_cubin(cubin)
        for one in recorded.cubins
        for key, cubin in one.known.items()
    }
    head = {
        "machine": machine, "cases": list(cases), "sources": recorded.cubins[0].sources,
        "arch": recorded.cubins[0].arch,
    }  # fmt: skip
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_HEAD, json.dumps(head))
        for name, payload in codes.items():
            archive.writestr(name, payload)
    return len(codes)


def bundle_codes(file: Path, models: Path, folder: Path) -> None:
    """Write the bundles of a file's cases, with its code."""
    with zipfile.ZipFile(file) as archive:
        head = json.loads(archive.read(_HEAD))
        cubins = Cubins(head["arch"], disk=False)
        if head["sources"] != cubins.sources:
            raise ValueError(f"{file}: made from other sources than these")
        names = [name for name in archive.namelist() if name != _HEAD]
        found = {name: decode_cubin(archive.read(name)) for name in names}
    cubins.carry({name: cubin for name, cubin in found.items() if cubin is not None})
    folder.mkdir(parents=True, exist_ok=True)
    with _Recorded(cubins):
        _bundled(head["cases"], models, folder, head["machine"])


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_codes")
    verbs = parser.add_subparsers(dest="verb", required=True)
    make, use = verbs.add_parser("compile"), verbs.add_parser("bundle")
    for verb in (make, use):
        verb.add_argument("file", type=Path)
        verb.add_argument("models", type=Path)
    make.add_argument("cases", nargs="+")
    make.add_argument("--machine", default="h200", help="the GPU, as in saccade build --machine")
    use.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    if given.verb == "bundle":
        bundle_codes(given.file, given.models, given.folder)
        return
    count = compile_codes(given.file, given.models, given.cases, given.machine)
    print(f"{given.file}: {count} kernels, {given.file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
