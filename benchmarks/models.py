"""Where the models come from: a folder of ONNX files, complete or with a `fill.py`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["prepare"]


def prepare(folder: Path, names: Iterable[str], scratch: Path) -> dict[str, Path]:
    """Runnable files by model name.

    Args:
        folder: Holds NAME.onnx. When it also holds `fill.py`, the files are weightless, and
            `fill.py IN OUT` makes the runnable ones.
        names: Models wanted.
        scratch: Where filled models go; one that is there already is taken as it is.

    Raises:
        FileNotFoundError: A model is missing, because a suite that skips a case hides a failure.
    """
    unique = list(dict.fromkeys(names))
    missing = [name for name in unique if not (folder / f"{name}.onnx").is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} has no {', '.join(f'{name}.onnx' for name in missing)}")
    fill = folder / "fill.py"
    if not fill.is_file():
        return {name: folder / f"{name}.onnx" for name in unique}
    scratch.mkdir(parents=True, exist_ok=True)
    return {name: _filled(fill, folder / f"{name}.onnx", scratch) for name in unique}


def _filled(fill: Path, source: Path, scratch: Path) -> Path:
    target = scratch / source.name
    if not target.is_file():
        unfinished = target.with_suffix(".part")
        command = [sys.executable, str(fill), str(source), str(unfinished)]
        subprocess.run(command, check=True)
        unfinished.rename(target)
    return target
