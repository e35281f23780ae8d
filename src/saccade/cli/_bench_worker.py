"""The process that holds one engine: `python -m saccade.cli._bench_worker`.

It answers pickled requests on its standard input, one reply each, and sleeps in between, so that
the parent decides who runs when. The first request is an `Open`; `None` ends it.
"""

# ruff: noqa: PLC0415 - pinned to its cores before anything that starts threads is imported

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from saccade.cli._bench_messages import Failure, Open, Opened, Round, RoundDone
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.cli._engines import Arrays, LoadedModel

WARM_UP_RUNS = 2
LEAST_RUNS = 3


def main() -> None:
    """Serve requests until the parent says stop or closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what that means
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever an engine prints must not get between the replies
    serve(requests, replies)


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer every request of one stream on the other."""
    engine: LoadedModel | None = None
    inputs: Arrays = {}
    watch: Callable[[], float] | None = None
    reply: Opened | RoundDone | Failure | SaccadeError
    while (request := _receive(requests)) is not None:
        try:
            if isinstance(request, Open):
                engine, reply = _open(request)
                inputs = request.inputs
            else:
                assert engine is not None, "the first request is an Open"
                if request.callers > 1:
                    reply = _concurrent_round(engine, inputs, request)
                else:
                    watch = watch or engine.stopwatch(inputs)
                    reply = _round(watch, request)
        except SaccadeError as error:
            reply = error
        except Exception as error:  # noqa: BLE001 - an engine may raise anything; the parent reports it
            reply = Failure(f"{type(error).__name__}: {error}")
        pickle.dump(reply, replies)
        replies.flush()


def _receive(stream: IO[bytes]) -> Open | Round | None:
    try:
        request: Open | Round | None = pickle.load(stream)
    except EOFError:
        return None
    return request


def _open(request: Open) -> tuple[LoadedModel, Opened]:
    if request.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request.cores)
    from saccade.cli._engines import as_numpy, import_engine, open_engine

    # Before the clock starts: no engine's first answer includes its import.
    import_engine(request.spec.engine)
    start = time.perf_counter()
    engine = open_engine(request.spec)
    loaded = time.perf_counter()
    outputs = as_numpy(engine.run(request.inputs))
    done = time.perf_counter()
    return engine, Opened(
        version=engine.version,
        load_s=loaded - start,
        first_answer_s=done - start,
        outputs=outputs,
        peak_rss_bytes=peak_rss(),
        work=engine.work(request.spec.shapes) if request.work else {},
    )


def _round(watch: Callable[[], float], request: Round) -> RoundDone:
    # Since its last turn other engines have had the caches, and its pool sleeps.
    for _ in range(WARM_UP_RUNS):
        watch()
    start = time.perf_counter()
    times = _loop(watch, request.seconds, LEAST_RUNS)
    return RoundDone(times, time.perf_counter() - start, peak_rss())


def _loop(watch: Callable[[], float], seconds: float, least: int) -> list[float]:
    """Milliseconds of each call, for `seconds` and at least `least` times."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        times.append(watch())
    return times


def _concurrent_round(engine: LoadedModel, inputs: Arrays, request: Round) -> RoundDone:
    """The same loop in `callers` Python threads at once, on one model."""
    from concurrent.futures import ThreadPoolExecutor

    for _ in range(WARM_UP_RUNS):
        engine.run(inputs)

    def timed() -> float:
        start = time.perf_counter()
        engine.run(inputs)
        return (time.perf_counter() - start) * 1e3

    def one_caller(_: int) -> Sequence[float]:
        return _loop(timed, request.seconds, LEAST_RUNS)

    start = time.perf_counter()
    with ThreadPoolExecutor(request.callers) as pool:
        times = [ms for caller in pool.map(one_caller, range(request.callers)) for ms in caller]
    wall = time.perf_counter() - start
    return RoundDone(times_ms=times, wall_s=wall, peak_rss_bytes=peak_rss())


def peak_rss() -> int:
    """Largest resident set of this process so far, in bytes."""
    status = Path("/proc/self/status")
    # `ru_maxrss` survives an exec, and would count what the parent had before it.
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In bytes there, in KiB elsewhere.
    return used if sys.platform == "darwin" else used * 1024


if __name__ == "__main__":
    main()
