"""How long runs take that nothing looks into."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["whole_run"]

_RUNS = 4


def whole_run(
    run: Callable[[], object], clock: Callable[[Callable[[], object], int], float], queued: int
) -> float | None:
    """Microseconds of a run, where runs only enqueue; elsewhere profiles are of whole runs.

    Args:
        run: Runs the program once.
        clock: See `program.Arrays`.
        queued: Runs to time as one; 1 where they do not enqueue.
    """
    if queued == 1:
        return None
    # The first one warms up; of the others the least counts, as what disturbs a run only adds.
    times = [clock(run, queued) for _ in range(_RUNS)]
    return 1e3 * min(times[1:])
