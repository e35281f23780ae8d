"""Ctrl-C while something is compiled: nothing is left behind, and the model can still be called."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

LIMIT = 240  # seconds after which something counts as hung

INTERRUPTED = """
import gc, os, signal, sys, threading, time
import numpy as np
import saccade
from saccade.forking import SPARE
x, wanted = (np.load(name) for name in {arrays!r})

def held():
    SPARE.end()  # what waits for whoever may need it next
    children = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append("socket" in os.readlink("/proc/self/fd/" + number))
        except OSError:  # the list's own
            pass
    return children, sum(found)

def interrupt():
    time.sleep({offset})
    os.killpg(os.getpgrp(), signal.SIGINT)  # as a terminal does

model = saccade.compile({file!r}, threads=2) if {made} else None
sender = threading.Thread(target=interrupt)
try:
    sender.start()
    if model is None:
        model = saccade.compile({file!r}, threads=2)
    result = model(x)
    sender.join()
    time.sleep(0.05)
except KeyboardInterrupt:
    pass
sender.join()
if not {made}:
    model = None  # one that is still to be called keeps the process that kernels compile in
gc.collect()
print(*held())
model = model or saccade.compile({file!r}, threads=2)
print(np.allclose(model(x), wanted, atol=1e-4), *held())
"""


@pytest.mark.parametrize("made", [False, True], ids=["compile", "first call"])
@pytest.mark.parametrize("seed", range(5))
def test_an_interrupt_leaves_a_model_that_works(seed, made, tmp_path):
    x = image(1, 3, 14, 14)
    arrays = [str(tmp_path / "x.npy"), str(tmp_path / "wanted.npy")]
    np.save(arrays[0], x)
    np.save(arrays[1], compiled(convolutions(), threads=1)(x))
    file = tmp_path / "model.onnx"
    file.write_bytes(convolutions().SerializeToString())
    offset = float(np.random.default_rng(seed).uniform(0, 1.5))
    script = INTERRUPTED.format(arrays=arrays, file=str(file), offset=offset, made=made)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=LIMIT, check=False, start_new_session=True,
        env=dict(os.environ, SACCADE_CACHE_DIR=str(tmp_path)),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    after, at_the_end = done.stdout.splitlines()
    assert at_the_end == "True [] 0"
    if not made:
        assert after == "[] 0"
