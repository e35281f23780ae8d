"""Compiler processes: kernels compile side by side, and an abort inside LLVM does not take the user's process down.

The processes are plain interpreters running `saccade.runtime.cpu.compile_worker`; tasks go in and objects come out
over pipes. They live for one batch (or from `warm` on), so that a process that only runs holds no others.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from saccade.codegen.target import Target
from saccade.errors import CompileError
from saccade.options import default_threads

__all__ = ["CompilerPool", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile."""

    symbol: str
    kernel: str
    config: Any
    target: Target
    checked: bool


Result = tuple[bytes, tuple[str, ...]]


class _Worker:
    """One compiler process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "saccade.runtime.cpu.compile_worker"]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def compile(self, task: Task) -> Result:
        """Send one task, wait for its object."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            pickle.dump(task, stdin)
            stdin.flush()
            kind, value = pickle.load(stdout)
        except (EOFError, BrokenPipeError) as error:
            status = self._process.wait()
            raise CompileError(f"the compiler process died (status {status}) on {task.kernel}") from error
        if kind == "error":
            raise CompileError(f"{task.kernel} cannot be compiled: {value}")
        code, accesses = value
        return code, accesses

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()


class CompilerPool:
    """As many compiler processes as there are cores, started when first needed."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()

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
            for worker in self._workers:
                worker.close()
            self._workers.clear()
