"""Child processes that run functions: kernels compile side by side.

Whatever dies there does not take the user's process down, nor does what it needed stay in the
user's memory.

One plain interpreter, the fork server, imports what the functions need and does nothing else; every
call is made in a fork of it, so that modules are imported once however many calls run at a time.
The fork server has a single thread, which is what makes the forks safe. Calls go in and results
come out over sockets. Both ends are the same program under the same user, connected privately, so
pickles are safe here. A child lives as long as its calls, the fork server until `close`.

(The fork server of `multiprocessing` would import the user's main module in its children, and with
it whatever that does unguarded.)
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from saccade.errors import CompileError
from saccade.fork_server import FRAME, PID, receive
from saccade.locks import Lock, forkless
from saccade.options import default_threads

__all__ = ["Processes", "Worker", "interrupts_held"]

A = TypeVar("A")
R = TypeVar("R")

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""NumPy's BLAS would start threads, which no fork survives."""


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


def _hang_up(connection: socket.socket) -> None:
    """Close a connection.

    A socket forgets its number before it gives it back, and another thread may run in between: a
    child forked just then would have a copy that `forget` cannot close.
    """
    with forkless:
        connection.close()


class _ForkServer:
    """The process that children are forked from; it follows the commands of `fork_server.serve`."""

    def __init__(self) -> None:
        # Functions must be found there as they are here, where `sys.path` may have been changed.
        path = os.pathsep.join(p or str(Path.cwd()) for p in sys.path)
        self._commands, theirs = socket.socketpair()
        # `-P`, or the working directory would come before PYTHONPATH.
        with interrupts_held(), theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from saccade.fork_server import serve; serve()"],
                stdin=theirs.fileno(),
                env=dict(os.environ, PYTHONPATH=path, **dict.fromkeys(_ONE_THREAD, "1")),
            )
        self._imported: set[str] = set()
        self._lock = Lock()  # a command and its reply

    def bring(self, module: str) -> None:
        """Import a module, `module:function` also runs something; children forked later have it."""
        # That the server died is found out by whoever waits for a result.
        with self._lock, suppress(BrokenPipeError):
            if module not in self._imported:
                self._imported.add(module)
                name = module.encode()
                self._commands.sendall(b"i" + FRAME.pack(len(name)) + name)

    def child(self) -> socket.socket:
        """Fork; gives the connection, which may be written to before the child is there."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs, suppress(BrokenPipeError):
            socket.send_fds(self._commands, [b"f"], [theirs.fileno()])
        return ours  # which has come to its end if the fork server died

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

    def close(self) -> None:
        """End the process, whatever it is importing, once its children have ended."""
        _hang_up(self._commands)
        self._process.terminate()
        self._process.wait()

    def forget(self) -> None:
        """After a fork: the process belongs to the parent."""
        self._commands.close()
        # Only a parent can wait for it: `Popen` is told that it has ended.
        self._process.returncode = 0


class _Child:
    """One fork of the fork server."""

    def __init__(self, server: _ForkServer) -> None:
        self._server = server
        self._socket = server.child()
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
        _hang_up(self._socket)


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
        self._server: list[_ForkServer] = []  # one, once something was asked for
        self._busy: set[_Child] = set()
        self._lock = Lock()  # held as long as a `map` lasts
        self._hands = Lock()  # held while the fork server is told something
        # The lists, not `self`: a finalizer keeps its arguments alive.
        weakref.finalize(self, _abandon, self._server, self._busy)
        _all.add(self)

    @property
    def started(self) -> bool:
        """Whether the fork server runs, so that a call costs no start of an interpreter."""
        return bool(self._server)

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
        """End the fork server; whoever needs children later starts another one."""
        # Not while a `map` lasts, whose children belong to this server.
        with self._lock, self._hands:
            _close(self._server)

    def forget(self) -> None:
        """After a fork: the children belong to the parent."""
        # Without locks: a forked child has but one thread.
        for child in self._busy:
            child.close()
        for server in self._server:
            server.forget()
        self._busy.clear()
        self._server.clear()

    def _started(self) -> _ForkServer:
        if not self._server:
            with forkless:  # a copy of a socket that `forget` cannot find would never be closed
                self._server.append(_ForkServer())
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


def _close(servers: list[_ForkServer]) -> None:
    for server in servers:
        server.close()
    servers.clear()


def _abandon(servers: list[_ForkServer], children: set[_Child]) -> None:
    """What is left when nobody can ask for results any more, not even for those that were begun."""
    for child in children:
        child.close()
    children.clear()
    _close(servers)


_all = weakref.WeakSet[Processes]()


def _forget() -> None:
    for processes in _all:
        processes.forget()


os.register_at_fork(after_in_child=_forget)
