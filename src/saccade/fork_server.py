"""What runs in the processes that `saccade.processes` starts: the fork server, and its forks."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import signal
import socket
import struct
from contextlib import suppress
from typing import Any

from saccade.errors import SaccadeError

__all__ = ["FRAME", "PID", "receive", "serve"]

FRAME = struct.Struct("<Q")
"""Length of what follows: a name or a pickle."""
PID = struct.Struct("<q")
"""What a child says first, and what the server is asked the exit status of; also the status."""

_LITTER = 50_000
"""Objects after which a child collects garbage, between calls: Python would look through all that a
kernel's code is made of time and again while it is made."""


def receive(source: socket.socket, count: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: If there are fewer.
    """
    found = bytearray(count)
    rest = memoryview(found)
    while rest:
        got = source.recv_into(rest)
        if not got:
            raise EOFError
        rest = rest[got:]
    return bytes(found)


def serve() -> None:
    """Follow the commands from standard input until it ends.

    A command is a letter and what belongs to it: `i` import a module, and maybe run a function of
    it, `f` fork a child that serves the socket that comes with it, `w` wait for a child and tell
    its exit status.
    """
    # Whatever is imported finds an empty input, and cannot read commands.
    commands = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # whatever prints must not get between what the user's process prints
    gc.disable()  # see `_LITTER`
    statuses: dict[int, int] = {}

    def end(*_: object) -> None:
        _reap(statuses, 0)
        os._exit(0)  # taking a large interpreter down in order takes 150 ms

    # `close` may come in the middle of an import; unlike the default, this waits for children.
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's process decides what that means
    while True:
        letter, descriptors, _, _ = socket.recv_fds(commands, 1, 1)
        if letter == b"i":
            (length,) = FRAME.unpack(receive(commands, FRAME.size))
            _bring(receive(commands, length).decode())
        elif letter == b"f":
            _fork(commands, descriptors[0])
        elif letter == b"w":
            (pid,) = PID.unpack(receive(commands, PID.size))
            commands.sendall(PID.pack(_status(pid, statuses)))
        else:
            # The stream has ended: nobody is there to ask for anything.
            end()
        # Or children that ended would stay as zombies.
        _reap(statuses, os.WNOHANG)


def _bring(name: str) -> None:
    module, _, function = name.partition(":")
    found = importlib.import_module(module)
    if function:
        getattr(found, function)()


def _fork(commands: socket.socket, descriptor: int) -> None:
    gc.freeze()  # children share what is there, and look through none of it
    if os.fork():
        # Else the user's process would not notice the child's end.
        os.close(descriptor)
        return
    # The handler is for the server: it waits for children.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Else the user's process would not notice the server's end while a child lives.
    commands.close()
    _answer(socket.socket(fileno=descriptor))


def _status(pid: int, statuses: dict[int, int]) -> int:
    """Exit status of a child; waits for it to end. -1 for one that never said its number."""
    if pid and pid not in statuses:
        statuses[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return statuses.get(pid, -1)


def _reap(statuses: dict[int, int], how: int) -> None:
    """Note what became of the children that ended, or wait until all have."""
    try:
        while True:
            pid, status = os.waitpid(-1, how)
            if not pid:
                return
            statuses[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return


def _answer(calls: socket.socket) -> None:
    """Serve calls until nobody is there any more; does not return."""
    with suppress(ConnectionError):  # what is received next says so as well
        calls.sendall(PID.pack(os.getpid()))
    while True:
        try:
            (length,) = FRAME.unpack(receive(calls, FRAME.size))
            function, argument = pickle.loads(receive(calls, length))
        except (EOFError, ConnectionError):
            os._exit(0)
        reply: tuple[SaccadeError | None, Any]
        try:
            # Any other error is a bug: the child dies of it, and whoever asked is told its status.
            reply = None, function(argument)
        except SaccadeError as error:
            reply = error, None
        message = pickle.dumps(reply)
        try:
            calls.sendall(FRAME.pack(len(message)) + message)
        except ConnectionError:
            os._exit(0)
        if gc.get_count()[0] > _LITTER:
            gc.collect()
