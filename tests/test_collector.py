"""The garbage collector waits while plans are made, and is as before once they are."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest

import saccade
from saccade import collector, layout


@pytest.fixture(autouse=True)
def _as_before():
    yield
    gc.enable()


@pytest.mark.parametrize("on", [True, False])
def test_it_is_off_inside_and_as_before_outside(on):
    (gc.enable if on else gc.disable)()
    with collector.put_off(), collector.put_off():
        assert not gc.isenabled()
    assert gc.isenabled() == on


def test_it_is_as_before_after_an_error():
    with pytest.raises(ZeroDivisionError), collector.put_off():
        1 / 0  # noqa: B018 - the error is the point
    assert gc.isenabled()


def test_the_last_thread_that_leaves_switches_it_on():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with collector.put_off():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with collector.put_off():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled(), "the other thread is still inside"
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_planning_puts_it_off(monkeypatch, tmp_path):
    helper = pytest.importorskip("onnx.helper")
    kind = helper.make_tensor_value_info("x", 1, ["N", 8])
    result = helper.make_tensor_value_info("y", 1, ["N", 8])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [kind], [result])
    model = saccade.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), device="reference"
    )
    seen = []
    assign = layout.assign

    def watched(*args, **kwargs):
        seen.append(gc.isenabled())
        return assign(*args, **kwargs)

    monkeypatch.setattr(layout, "assign", watched)
    model(np.zeros((3, 8), np.float32))
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with collector.put_off():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
