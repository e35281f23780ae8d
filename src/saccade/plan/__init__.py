"""Laid-out graph to plan: lifetimes, offsets, references; plain data."""

from saccade.plan.make import make
from saccade.plan.types import Constant, Phase, Plan, Port, Ref, Slot, Step

__all__ = ["Constant", "Phase", "Plan", "Port", "Ref", "Slot", "Step", "make"]
