"""Child processes that run functions: kernels compile side by side.

Whatever dies there does not take the user's process down, nor does what it needed stay in the
user's memory.

A child is a plain interpreter running `main`; calls go in and results come out over pipes. Both
ends are the same program under the same user, connected privately, so pickles are safe here.
Children live until `close`.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from saccade.errors import CompileError, SaccadeError
from saccade.locks import Lock
from saccade.options import default_threads

__all__ = ["Processes", "main"]

A = TypeVar("A")
R = TypeVar("R")


_FRAME = struct.Struct("<Q")
"""Length of the pickle that follows; unbuffered pipes, so that a fork copies no half message."""

_LITTER = 50_000
"""Objects after which a child collects garbage, between calls: Python would look through all that a
kernel's code is made of time and again while it is made."""


class _Child:
    """One child process; it imports the module `ahead` before its first call."""

    def __init__(self, ahead: str = "") -> None:
        path = os.pathsep.join(p or str(Path.cwd()) for p in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from saccade.processes import main; main({ahead!r})"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=path),
        )

    def call(self, function: Callable[[A], R], argument: A) -> R:
        """Run a module-level function on an argument there."""
        try:
            self._send(pickle.dumps((function, argument)))
            (length,) = _FRAME.unpack(self._receive(_FRAME.size))
            error, result = pickle.loads(self._receive(length))
        except (EOFError, BrokenPipeError) as broken:
            status = self._process.wait()
            raise CompileError(
                f"the process that ran {function.__qualname__} died (status {status})"
            ) from broken
        if error is not None:
            raise error
        value: R = result
        return value

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(message)
        while rest:
            rest = rest[self._process.stdin.write(rest) :]

    def _receive(self, count: int) -> bytes:
        assert self._process.stdout is not None
        parts: list[bytes] = []
        while count:
            part = self._process.stdout.read(count)
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """End the process."""
        self._close_pipes()
        self._process.wait()

    def forget(self) -> None:
        """After a fork: the process belongs to the parent."""
        self._close_pipes()
        self._process.returncode = 0

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Processes:
    """As many children as there are cores, started when first needed."""

    def __init__(self) -> None:
        self._children: list[_Child] = []  # that have nothing to do
        self._busy: list[_Child] = []
        self._lock = Lock()  # held as long as a `map` lasts
        self._hands = Lock()  # held while children change hands
        weakref.finalize(self, _close, self._children)
        _all.add(self)

    def warm(self, ahead: str = "") -> None:
        """Start the children now; all but the first to work import the module `ahead` meanwhile."""
        with self._hands:
            while len(self._children) < default_threads():
                self._children.append(_Child(ahead if self._children else ""))

    def map(self, function: Callable[[A], R], arguments: Sequence[A]) -> list[R]:
        """Results in order; the calls run side by side.

        Raises:
            SaccadeError: What the function raised there, or that a child died.
        """
        if not arguments:
            return []
        with self._lock:
            children = self._take(min(default_threads(), len(arguments)))
            idle = list(children)

            def work(argument: A) -> R:
                child = idle.pop()
                try:
                    return child.call(function, argument)
                finally:
                    idle.append(child)

            try:
                with ThreadPoolExecutor(len(idle)) as threads:
                    return list(threads.map(work, arguments))
            except CompileError:
                _close(idle)  # a dead child must not meet the next caller
                raise
            finally:
                self._give_back(children, idle)

    def aside(self, function: Callable[[A], R], argument: A) -> R:
        """Run one call on an idle child or a new one, whatever the others are doing.

        Raises:
            SaccadeError: What the function raised there, or that the child died.
        """
        (child,) = children = self._take(1, last=True)
        try:
            return child.call(function, argument)
        except CompileError:
            child.close()
            children = []
            raise
        finally:
            self._give_back([child], children)

    def _take(self, count: int, *, last: bool = False) -> list[_Child]:
        """The first children that have nothing to do, or the last; new ones where they are few."""
        with self._hands:
            while len(self._children) < count:
                self._children.append(_Child())
            taken = [self._children.pop(-1 if last else 0) for _ in range(count)]
            self._busy.extend(taken)
            return taken

    def _give_back(self, taken: Sequence[_Child], alive: Sequence[_Child]) -> None:
        with self._hands:
            for child in taken:
                self._busy.remove(child)
            self._children.extend(alive)

    def close(self) -> None:
        """End the children."""
        with self._lock, self._hands:
            _close(self._children)

    def forget(self) -> None:
        """After a fork: the children belong to the parent."""
        for child in (*self._children, *self._busy):
            child.forget()
        self._children.clear()
        self._busy.clear()


def _close(children: list[_Child]) -> None:
    for child in children:
        child.close()
    children.clear()


_all = weakref.WeakSet[Processes]()


def _forget() -> None:
    for processes in _all:
        processes.forget()


os.register_at_fork(after_in_child=_forget)


def main(ahead: str) -> None:
    """Serve calls from standard input until it ends; import a module first, if one is named."""
    gc.disable()  # see `_LITTER`
    if ahead:
        importlib.import_module(ahead)
    gc.freeze()
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up between the replies
    while True:
        try:
            function, argument = pickle.load(requests)
        except EOFError:
            os._exit(0)  # taking a large interpreter down in order takes 150 ms
        reply: tuple[SaccadeError | None, Any]
        try:
            reply = None, function(argument)
        except SaccadeError as error:
            reply = error, None
        message = pickle.dumps(reply)
        replies.write(_FRAME.pack(len(message)) + message)
        replies.flush()
        if gc.get_count()[0] > _LITTER:
            gc.collect()
