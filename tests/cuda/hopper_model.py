"""What code for Hopper does, in NumPy: stages as it counts them, where it stores; calls, truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.base import Call, Launch, View
from saccade.opdefs import Conv2d, DepthToSpaceStore


def nhwc(shape, pitch=0, dtype=DType.F16):
    _, c, h, w = shape
    pitch = pitch or c
    return View(dtype, shape, (h * w * pitch, 1, w * pitch, pitch))


def call(n, c, h, w, k, taps, op, *, arch=90, extra=(), x=None, y=None):
    r, s = taps
    each = c // op.groups
    weights = View(DType.F16, (k, each, r, s), (each * r * s, r * s, s, 1))
    shape = op.sum_shape((n, c, h, w), (k, each, r, s))
    b = op.store.block if op.store else 1
    _, k, p, q = shape
    y = y or nhwc((n, k // (b * b), p * b, q * b))
    inputs = (x or nhwc((n, c, h, w)), weights, *extra)
    return Call(op, inputs, (y,), (False, True, *(False,) * len(extra)), GpuTarget(arch=arch))


SAME = (1, 1, 1, 1)
OP = Conv2d(padding=SAME)


def number(name, integers):
    return name if isinstance(name, int) else integers[name]


class Ring:
    """Stages as the code counts them: a wait ends only where what is awaited was asked for."""

    def __init__(self, stages):
        self.held, self.asked, self.waited = [None] * stages, [0] * stages, 0

    def ask(self, at, content):
        slot = at % len(self.held)
        # What lay there was multiplied in the step before the one that was waited for last.
        assert at < len(self.held) or at - len(self.held) < self.waited - 1
        self.held[slot] = content
        self.asked[slot] += 1

    def wait(self, at):
        stages = len(self.held)
        slot, phase = at % stages, at // stages & 1
        # A barrier that has turned n times lets those pass that wait for the parity of turn n - 1.
        self.waited += 1
        assert (self.asked[slot] - 1) & 1 == phase and self.asked[slot] == at // stages + 1
        return self.held[slot]


def stored(launch: Launch, y, m, end, col, acc):
    """Store a tile, pixels before `end`, into memory that is NaN where nothing was stored."""
    config, i = launch.config, launch.integers
    rows, columns = acc.shape
    row = m + np.arange(max(0, min(rows, end - m)))
    unit, room = getattr(config, "unit", 8), getattr(config, "room", 0)
    at = col + np.arange(min(columns, i["k"] * unit + room - col))
    image, line, pixel = row // (i["p"] * i["q"]), row // i["q"] % i["p"], row % i["q"]
    y_n, y_p, y_q = (unit * i[name] for name in ("y_n", "y_p", "y_q"))
    b = config.block
    channels = unit * (i["channels"] if "channels" in i else config.channels or 1)  # noqa: SIM401
    corner = row * y_q if config.even else image * y_n + (line * y_p + pixel * y_q) * b
    part = at // channels
    within = part // b * y_p + part % b * y_q + at % channels if b > 1 else at
    place = corner[:, None] + within[None, :]
    assert np.isnan(y[place]).all()
    y[place] = acc[: len(row), : len(at)]


WINDOWS = {
    "3x3": (OP, (3, 3)),
    "1x1": (Conv2d(), (1, 1)),
    "1x1 stride 2": (Conv2d(stride=(2, 2)), (1, 1)),
    "uneven": (Conv2d(stride=(2, 3), padding=(2, 0, 1, 3), dilation=(1, 2)), (3, 2)),
    "5x1": (Conv2d(padding=(2, 0, 2, 0), dilation=(2, 1)), (5, 1)),
    "crd": (Conv2d(padding=SAME, store=DepthToSpaceStore(2, "CRD")), (3, 3)),
    "dcr": (Conv2d(padding=SAME, store=DepthToSpaceStore(2, "DCR")), (3, 3)),
}


def operands(n=2, *, seed=0, c=72, h=9, w=11, k=32, taps=(3, 3)):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (n, h, w, c)).astype(np.float32)
    return x, rng.integers(-2, 3, (k, c, *taps)).astype(np.float32)


def as_stored(memory, view):
    """[N, H, W, C] of a result in memory; everything else has to be NaN still."""
    n, c, h, w = view.shape
    steps = [memory.itemsize * view.strides[axis] for axis in (0, 2, 3, 1)]
    assert np.isnan(memory).sum() == memory.size - n * c * h * w
    return np.lib.stride_tricks.as_strided(memory, (n, h, w, c), steps)


def reference(x, weights, op):
    n, h, w, _ = x.shape
    k, _, r, s = weights.shape
    top, left, bottom, right = op.padding
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    _, _, p, q = op.sum_shape((n, x.shape[3], h, w), weights.shape)
    sums = np.zeros((n, p, q, k), np.float32)
    for dy in range(r):
        for dx in range(s):
            rows = dy * op.dilation[0] + op.stride[0] * np.arange(p)
            columns = dx * op.dilation[1] + op.stride[1] * np.arange(q)
            sums += padded[:, rows][:, :, columns] @ weights[:, :, dy, dx].T
    return sums


def shuffled(sums, store):
    if store is None:
        return sums
    n, p, q, k = sums.shape
    b = store.block
    if store.mode == "CRD":
        parts = sums.reshape(n, p, q, k // b**2, b, b).transpose(0, 1, 4, 2, 5, 3)
    else:
        parts = sums.reshape(n, p, q, b, b, k // b**2).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, p * b, q * b, k // b**2)


def run_where_it_compiles(code):
    """Run a test's text in a process that never saw the interpreter, beside this folder's files."""
    paths = os.pathsep.join([str(Path(__file__).parent), *map(os.path.abspath, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.pop("TRITON_INTERPRET", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
