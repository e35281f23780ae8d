"""Forks, and hooks for forks that others register: in pairs, and never before ours."""

from __future__ import annotations

import os
import threading

import pytest
from runtime_models import convolutions
from runtime_processes import answers

from saccade.backends.cpu.store import saved

# A fork waits for a thread that imports `logging`, and registers hooks thereby.
LATE = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from saccade.locks import forkless, preload
assert "logging" not in sys.modules
begun = threading.Event()

def importing():
    with forkless:
        begun.set()
        time.sleep(0.3)  # in which the fork gets to wait
        preload("logging", "concurrent.futures.thread")

def take_locks():
    import logging
    from concurrent.futures.thread import _global_shutdown_lock
    for lock in (logging._lock, _global_shutdown_lock):
        assert lock.acquire(blocking=False), lock
        lock.release()

def fork():
    child = os.fork()
    if not child:
        take_locks()
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

thread = threading.Thread(target=importing)
thread.start()
begun.wait()
print(fork(), end=" ")
thread.join()
print(fork(), "logging" in sys.modules)
other = threading.Thread(target=take_locks)  # whoever held them would not wait for itself
other.start()
other.join()
"""


def test_a_fork_runs_no_hook_that_it_has_not_begun(tmp_path):
    assert answers(LATE, tmp_path) == "7 7 True\n"


# A thread that forks wait for asks for a logger, as many modules do while they are imported.
LOGGER = """
import os, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from saccade.locks import forkless, preload_hooks
{order}
begun = threading.Event()

def importing():
    with forkless:
        begun.set()
        time.sleep(0.3)
        logging.getLogger("another")

thread = threading.Thread(target=importing, daemon=True)
thread.start()
begun.wait()
child = os.fork()
if not child:
    logging.getLogger("a third")
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
ORDERS = {
    "ours first": "preload_hooks()\nimport logging",
    "theirs first": "import logging\npreload_hooks()",
    "again": "import logging\npreload_hooks()\npreload_hooks()",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_an_import_that_forks_wait_for_may_log(order, tmp_path):
    assert answers(LOGGER.format(order=order), tmp_path) == "7\n"


ALL_THE_TIME = """
import os, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
import saccade

def compile_and_run():
    source = {source}
    saccade.compile(source, threads=2)(np.ones((1, 3, 14, 14), np.float32))

thread = threading.Thread(target=compile_and_run)
thread.start()
while thread.is_alive():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.01)
print("done")
"""


@pytest.mark.parametrize(
    "source", ["{file!r}", "open({file!r}, 'rb').read()"], ids=["file", "bytes"]
)
def test_forks_all_the_time_while_a_model_is_compiled(source, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(convolutions().SerializeToString())
    script = ALL_THE_TIME.format(source=source.format(file=str(file)))
    assert answers(script, tmp_path / "cache") == "done\n"


def test_nobody_waits_for_what_is_not_begun(monkeypatch):
    """Another thread, or a forked child, may ask at any moment."""
    asked = []

    class Hesitant(threading.Thread):
        def start(self):
            saved.settle()
            asked.append(True)
            super().start()

    monkeypatch.setattr(saved.threading, "Thread", Hesitant)
    kept = []
    saved.save_beside("one", lambda: kept.append(True))
    saved.settle()
    assert kept == asked == [True]
    assert not saved._saving


def test_only_who_reads_an_entry_waits_for_it():
    go, late = threading.Event(), []
    saved.save_beside("one", lambda: (go.wait(), late.append(True)))
    saved.settle("another")
    assert not late
    waiting = threading.Thread(target=saved.settle, args=("one",))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    go.set()
    waiting.join()
    assert late == [True]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_waits_for_nothing_that_its_parent_keeps():
    go = threading.Event()
    saved.save_beside("one", go.wait)
    child = os.fork()
    if not child:
        os._exit(len(saved._saving))
    go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    saved.settle()
