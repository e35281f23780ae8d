"""Graph and sizes to storage and kernels, chosen together."""

from saccade.layout.assign import assign
from saccade.layout.fitting import copy_of
from saccade.layout.formats import INDIFFERENT, SPATIAL, Fills, Preferred
from saccade.layout.select import Available, Decisions
from saccade.layout.types import (
    Buffer,
    BufferKind,
    Choice,
    Fusions,
    GraphLayout,
    NoFusions,
    Pair,
    Pairs,
    Passed,
    Searched,
    Shapes,
    StepLayout,
    Stored,
    Taken,
    Timings,
    Tuned,
)

__all__ = [
    "INDIFFERENT",
    "SPATIAL",
    "Available",
    "Buffer",
    "BufferKind",
    "Choice",
    "Decisions",
    "Fills",
    "Fusions",
    "GraphLayout",
    "NoFusions",
    "Pair",
    "Pairs",
    "Passed",
    "Preferred",
    "Searched",
    "Shapes",
    "StepLayout",
    "Stored",
    "Taken",
    "Timings",
    "Tuned",
    "assign",
    "copy_of",
]
