"""The parent's side of one engine in a process of its own."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from saccade.cli._bench_messages import Failure, Open, Opened, Round, RoundDone
from saccade.errors import OptionError, SaccadeError
from saccade.forking import interrupts_held

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from saccade.cli._engines import EngineSpec

__all__ = ["EngineProcess"]

IDLE_SECONDS = 0.05  # thread pools spin for a few milliseconds after a run before they sleep
IDLE_LIMIT_SECONDS = 60.0  # an engine may compile better code in the background


class EngineProcess:
    """Holds one engine; blocked except between a request and its reply.

    Use it as a context manager: leaving it ends the process.

    Attributes:
        spec: Engine, model and setting.
        peak_rss_bytes: The process's largest resident set, as of its last reply.
    """

    def __init__(self, spec: EngineSpec, environment: Mapping[str, str] | None = None) -> None:
        """Start the process; the model is loaded by `open`.

        Args:
            spec: Engine, model and setting.
            environment: The child's whole environment; None inherits this process's.
        """
        self.spec = spec
        self.peak_rss_bytes = 0
        with interrupts_held():
            self._child = subprocess.Popen(
                [sys.executable, "-m", "saccade.cli._bench_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=None if environment is None else dict(environment),
            )

    @property
    def pid(self) -> int:
        """Identifier of the process."""
        return self._child.pid

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is KeyboardInterrupt:
            self._child.kill()  # it may be at work for long
        self.close()

    def open(
        self, inputs: dict[str, NDArray[Any]], cores: tuple[int, ...], *, work: bool = True
    ) -> Opened:
        """Load the model and run it once on `inputs`, pinned to `cores`; see `Open`."""
        reply = self._ask(Open(self.spec, inputs, cores, work))
        assert isinstance(reply, Opened)
        self.peak_rss_bytes = reply.peak_rss_bytes
        return reply

    def round(self, seconds: float, callers: int = 1) -> RoundDone:
        """Time runs for `seconds`, then wait until the engine's threads sleep."""
        reply = self._ask(Round(seconds, callers))
        assert isinstance(reply, RoundDone)
        self.peak_rss_bytes = reply.peak_rss_bytes
        self.wait_idle()
        return reply

    def wait_idle(self) -> None:
        """Return once no thread of the process runs, so that it cannot disturb the next engine."""
        time.sleep(IDLE_SECONDS)
        end = time.monotonic() + IDLE_LIMIT_SECONDS
        while _runs(self._child.pid):
            if time.monotonic() > end:
                raise SaccadeError(
                    f"{self.spec.engine} still uses the processor {IDLE_LIMIT_SECONDS:.0f} s "
                    "after its last run; times taken beside it would mean nothing"
                )
            time.sleep(IDLE_SECONDS)

    def close(self) -> None:
        """End the process."""
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        # The end of its input is what the child ends by.
        with contextlib.suppress(BrokenPipeError):  # it may have ended already
            stdin.close()
        try:
            self._child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        stdout.close()

    def _ask(self, request: Open | Round) -> Opened | RoundDone:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            pickle.dump(request, self._child.stdin)
            self._child.stdin.flush()
            reply: Opened | RoundDone | Failure | SaccadeError = pickle.load(self._child.stdout)
        except (BrokenPipeError, EOFError):
            status = self._child.wait()
            raise SaccadeError(
                f"{self.spec.engine} ended with status {status} on {self.spec.path}"
            ) from None
        if isinstance(reply, Failure):
            raise SaccadeError(f"{self.spec.engine}: {reply.message}")
        if isinstance(reply, SaccadeError):
            engine = self.spec.engine.partition(":")[0]
            # Errors of the command line begin with our name, and some with the peer's.
            if engine == "saccade" or str(reply).startswith(engine):
                raise reply
            raise OptionError(f"{engine}: {reply}")
        return reply


def _runs(pid: int) -> bool:
    """Whether any thread of the process is on a processor or waits for one."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return False  # no such system here: the fixed pause has to do
    for task in tasks.iterdir():
        try:
            # From the right: the name in front, in brackets, may hold spaces and brackets itself.
            state = (task / "stat").read_text().rpartition(") ")[2][0]
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended meanwhile
        if state == "R":
            return True
    return False
