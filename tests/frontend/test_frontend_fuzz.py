"""Mutated files always import or are refused: never a crash, a hang or a large allocation."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from frontend_mutants import mutate, problem, seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.frontend import onnx as frontend

MODELS = seeds()


@pytest.mark.parametrize("index", range(len(MODELS)))
def test_the_seeds_import(index: int) -> None:
    assert frontend.load(MODELS[index]).nodes


@pytest.mark.parametrize("seed", [1, 2])
def test_mutants_in_a_process_of_bounded_memory(seed: int) -> None:
    script = Path(__file__).with_name("frontend_mutants.py")
    done = subprocess.run(
        [sys.executable, str(script), str(seed), "60"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(MODELS), st.integers(0, 2**32), st.integers(0, 4))
def test_any_mutant_is_imported_or_refused(model: onnx.ModelProto, seed: int, kind: int) -> None:
    assert problem(mutate(model, kind, random.Random(seed))) is None
