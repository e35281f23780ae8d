"""What is said where memory does not suffice."""

from __future__ import annotations

from saccade.memory import free_bytes, size_text

__all__ = ["not_enough"]


def not_enough(error: MemoryError) -> str:
    """One line of an error that names what it could not get, or nothing."""
    free = free_bytes()
    there = "" if free is None else f"; {size_text(free)} are free"
    what = str(error) or "what is asked for needs more than the system gives"
    return f"there is not enough memory: {what}{there}: use smaller inputs"
