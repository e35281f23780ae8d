"""`saccade bench-ops`: the PyTorch operators beside torchvision's and PyTorch's own."""

# ruff: noqa: PLC0415 - PyTorch is imported when the command runs, not for --help

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saccade.cli._options import ThreadsOption
from saccade.cli._outputs import STANDARD_OUTPUT, check_outputs, give_json
from saccade.errors import OptionError
from saccade.tables import columns

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from saccade.cli._operator_cases import Bout, OperatorCase
    from saccade.cli._operator_clocks import Clock

__all__ = ["bench_ops"]

_PEERS = ("torchvision", "torch", "copy", "empty", "float32")
_DTYPES = ("float32", "bfloat16", "float16", "float64")
_FIGURES = 56
"""Characters of the figures of a row, at most."""
_KEY = ("operator", "case", "peer", "dtype", "threads")

NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Operators; all without any.")
]
AgainstOption = Annotated[
    str,
    typer.Option(
        metavar=",".join(_PEERS),
        help="Whom to be timed beside, of those that fit; float32: ours in that dtype.",
    ),
]
DTypeOption = Annotated[str, typer.Option(metavar="|".join(_DTYPES), help="Of the operands.")]
RoundsOption = Annotated[int, typer.Option(min=1, metavar="N", help="Turns of each side.")]
SecondsOption = Annotated[float, typer.Option(min=0.0, metavar="S", help="Length of a turn.")]
OperatorDeviceOption = Annotated[
    str, typer.Option(metavar="cpu|cuda", help="Where the operands are.")
]
AheadOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Time nothing: compile ours into a file, see --machine."),
]
MachineOption = Annotated[
    str, typer.Option(metavar="NAME", help="The GPU to compile for: h200, a100, …")
]
CodeOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Take code from a file of --compile.")
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE|-", help="Add the figures to a record; -: print them, and no more."
    ),
]


