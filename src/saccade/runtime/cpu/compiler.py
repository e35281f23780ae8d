"""Compiler processes: kernels compile side by side, and an abort inside LLVM does not take the user's process down.

The processes are plain interpreters running `saccade.runtime.cpu.compile_worker`; tasks go in and objects come out
over pipes. They live for one batch (or from `warm` on), so that a process that only runs holds no others.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from saccade.codegen.target import Target
from saccade.errors import CompileError
from saccade.options import default_threads
from saccade.runtime.locks import Lock

__all__ = ["FRAME", "CompilerPool", "Result", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile."""

    symbol: str
    kernel: str
    config: Any
    target: Target
    checked: bool


Result = tuple[bytes, tuple[str, ...]]

FRAME = struct.Struct("<Q")
"""Length of the pickle that follows; pipes are unbuffered, so that a fork copies no half message."""


class _Worker:
    """One compiler process."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "saccade.runtime.cpu.compile_worker"]
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=path),
        )

    def compile(self, task: Task) -> Result:
        """Send one task, wait for its object."""
        try:
            self._send(pickle.dumps(task))
            (length,) = FRAME.unpack(self._receive(FRAME.size))
            kind, value = pickle.loads(self._receive(length))
        except (EOFError, BrokenPipeError) as error:
            status = self._process.wait()
            raise CompileError(
                f"the compiler process died (status {status}) on {task.kernel}"
            ) from error
        if kind == "error":
            raise CompileError(f"{task.kernel} cannot be compiled: {value}")
        code, accesses = value
        return code, accesses

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        while message:
            message = message[self._process.stdin.write(message) :]

    def _receive(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = b""
        while len(found) < count:
            more = self._process.stdout.read(count - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def close(self) -> None:
        """End the process."""
        self._close_pipes()
        self._process.wait()

    def forget(self) -> None:
        """In a forked child: the process is the parent's."""
        self._close_pipes()
        self._process.returncode = 0

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class CompilerPool:
    """As many compiler processes as there are cores, started when first needed."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._lock = Lock()
        weakref.finalize(self, _close, self._workers)
        _pools.add(self)

    def warm(self) -> None:
        """Start the processes now: there will be work soon."""
        with self._lock:
            self._start(default_threads())

    def _start(self, count: int) -> None:
        while len(self._workers) < count:
            self._workers.append(_Worker())

    def compile(self, tasks: Sequence[Task]) -> list[Result]:
        """Objects for the tasks, in order.

        Raises:
            CompileError: If one of them cannot be compiled.
        """
        if not tasks:
            return []
        with self._lock:
            self._start(min(default_threads(), len(tasks)))
            idle = list(self._workers)

            def work(task: Task) -> Result:
                worker = idle.pop()
                try:
                    return worker.compile(task)
                finally:
                    idle.append(worker)

            with ThreadPoolExecutor(len(self._workers)) as threads:
                return list(threads.map(work, tasks))

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            _close(self._workers)

    def forget(self) -> None:
        """In a forked child: the processes are the parent's."""
        for worker in self._workers:
            worker.forget()
        self._workers.clear()


def _close(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.close()
    workers.clear()


_pools = weakref.WeakSet[CompilerPool]()


def _forget_workers() -> None:
    for pool in _pools:
        pool.forget()


os.register_at_fork(after_in_child=_forget_workers)
