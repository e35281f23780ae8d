"""What code takes beside its own parameters: what the next launch reads, and whose row it is."""

from __future__ import annotations

__all__ = ["AHEAD", "ROWS"]

AHEAD = ("ahead", "ahead_bytes", "ahead_share")
"""The last parameters of code that waits for the launch before it by itself: an address and a
number of bytes that the L2 cache is asked for while that one is still running, and how many of them
by each program; multiples of 16. They are constants that the next launch reads."""
ROWS = "row_offsets"
"""The last parameter of code whose grid has rows, in place of those: the address of a table of
int64, a line for each row of the grid. In it stands for each pointer how many bytes it lies behind
what the launch says of it, in the order of the code's parameters."""
