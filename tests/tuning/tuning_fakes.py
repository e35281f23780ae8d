"""A small network, and a bench whose times are made up."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from layout_graphs import RELU, Builder, backend, laid_out

from saccade.opdefs import Conv2d
from saccade.tuning import Algorithms, Bounds, Search, TimingStore

MACHINE = {"cpu": "a made-up one", "system": "Linux x86_64"}
NONE = Algorithms("cpu", MACHINE, ())


def network():
    """A convolution 3x3, a pointwise step, two equal convolutions 1x1, another one 3x3."""
    b = Builder((1, 16, 12, 12))
    x = b.add(RELU, b.conv(b.inputs[0], 32))
    x = b.conv(x, 32, taps=1)
    x = b.conv(x, 32, taps=1)
    return b.graph(b.conv(x, 48))


def convolutions(laid):
    """Steps that have several ways."""
    return [step for step in laid.steps if isinstance(step.op, Conv2d)]


def layout_of(graph=None, threads=2):
    return laid_out(graph or network(), threads)


@dataclass
class Clock:
    """Seconds that pass only when somebody says so."""

    now: float = 0.0

    def __call__(self):
        return self.now


@dataclass
class FakeBench:
    """Times every step by `micros(step number, candidate or None)`, with noise.

    Attributes:
        laid: The untuned layout.
        micros: Microseconds.
        clock: Moves on as programs "run".
        noise: Standard deviation of a reading, as a share.
        drift: How much slower the machine becomes from round to round, as a share.
        whole: Microseconds of the tuned program over those of the untuned one.
        tried: Variants by step number, in the order of measurement.
        fail_at: Which call of `alternate` is interrupted.
        announced: What `announce` was told, each time.
        bounds, failures: See `tuning.Bench`.
    """

    laid: object
    micros: object
    clock: Clock = field(default_factory=Clock)
    noise: float = 0.0
    drift: float = 0.0
    whole: float = 0.9
    tried: list = field(default_factory=list)
    fail_at: int | None = None
    compiled: set = field(default_factory=set)
    announced: list = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)
    failures: list = field(default_factory=list)
    turns: int = 0
    verified: Algorithms | None = None
    rng: object = field(default_factory=lambda: np.random.default_rng(3))

    def announce(self, waves):
        self.announced.append(list(waves))

    def _missing(self, swaps):
        return {(c.kernel.name, one.config) for c in swaps.values() for one in c.launches} - (
            self.compiled
        )

    def compile(self, swaps):
        self.clock.now += self.remaining(0.0, swaps)
        self.compiled |= self._missing(swaps)

    def effort(self, swaps):
        return 1.0

    def remaining(self, measuring, swaps):
        return measuring + 0.05 * len(self._missing(swaps))

    def alternate(self, swaps, rounds, tick):
        self.turns += 1
        if self.turns == self.fail_at:
            raise KeyboardInterrupt
        self.tried.append({i: c.id for i, c in swaps.items()})
        steps = range(len(self.laid.steps))
        before = self._readings([self.micros(i, None) for i in steps], rounds)
        after = self._readings([self.micros(i, swaps.get(i)) for i in steps], rounds)
        self._pass(before.sum() + after.sum(), rounds, tick)
        return before, after

    def verify(self, chosen, rounds, tick):
        self.verified = chosen
        before = self._readings([1000.0], rounds)[:, 0]
        after = self._readings([1000.0 * self.whole], rounds)[:, 0]
        self._pass(before.sum() + after.sum(), rounds, tick)
        return before, after

    def _readings(self, micros, rounds):
        noise = 1 + self.noise * self.rng.standard_normal((rounds, len(micros)))
        drift = 1 + self.drift * np.arange(rounds)[:, None]
        return np.array(micros) * noise * drift

    def _pass(self, micros, rounds, tick):
        micros = micros if np.isfinite(micros) else 1000.0
        for i in range(rounds):
            self.clock.now += micros / rounds / 1e6
            tick(i + 1)


def search(bench, store=None, **more):
    """A search over the fake bench's layout."""
    more.setdefault("hints", NONE)
    kernels, store = backend().candidates, store or TimingStore("cpu", {}, use=False)
    return Search(bench.laid, kernels, bench, store, MACHINE, clock=bench.clock, **more)


def made_up(_i, candidate):
    """A time for every variant that is the same in every process; 0.5 to 1.5 times 100 µs."""
    if candidate is None:
        return 100.0
    return 50.0 + zlib.crc32(candidate.id.encode()) % 100
