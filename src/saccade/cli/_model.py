"""The engine as the commands see it: compiled late, and with the inputs of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.cli._progress import working

if TYPE_CHECKING:
    import onnx

    from saccade.cli._types import Model

__all__ = ["compile_model", "json_text"]


def compile_model(source: Path | onnx.ModelProto, **options: str | int | None) -> Model:
    """`saccade.compile`, with a spinner; `source` is a path or an `onnx.ModelProto`."""
    import saccade  # noqa: PLC0415 - NumPy and the engine are not needed before

    package: Any = saccade
    label = source if isinstance(source, Path) else "the model"
    with working(f"compiling {label}"):
        model: Model = package.compile(source, **options)
    return model


def json_text(document: object) -> str:
    """A document of `to_json` as text, whether it comes as text or as plain data."""
    return document if isinstance(document, str) else json.dumps(document, indent=1)
