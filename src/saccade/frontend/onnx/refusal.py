"""How an importer says no."""

from __future__ import annotations

__all__ = ["Refusal"]


class Refusal(Exception):  # noqa: N818 - not an error: it becomes one row of the table of unsupported nodes
    """This node cannot be imported; the message is the reason shown in the table."""
