"""The fork server as those see it who need children: started, kept for a while, ended.

What runs in it is `fork_server`; `processes` makes calls in its children.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from saccade.fork_server import FRAME, PID, receive
from saccade.locks import Lock, forkless

__all__ = ["SPARE", "ForkServer", "Inherited", "hang_up", "interrupts_held"]

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""NumPy's BLAS would start threads, which no fork survives."""
_SPARE_SECONDS = 5.0
"""For which a fork server that nobody needs waits for whoever may."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Start a process that is to ignore Ctrl-C, and has yet to say so.

    It goes to every process of a terminal, and what the block starts is not reached by it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hang_up(connection: socket.socket) -> None:
    """Close a connection.

    A socket forgets its number before it gives it back, and another thread may run in between: a
    child forked just then would have a copy that `forget` cannot close.
    """
    with forkless:
        connection.close()


@dataclass(frozen=True)
class Inherited:
    """What a process has from the one that starts it."""

    environment: dict[str, str]
    folder: str
    user: tuple[int, int]
    cores: frozenset[int]

    @classmethod
    def now(cls) -> Inherited:
        """Of a child of this process."""
        try:
            folder = str(Path.cwd())
        except FileNotFoundError:  # somebody took it away, which is no reason to fail
            folder = os.curdir
        # Functions must be found there as they are here, where `sys.path` may have been changed.
        path = os.pathsep.join(p or folder for p in sys.path)
        environment = dict(os.environ, PYTHONPATH=path, **dict.fromkeys(_ONE_THREAD, "1"))
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
        return cls(environment, folder, (os.geteuid(), os.getegid()), frozenset(cores))


class ForkServer:
    """The process that children are forked from; it follows the commands of `fork_server.serve`.

    Args:
        begun: How this process is while it starts, which children inherit.
    """

    def __init__(self, begun: Inherited) -> None:
        self._begun = begun
        self._commands, theirs = socket.socketpair()
        # `-P`, or the working directory would come before PYTHONPATH.
        with interrupts_held(), theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from saccade.fork_server import serve; serve()"],
                stdin=theirs.fileno(),
                env=begun.environment,
            )
        self._imported: set[str] = set()
        self._answered = 0  # imports that are known to be done
        self._lock = Lock()  # a command and its reply

    def bring(self, module: str) -> None:
        """Import a module, `module:function` also runs something; children forked later have it."""
        # That the server died is found out by whoever waits for a result.
        with self._lock, suppress(BrokenPipeError):
            if module not in self._imported:
                self._imported.add(module)
                name = module.encode()
                self._commands.sendall(b"i" + FRAME.pack(len(name)) + name)

    def child(self) -> tuple[socket.socket, Callable[[], None]]:
        """Fork.

        Returns:
            The connection, which may be written to before the child is there, and what to call
            once it has answered.
        """
        ours, theirs = socket.socketpair()
        with self._lock, theirs, suppress(BrokenPipeError):
            before = len(self._imported)
            socket.send_fds(self._commands, [b"f"], [theirs.fileno()])
        # The connection has come to its end if the fork server died.
        return ours, partial(self._answer, before)

    def _answer(self, imports: int) -> None:
        self._answered = max(self._answered, imports)

    def status(self, pid: int) -> int:
        """The exit status of a child that died, or of the fork server where that was what died."""
        try:
            with self._lock:
                self._commands.sendall(b"w" + PID.pack(pid))
                (status,) = PID.unpack(receive(self._commands, PID.size))
        except (EOFError, OSError):
            # No reply: it is the server that ended.
            status = self._process.wait()
        return int(status)

    @property
    def idle(self) -> bool:
        """Whether it runs, and is known to be importing nothing."""
        return self._answered == len(self._imported) and self._process.poll() is None

    def serves(self, wanted: Inherited) -> bool:
        """Whether it runs, and children of it would be as children of a new one."""
        return self._begun == wanted and self._process.poll() is None

    def hang_up(self) -> None:
        """Have it end; `close` waits for that."""
        hang_up(self._commands)

    def close(self) -> None:
        """End the process, whatever it is importing, once its children have ended."""
        self.hang_up()
        self._process.terminate()
        self._process.wait()

    def forget(self) -> None:
        """After a fork: the process belongs to the parent."""
        self._commands.close()
        # Only a parent can wait for it: `Popen` is told that it has ended.
        self._process.returncode = 0


class Spare:
    """A fork server that nobody needs for the moment, if there is one."""

    def __init__(self) -> None:
        self._kept: list[tuple[ForkServer, threading.Timer]] = []

    def put(self, server: ForkServer) -> list[ForkServer]:
        """Keep one for some seconds in place of the one before; to be called with `forkless`.

        Returns:
            Those to `close` without it: the one before; or this one, if it is still importing or
            nobody would end it.
        """
        timer = threading.Timer(_SPARE_SECONDS, self._end, [server])
        timer.daemon = True
        if not server.idle or not _started(timer):
            server.hang_up()
            return [server]
        before = [self._dropped(pair) for pair in list(self._kept)]
        self._kept.append((server, timer))
        return before

    def take(self, wanted: Inherited) -> ForkServer | None:
        """The one that there is, if it is as a new one would be; to be called with `forkless`."""
        for pair in self._kept:
            if pair[0].serves(wanted):
                pair[1].cancel()
                self._kept.remove(pair)
                return pair[0]
        return None

    def end(self) -> None:
        """End what there is."""
        for server, _ in list(self._kept):
            self._end(server)

    def forget(self) -> None:
        """After a fork: the process belongs to the parent."""
        for server, _ in self._kept:
            server.forget()
        self._kept.clear()

    def _dropped(self, pair: tuple[ForkServer, threading.Timer]) -> ForkServer:
        server, timer = pair
        self._kept.remove(pair)
        timer.cancel()
        server.hang_up()
        return server

    def _end(self, server: ForkServer) -> None:
        with forkless:
            # None if it was taken.
            found = [self._dropped(pair) for pair in list(self._kept) if pair[0] is server]
        for one in found:
            one.close()


def _started(thread: threading.Thread) -> bool:
    """Whether it could be: the system may have no more, or the interpreter be about to end."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


SPARE = Spare()
"""Of this process."""
atexit.register(SPARE.end)
