"""Arguments that nobody should give: a right answer or an error that says so, never a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "hostile_calls.py"
CALLS, LIMIT = 300, 300
LAST = 4000  # characters of what a failed process wrote


@pytest.mark.parametrize("seed", [0, 1], ids=["unchecked", "checked"])
def test_hostile_calls(seed):
    """In a process of their own: one that crashes or hangs is a failure with a name."""
    command = [sys.executable, "-W", "error", str(SCRIPT), str(seed), str(CALLS)]
    path = os.pathsep.join(filter(None, sys.path))
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-LAST:] + found.stderr[-LAST:]
    assert found.stdout.rpartition("\n")[0].rpartition("\n")[2].startswith("refused")
