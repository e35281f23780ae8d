"""A GPU whose kernels take made-up times, and what a search needs of it."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field

from saccade.backends.cuda import apart
from saccade.backends.cuda.cubins import Cubins
from saccade.backends.cuda.measuring import timed_by
from saccade.backends.cuda.runtime import context, gauge
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.gauge import Gauge
from saccade.kernels.cuda import kernel_named
from saccade.testing.fake_driver import FakeDriver

MEMORY = 1 << 30


@dataclass
class TimedGpu:
    """A fake GPU on which nothing is computed and time passes as `micros` says.

    Attributes:
        micros: Microseconds of a launch, by (kernel, config).
        name: The product's.
        now: Its clock, seconds.
        contests: What was timed.
        compiled: Keys of what was compiled, in order.
        codes: (kernel, config) by code.
        opened: How often a process for measurements was started.
    """

    micros: object
    name: str = "NVIDIA H200"
    now: float = 0.0
    contests: list = field(default_factory=list)
    compiled: list = field(default_factory=list)
    codes: dict = field(default_factory=dict)
    opened: int = 0

    def __post_init__(self):
        self.driver = FakeDriver(MEMORY, name=self.name)
        self.driver.clock = lambda: self.now
        self.device = DeviceContext(self.driver)
        self.gauge = Gauge(self.device)

    def code(self, key):
        """The code of a kernel, as the compiler gives it."""
        self.compiled.append(key)
        entry = kernel_named(key.kernel).entry(key.config)
        pointers = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]

        def kernel(_programs, _arguments):
            self.now += self.micros(key.kernel, key.config) / 1e6

        integers = (*entry.extra_integers, *entry.integers)
        cubin = self.driver.host_code(pointers, integers, kernel, entry.descriptors)
        self.codes[cubin.code] = key.kernel, key.config
        return cubin

    def times(self, contest):
        """Have a contest timed in this process."""
        self.contests.append(contest)
        return timed_by(self.gauge, contest)


def use(monkeypatch, gpu):
    """Let everything that opens a GPU, compiles or measures have this one."""
    monkeypatch.setitem(context._opened, 0, gpu.device)
    monkeypatch.setattr(
        Cubins, "_compiled", lambda _self, keys, _processes: [gpu.code(key) for key in keys]
    )
    monkeypatch.setattr(gauge, "MOST_SETS", 2)
    monkeypatch.setattr(gauge, "_NOISE", 1 << 12)
    monkeypatch.setattr(apart, "_MOST", 2)

    class Measuring:
        def __init__(self, _processes):
            gpu.opened += 1

        def times(self, contest):
            return gpu.times(contest)

        def close(self):
            """Nothing to end."""

    monkeypatch.setattr(apart, "MeasuringProcess", Measuring)


def made_up(kernel, config):
    """A time for every code that is the same in every process; 10 to 110 µs."""
    return 10.0 + zlib.crc32(f"{kernel} {config!r}".encode()) % 100


def entries(path):
    """Choices in a file, by step."""
    return {one["step"]: one for one in json.loads(path.read_text())["entries"]}
