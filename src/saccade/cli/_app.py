"""The commands put together, and what happens to their errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from saccade.cli._memory import not_enough
from saccade.cli._print import usable_streams
from saccade.cli._quiet import quietly
from saccade.cli.bench import bench
from saccade.cli.bench_ops import bench_ops
from saccade.cli.build import build
from saccade.cli.cache import cache
from saccade.cli.compare import compare
from saccade.cli.inspect import inspect
from saccade.cli.profile import profile
from saccade.cli.report import report
from saccade.cli.run import run
from saccade.cli.tune import tune
from saccade.cli.warm import warm
from saccade.errors import SaccadeError, UnsupportedModelError, printable
from saccade.version import VERSION

__all__ = ["app"]

_LONGEST = 4000  # characters
_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it

_WORDS = (
    (re.compile("Value error, "), ""),
    (re.compile("Input should be greater than or equal to (\\S+)"), r"it has to be \1 or more"),
    (re.compile("Input should be less than or equal to (\\S+)"), r"it has to be \1 or less"),
    (re.compile("Input should be a valid integer.*"), "it has to be a whole number"),
    (re.compile("Input should be a valid number.*"), "it has to be a number"),
)
"""What is said otherwise."""

# Typer depended on Click once and carries it inside now; its public error leads to either.
_COMMAND_LINE_ERROR: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class _OneLineErrors(TyperGroup):
    """Turns everything that a user can get wrong into one line on stderr and exit status 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: object,
    ) -> NoReturn:
        usable_streams()
        try:
            status = super().main(
                args, prog_name or "saccade", complete_var, False, windows_expand_args, **extra
            )
        except _COMMAND_LINE_ERROR as error:
            said = error.format_message() or "a command is missing; see saccade --help"
            _refuse(printable(_in_our_words(said), _LONGEST))
        except UnsupportedModelError as error:
            from saccade.cli._unsupported import unsupported_lines  # noqa: PLC0415 - for this alone

            _refuse("\n".join(unsupported_lines(error)))  # which are escaped
        except SaccadeError as error:
            _refuse(str(error))  # which is escaped, too
        except MemoryError as error:  # what the engine allocates is a SaccadeError
            _refuse(printable(not_enough(error), _LONGEST))
        except BrokenPipeError:
            raise  # the reader of our output went away; not an error of the user's
        except OSError as error:
            what = error if error.filename is None else f"{error.filename}: {error.strerror}"
            _refuse(printable(what, _LONGEST))
        except typer.Abort:
            sys.exit(_INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - of Click, see above
        """Run a command; says that it was interrupted, and what it has to say of that."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            what = f": {stop}" if str(stop) else ""
            print(f"saccade: interrupted{printable(what, _LONGEST)}", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None


def _in_our_words(said: str) -> str:
    """A message of Typer without those of the libraries that it checks values with."""
    for theirs, ours in _WORDS:
        said = theirs.sub(ours, said)
    return said


def _refuse(message: str) -> NoReturn:
    print(f"saccade: error: {message}", file=sys.stderr)
    sys.exit(2)


app = typer.Typer(
    name="saccade",
    cls=_OneLineErrors,
    help="Compile vision models to the machine they run on.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # those of all commands, too
    pretty_exceptions_enable=False,  # a traceback is for bugs, and should look like one
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"saccade {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_tell_version
        ),
    ] = False,
) -> None:
    """Compile vision models to the machine they run on."""
    del version  # told already


for command in (
    run,
    build,
    warm,
    bench,
    bench_ops,
    tune,
    profile,
    report,
    inspect,
    compare,
):
    app.command()(quietly(command))
app.add_typer(cache, name="cache")
