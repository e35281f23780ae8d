"""Choices by measurement: what to try, what was measured, what was chosen."""

from saccade.tuning.algorithms import Algorithms, Entry
from saccade.tuning.kept import keep, kept, load
from saccade.tuning.lookup import Lookup
from saccade.tuning.search import Search
from saccade.tuning.store import Measured, Store
from saccade.tuning.types import Bench, Change, Outcome, Progress, Swaps

__all__ = [
    "Algorithms",
    "Bench",
    "Change",
    "Entry",
    "Lookup",
    "Measured",
    "Outcome",
    "Progress",
    "Search",
    "Store",
    "Swaps",
    "keep",
    "kept",
    "load",
]
