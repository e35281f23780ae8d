"""The command line, `saccade`: one file per command, imported when it runs."""

from __future__ import annotations

import os

__all__ = ["main"]


def main() -> None:
    """Run the command line with the arguments of this process, and exit with its status."""
    # Warnings look as notes do; whoever names a level gets that.
    os.environ.setdefault("SACCADE_LOG", "warning")
    from saccade.cli._app import app  # noqa: PLC0415 - the process of an engine needs no typer

    app()
