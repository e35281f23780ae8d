"""The command line, `saccade`: one file per command, imported when it runs."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line with the arguments of this process, and exit with its status."""
    from saccade.cli._app import app  # noqa: PLC0415 - the process of an engine needs no typer

    app()
