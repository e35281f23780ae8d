"""Child processes that run functions: kernels compile side by side.

Whatever dies there does not take the user's process down, nor does what it needed stay in the
user's memory.

One plain interpreter, the fork server, imports what the functions need and does nothing else; every
call is made in a fork of it, so that modules are imported once however many calls run at a time.
The fork server has a single thread, which is what makes the forks safe. Calls go in and results
come out over sockets. Both ends are the same program under the same user, connected privately, so
pickles are safe here. A child lives as long as its calls, the fork server until `close` and some
seconds more: whoever needs one then, for another model or size, need not wait for its imports.

(The fork server of `multiprocessing` would import the user's main module in its children, and with
it whatever that does unguarded.)
"""

from __future__ import annotations

import os
import pickle
import signal
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from saccade.errors import CompileError
from saccade.fork_server import FRAME, PID, receive
from saccade.forking import SPARE, ForkServer, Inherited, hang_up
from saccade.locks import Lock, forkless
from saccade.options import default_threads

__all__ = ["Processes", "Worker"]

A = TypeVar("A")
R = TypeVar("R")


class _Child:
    """One fork of the fork server."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._socket, self._answered = server.child()
        self._pid = 0  # told before the first result

    def begin(self, function: Callable[[A], R], argument: A) -> None:
        """Send a call of a module-level function."""
        message = pickle.dumps((function, argument))
        # The call before this one may have left a limit.
        self._socket.settimeout(None)
        with suppress(ConnectionError):  # `end` will find out more
            self._socket.sendall(FRAME.pack(len(message)) + message)

    def end(self, function: Callable[[A], R], seconds: float | None = None) -> R:
        """The result of the call that was begun; the child ends if that takes longer."""
        self._socket.settimeout(seconds)
        try:
            # Read as late as this, so that `begin` waits for no fork.
            if not self._pid:
                (self._pid,) = PID.unpack(receive(self._socket, PID.size))
                self._answered()
            (length,) = FRAME.unpack(receive(self._socket, FRAME.size))
            error, result = pickle.loads(receive(self._socket, length))
        except TimeoutError:  # an `OSError` as well
            # One that has not told its number ends when the socket is closed.
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
            raise CompileError(
                f"the process that ran {function.__qualname__} was ended: it took longer than "
                f"{seconds:.0f} s"
            ) from None
        except (EOFError, OSError) as broken:
            status = self._server.status(self._pid)
            raise CompileError(
                f"the process that ran {function.__qualname__} died (status {status})"
            ) from broken
        if error is not None:
            raise error
        value: R = result
        return value

    def close(self) -> None:
        """Let the child end; it does so once it finds nobody there."""
        hang_up(self._socket)


class Worker:
    """A child for calls one after the other; what they leave in its modules is there for the next.

    Args:
        child: Begins and ends calls.
        end: Does away with it.
    """

    def __init__(self, child: _Child, end: Callable[[_Child], None]) -> None:
        self._child, self._end = child, end

    def call(self, function: Callable[[A], R], argument: A, seconds: float | None = None) -> R:
        """The result of a module-level function there.

        Raises:
            SaccadeError: What the function raised, or a `CompileError` if the child died or took
                longer than `seconds`, which ends it; it is of no use any more then.
        """
        self._child.begin(function, argument)
        return self._child.end(function, seconds)

    def close(self) -> None:
        """Let it end."""
        self._end(self._child)


class Processes:
    """Children as they are needed, at most as many at a time in a `map` as there are cores."""

    def __init__(self) -> None:
        self._server: list[ForkServer] = []  # one, once something was asked for
        self._busy: set[_Child] = set()
        self._lock = Lock()  # held as long as a `map` lasts
        self._hands = Lock()  # held while the fork server is told something
        # The lists, not `self`: a finalizer keeps its arguments alive.
        weakref.finalize(self, _abandon, self._server, self._busy)
        _all.add(self)

    def preload(self, *modules: str) -> None:
        """Import modules for calls that begin from now on; `module:function` also runs that."""
        with self._hands:
            server = self._started()
            for module in modules:
                server.bring(module)

    def map(self, function: Callable[[A], R], arguments: Sequence[A]) -> list[R]:
        """Results in order; the calls run side by side.

        Raises:
            SaccadeError: What the function raised there, or that a child died.
        """
        if not arguments:
            return []
        with self._lock:
            children = [self._fork(function) for _ in range(min(default_threads(), len(arguments)))]
            idle = list(children)

            def work(argument: A) -> R:
                # There are as many threads as children: one is idle.
                child = idle.pop()
                child.begin(function, argument)
                try:
                    return child.end(function)
                finally:
                    idle.append(child)

            try:
                # Threads only wait for sockets; the work is done in the children.
                with ThreadPoolExecutor(len(children)) as threads:
                    return list(threads.map(work, arguments))
            finally:
                for child in children:
                    self._end(child)

    def start(self, function: Callable[[A], R], argument: A) -> Callable[[], R]:
        """Begin one call, whatever the others are doing; gives the function to ask for its result.

        That raises what the function raised there, or a `CompileError` if the child died.
        """
        child = self._fork(function)
        child.begin(function, argument)

        def finish() -> R:
            try:
                return child.end(function)
            finally:
                self._end(child)

        return finish

    def worker(self, module: str) -> Worker:
        """A child that has a module, until it is closed."""
        return Worker(self._fork_with(module), self._end)

    def close(self) -> None:
        """Do without the fork server; it ends unless others need one within some seconds."""
        # Not while a `map` lasts, whose children belong to this server.
        with self._lock, self._hands:
            with forkless:
                # First: an interrupt in between must not leave it with two owners.
                servers = list(self._server)
                self._server.clear()
                over = [one for server in servers for one in SPARE.put(server)]
            for server in over:
                server.close()

    def forget(self) -> None:
        """After a fork: the children belong to the parent."""
        # Without locks: a forked child has but one thread.
        for child in self._busy:
            child.close()
        for server in self._server:
            server.forget()
        self._busy.clear()
        self._server.clear()

    def _started(self) -> ForkServer:
        if not self._server:
            wanted = Inherited.now()
            with forkless:  # a copy of a socket that `forget` cannot find would never be closed
                self._server.append(SPARE.take(wanted) or ForkServer(wanted))
        return self._server[0]

    def _fork(self, function: Callable[[A], R]) -> _Child:
        """A child that has the function's module."""
        return self._fork_with(function.__module__)

    def _fork_with(self, module: str) -> _Child:
        with self._hands:
            server = self._started()
            server.bring(module)
            # Both or neither, as `forget` closes the sockets that it finds.
            with forkless:
                child = _Child(server)
                self._busy.add(child)
            return child

    def _end(self, child: _Child) -> None:
        child.close()
        with self._hands:
            self._busy.discard(child)


def _abandon(servers: list[ForkServer], children: set[_Child]) -> None:
    """What is left when nobody can ask for results any more, not even for those that were begun."""
    for child in children:
        child.close()
    children.clear()
    for server in servers:
        server.close()
    servers.clear()


_all = weakref.WeakSet[Processes]()


def _forget() -> None:
    for processes in _all:
        processes.forget()
    SPARE.forget()


os.register_at_fork(after_in_child=_forget)
