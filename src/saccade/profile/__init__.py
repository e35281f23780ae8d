"""Where the time of a run goes: by step, by family of kernels, and between the steps."""

from saccade.profile.clock import whole_run
from saccade.profile.peer import PeerLayer, PeerLayers
from saccade.profile.types import Facts, FamilyTime, Profile, Shares, StepTime

__all__ = [
    "Facts", "FamilyTime", "PeerLayer", "PeerLayers", "Profile", "Shares", "StepTime", "whole_run",
]  # fmt: skip
