"""Saccade compiles vision models and vision operators to the machine they run on."""

from saccade.compile import compile  # noqa: A004 - the name that users expect
from saccade.errors import (
    CacheError,
    CompileError,
    InputError,
    ModelError,
    OptionError,
    OutOfBoundsError,
    PlanError,
    SaccadeError,
    UnsupportedModelError,
)
from saccade.model import Model, TensorInfo
from saccade.options import Options, Precision
from saccade.plan import Plan
from saccade.profile import Profile

__all__ = [
    "CacheError",
    "CompileError",
    "InputError",
    "Model",
    "ModelError",
    "OptionError",
    "Options",
    "OutOfBoundsError",
    "Plan",
    "PlanError",
    "Precision",
    "Profile",
    "SaccadeError",
    "TensorInfo",
    "UnsupportedModelError",
    "compile",
]
