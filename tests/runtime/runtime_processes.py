"""Scripts in an interpreter of their own, which end in time and say nothing that is not theirs."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["LIMIT", "answers"]

LIMIT = 240
"""Seconds after which something counts as hung."""


def answers(script, folder, *arguments, **environment):
    """Standard output of a script that ended as it should, with empty caches.

    Args:
        script: Text, or the path of a file, which `multiprocessing` may want to import.
        folder: Of the caches.
        arguments: Of the script.
        environment: What its process finds in its environment besides.
    """
    start = ["-c", script] if isinstance(script, str) else [str(script)]
    # NumPy's threads are there as with users: forks meet them.
    own = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        capture_output=True, text=True, timeout=LIMIT, check=False,
        env=dict(own, SACCADE_CACHE_DIR=str(folder), **environment),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return done.stdout
