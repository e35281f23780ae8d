"""Graph and sizes to storage and kernels, chosen together."""

from saccade.layout.assign import assign
from saccade.layout.select import Available
from saccade.layout.types import (
    Buffer,
    BufferKind,
    Choice,
    Laid,
    LaidStep,
    Passed,
    Searched,
    Stored,
    Timings,
    Tuned,
)

__all__ = [
    "Available",
    "Buffer",
    "BufferKind",
    "Choice",
    "Laid",
    "LaidStep",
    "Passed",
    "Searched",
    "Stored",
    "Timings",
    "Tuned",
    "assign",
]
