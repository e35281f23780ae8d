"""Choices by measurement: what to try, what was measured, what was chosen."""

from saccade.tuning.algorithms import Algorithms, TunedCall
from saccade.tuning.candidates import Bounds, TuningCandidate
from saccade.tuning.kept import keep, kept, load
from saccade.tuning.keys import call_key
from saccade.tuning.lookup import Lookup
from saccade.tuning.search import Search
from saccade.tuning.store import Measured, TimingStore
from saccade.tuning.types import Bench, Change, Outcome, Progress, Swaps, TuneRequest

__all__ = [
    "Algorithms",
    "Bench",
    "Bounds",
    "Change",
    "Lookup",
    "Measured",
    "Outcome",
    "Progress",
    "Search",
    "Swaps",
    "TimingStore",
    "TuneRequest",
    "TunedCall",
    "TuningCandidate",
    "call_key",
    "keep",
    "kept",
    "load",
]
