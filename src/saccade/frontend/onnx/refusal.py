"""How an importer says no."""

from __future__ import annotations

from saccade.errors import ModelError

__all__ = ["MisfitError", "Refusal"]


class MisfitError(ModelError):
    """A node does not fit its operands, or itself: at these sizes, or at any."""


class Refusal(Exception):  # noqa: N818 - not an error: it becomes one row of the table of unsupported nodes
    """This node cannot be imported; the message is the reason shown in the table."""
