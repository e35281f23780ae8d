"""What code that waits for the launch before it by itself takes beside its own parameters."""

from __future__ import annotations

__all__ = ["AHEAD"]

AHEAD = ("ahead", "ahead_bytes", "ahead_share")
"""The last parameters of such code: an address and a number of bytes that the L2 cache is asked for
while the launch before is still running, and how many of them by each program; multiples of 16.
They are constants that the next launch reads."""
