"""Laid-out graph to plan: lifetimes, offsets, references; plain data."""

from saccade.plan.make import make
from saccade.plan.types import Argument, Constant, Needs, Phase, Plan, Port, Ref, Role, Slot, Step

__all__ = [
    "Argument",
    "Constant",
    "Needs",
    "Phase",
    "Plan",
    "Port",
    "Ref",
    "Role",
    "Slot",
    "Step",
    "make",
]
