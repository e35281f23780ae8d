"""`--quiet`, which every command has, and silence where figures go to standard output."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from saccade.cli._outputs import STANDARD_OUTPUT
from saccade.cli._print import silenced

__all__ = ["quietly"]

QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print errors, warnings and what --json - asks for, alone."),
]


def quietly(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the option `--quiet`, which prints nothing else to where `--json -` goes."""
    signature = inspect.signature(command, eval_str=True)
    quiet_parameter = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=QuietOption
    )

    @wraps(command)
    def run(*args: Any, quiet: bool = False, **options: Any) -> None:  # noqa: ANN401
        if not quiet and options.get("json") != STANDARD_OUTPUT:
            command(*args, **options)
            return
        with silenced(quiet):
            command(*args, **options)

    parameters = [*signature.parameters.values(), quiet_parameter]
    # Typer asks for both.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run
