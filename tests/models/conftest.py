"""Real models: filled from their weightless files, compiled once, with onnxruntime beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import saccade

sys.path.insert(0, str(Path(__file__).parent))


class Zoo:
    """Models by name."""

    def __init__(self, path: Callable[[str], Path]) -> None:
        self.path = path
        self.compiled = lru_cache(maxsize=3)(self._compiled)
        self.session = lru_cache(maxsize=2)(self._session)

    def _compiled(self, name: str, **options):
        options.setdefault("threads", 2)
        return saccade.compile(self.path(name), **options)

    def planned(self, name: str):
        """The model as Zen 4 would run it: plans that do not depend on where the tests run."""
        return self.compiled(name, machine="zen4")

    def _session(self, name: str) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        return ort.InferenceSession(
            str(self.path(name)), options, providers=["CPUExecutionProvider"]
        )

    def truth(self, name: str, x):
        """Outputs of onnxruntime without optimisations, by name."""
        session = self.session(name)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, {session.get_inputs()[0].name: x}), strict=True))

    def program(self, name: str, shape: tuple[int, ...], threads: int):
        """A program for one size."""
        return self.compiled(name, threads=threads)._program((shape,))


@pytest.fixture(scope="session")
def zoo(filled):
    return Zoo(filled)


@pytest.fixture
def image():
    def make(shape, dtype="float32"):
        return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)

    return make