def bench_ops(
    names: NamesArgument = None,
    *,
    against: AgainstOption = "torchvision,torch,copy,empty",
    dtype: DTypeOption = "float32",
    threads: ThreadsOption = None,
    device: OperatorDeviceOption = "cpu",
    rounds: RoundsOption = 5,
    seconds: SecondsOption = 0.3,
    json: JsonOption = None,
    compile: AheadOption = None,  # noqa: A002 - the option's name
    machine: MachineOption = "h200",
    code: CodeOption = None,
) -> None:
    """Time operators, ours and the peers' by turns in one process; ratios are peer over ours.

    Small calls are timed beside operators that do nothing: what they take more, in microseconds.
    On a GPU runs are CUDA graphs, timed by its own clock, with nothing of theirs in its cache.
    """
    if device not in ("cpu", "cuda"):
        raise OptionError(f"--device {device!r} is neither cpu nor cuda")
    if dtype not in _DTYPES:
        raise OptionError(f"--dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
    peers = [name.strip() for name in against.split(",") if name.strip()]
    for peer in peers:
        if peer not in _PEERS:
            raise OptionError(f"--against {peer!r} is not one of {', '.join(_PEERS)}")
    if dtype == "float32" and "float32" in peers:
        raise OptionError("--against float32 wants another --dtype")
    check_outputs(None, [code], json=json, compile=compile)
    wanted = _wanted(names or [], peers)
    # A record that cannot be read or written is found out now, not after all the timing.
    known = {} if json is None else _known(json)
    import torch

    from saccade.cli._operator_cases import aim_on_gpu
    from saccade.cli._progress import working
    from saccade.options import default_threads

    if compile is not None:
        _compile(wanted, dtype, compile, machine)
        return
    if code is not None:
        from saccade.ops import load_code

        load_code(code)
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("--device cuda: PyTorch sees no GPU here")
    _check_installed({case.peer for case in wanted})
    torch.set_num_threads(threads or default_threads())
    rows: list[dict[str, Any]] = []
    width = max(len(case.name) for case in wanted)
    head = f"{'ours ms':>9} {'peer ms':>9} {'ratio':>7}  {'aim':>5}  peer"
    print(f"{dtype}, {torch.get_num_threads()} thread(s)")
    print(_fitted("operator", "case", width, head))
    with working("operators") as report:
        for case in wanted:
            report(f"{case.operator}: {case.name}")
            bout = case.make(getattr(torch, dtype), device)
            aim = aim_on_gpu(case, dtype) if device == "cuda" else None
            row = _measure(case, bout, _clock(case, device), rounds, seconds)
            row |= {} if aim is None else {"aim_us": aim}
            rows.append({"dtype": dtype, "threads": torch.get_num_threads(), **row})
            print(_line(row, width), flush=True)
    if json is not None:
        _write(json, known, rows, torch.cuda.get_device_name() if device == "cuda" else None)


def _wanted(names: Sequence[str], peers: Sequence[str]) -> list[OperatorCase]:
    try:
        from saccade.cli._call_cases import call_cases
        from saccade.cli._operator_cases import beside_float32, cases
    except ModuleNotFoundError as error:
        raise OptionError(f"bench-ops needs {error.name}: pip install 'saccade[torch]'") from error
    everything = (*cases(), *map(beside_float32, cases()), *call_cases())
    known = {case.operator for case in everything}
    for name in names:
        if name not in known:
            raise OptionError(f"operator {name!r} is not one of {', '.join(sorted(known))}")
    found = [
        case for case in everything if (not names or case.operator in names) and case.peer in peers
    ]
    if not found:
        whom = ", ".join(peers) or "nobody"
        raise OptionError(f"nothing to time: {', '.join(names) or 'operators'} beside {whom}")
    return found


def _check_installed(peers: Container[str]) -> None:
    from importlib.util import find_spec

    if "torchvision" in peers and find_spec("torchvision") is None:
        raise OptionError(
            "torchvision is not installed: pip install torchvision, or leave it out of --against"
        )


def _compile(wanted: Sequence[OperatorCase], dtype: str, path: Path, machine: str) -> None:
    """Write the code that our side of all cases takes."""
    import torch

    from saccade.cli._progress import working
    from saccade.ops import compile_ahead

    with working("operators") as report, compile_ahead(path, machine):
        for case in wanted:
            report(f"{case.operator}: {case.name}")
            case.make(getattr(torch, dtype), "meta").ours()


def _clock(case: OperatorCase, device: str) -> Clock:
    from saccade.cli._operator_clocks import GpuClock, HostClock

    if device == "cpu":
        return HostClock()
    import torch

    # What a call costs beside its work is the host's time until it returns.
    return HostClock(torch.cuda.synchronize) if case.peer == "empty" else GpuClock()


def _measure(
    case: OperatorCase, bout: Bout, clock: Clock, rounds: int, seconds: float
) -> dict[str, Any]:
    """The figures of one case, in milliseconds.

    Raises:
        OptionError: The peer says something else.
    """
    ours, theirs = bout.ours(), bout.theirs()
    if bout.compared:
        _compare(case, ours, theirs if bout.truth is None else bout.truth())
    times: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
    # Their memory must be free for the runs that are timed.
    del ours, theirs
    sides = {"ours": clock.prepared(bout.ours), "theirs": clock.prepared(bout.theirs)}
    for _ in range(rounds):
        for side, function in sides.items():
            times[side].append(clock.turn(function, seconds))
    figures = {side: sorted(ms for turn in turns for ms in turn) for side, turns in times.items()}
    medians = {side: statistics.median(runs) for side, runs in figures.items()}
    return {
        "operator": case.operator,
        "case": case.name,
        "peer": case.peer,
        "ours_ms": medians["ours"],
        "peer_ms": medians["theirs"],
        "ours_min_ms": figures["ours"][0],
        "peer_min_ms": figures["theirs"][0],
        "over_us": 1e3 * (medians["ours"] - medians["theirs"]),
        "ratio": medians["theirs"] / medians["ours"],
        "ratios": [
            statistics.median(b) / statistics.median(a)
            for a, b in zip(times["ours"], times["theirs"], strict=True)
        ],
        "aim": case.aim,
    }


def _compare(case: OperatorCase, ours: Any, theirs: Any) -> None:  # noqa: ANN401 - tensors, nested
    import torch

    pairs = zip(_tensors(ours), _tensors(theirs), strict=True)
    for a, b in pairs:
        error = (a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30)
        bound = 3e-2 if a.dtype in (torch.bfloat16, torch.float16) else 1e-5
        # Written so that NaN fails.
        if not error <= bound:
            raise OptionError(
                f"{case.operator}, {case.name}: {case.peer} says something else (relative L2 "
                f"{float(error):.1e}); nothing was timed"
            )


def _tensors(value: Any) -> Iterator[Any]:  # noqa: ANN401
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    else:
        yield value


def _line(row: dict[str, Any], width: int) -> str:
    found, mark = f"{row['ratio']:6.2f}x", "" if row["ratio"] >= row["aim"] else "  below"
    aim = row.get("aim_us", row["aim"])
    if row["peer"] == "empty":
        found, mark = f"{row['over_us']:5.1f}us", "" if row["over_us"] <= aim else "  above"
    elif "aim_us" in row:
        mark = "" if 1e3 * row["ours_ms"] <= aim else "  above"
    figures = f"{row['ours_ms']:9.4f} {row['peer_ms']:9.4f} {found}  {aim:5g}  {row['peer']}{mark}"
    return _fitted(row["operator"], row["case"], width, figures)


def _fitted(operator: str, case: str, width: int, figures: str) -> str:
    """A row; two lines where the longest case leaves no room for the figures."""
    if 15 + 1 + width + 1 + _FIGURES <= columns():
        return f"{operator:15} {case:{width}} {figures}"
    return f"{operator:15} {case}\n{'':15} {figures}"


def _known(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a record, none where there is no file.

    Raises:
        OptionError: It is something else.
    """
    from json import loads

    if path == STANDARD_OUTPUT or not path.exists():
        return {}
    try:
        return {_key(row): row for row in loads(path.read_text("utf-8"))["results"]}
    except (ValueError, TypeError, KeyError) as error:
        raise OptionError(f"{path} is not a record of bench-ops") from error


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _write(
    path: Path,
    known: dict[tuple[Any, ...], dict[str, Any]],
    rows: list[dict[str, Any]],
    gpu: str | None,
) -> None:
    """Put rows in place of those of the same operator, case, peer, dtype and width."""
    import datetime
    from importlib.metadata import PackageNotFoundError, version

    from saccade.report.machine import describe_machine

    versions = {}
    for package in ("torch", "torchvision"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    known = known | {_key(row): {**row, "taken": taken, "versions": versions} for row in rows}
    document = {"machine": describe_machine(), "results": list(known.values())}
    if gpu is not None:
        document["gpu"] = gpu
    give_json(path, document)
