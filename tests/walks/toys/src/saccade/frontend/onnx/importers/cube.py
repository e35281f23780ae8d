"""Third powers."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.opdefs import Cube

__all__ = ["import_cube"]


def import_cube(call: OnnxNode) -> Sequence[Operand]:
    """ONNX org.example.Cube 1: `scale · x³`, where `scale` is 1 if it is not given."""
    return [call.emit(Cube(call.finite("scale", 1.0)), call.value(0))]
