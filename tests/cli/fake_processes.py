"""Processes of engines that answer at once, with chosen outputs and times."""

from __future__ import annotations

import numpy as np

from saccade.cli._bench_messages import Opened, RoundDone


class FakeProcess:
    """Stands in for `EngineProcess`; logs what it is asked into `log`."""

    log: list = []  # noqa: RUF012 - shared by all processes of a test, emptied by the fixture
    times: dict = {}  # noqa: RUF012
    outputs: dict = {}  # noqa: RUF012

    def __init__(self, spec, environment=None):
        self.spec = spec
        self.peak_rss_bytes = 1 << 20
        self.rounds = 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.log.append(("close", self.spec.engine))

    def open(self, inputs, cores):
        self.log.append(("open", self.spec.engine))
        self.inputs, self.cores = inputs, cores
        output = self.outputs.get(self.spec.engine, np.ones((1, 3, 4, 4), np.float32))
        return Opened(f"{self.spec.engine}-1.0", 0.1, 0.2, [output], 1 << 20)

    def wait_idle(self):
        self.log.append(("idle", self.spec.engine))

    def round(self, seconds, callers=1):
        self.log.append(("round", self.spec.engine))
        times = self.times[self.spec.engine][self.rounds]
        self.rounds += 1
        return RoundDone(list(times), sum(times) / 1e3, 1 << 20)
