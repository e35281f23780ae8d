"""Graph and sizes to storage and kernels, chosen together."""

from saccade.layout.assign import assign
from saccade.layout.select import Available
from saccade.layout.types import (
    Backend,
    Buffer,
    BufferKind,
    Choice,
    KernelLike,
    Laid,
    LaidStep,
    Stored,
    Timings,
    Tuned,
)

__all__ = [
    "Available",
    "Backend",
    "Buffer",
    "BufferKind",
    "Choice",
    "KernelLike",
    "Laid",
    "LaidStep",
    "Stored",
    "Timings",
    "Tuned",
    "assign",
]
