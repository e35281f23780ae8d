"""A compiler process: reads tasks from standard input, writes objects to standard output, until the input ends.

Both ends are the same program under the same user, connected by a private pipe, so pickles are safe here.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from saccade.codegen.compile import object_code
from saccade.codegen.language import Kernel
from saccade.errors import SaccadeError
from saccade.kernels import CPU_KERNELS
from saccade.runtime.cpu.compiler import FRAME, Result, Task

__all__ = ["main", "run_task"]


def run_task(task: Task) -> Result:
    """Emit and compile one kernel in this process."""
    kernel = next(k for k in CPU_KERNELS if k.name == task.kernel)
    builder = Kernel(task.symbol, task.target, checked=task.checked)
    kernel.emit(builder, task.config)
    return object_code(str(builder.finish()), task.target), tuple(builder.accesses)


def main() -> None:
    """Serve tasks."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up between the replies
    while True:
        try:
            task: Task = pickle.load(requests)
        except EOFError:
            return
        try:
            reply: tuple[str, Any] = ("done", run_task(task))
        except SaccadeError as error:
            reply = ("error", str(error))
        message = pickle.dumps(reply)
        replies.write(FRAME.pack(len(message)) + message)
        replies.flush()


if __name__ == "__main__":
    main()
