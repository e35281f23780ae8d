from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # the suite is run from the repository, it is not installed
    sys.path.insert(0, str(ROOT))


@pytest.fixture
def complete():
    """Results of the latency suite with every case and engine: 2, 3 and 1 ms."""
    from samples import latency_results  # noqa: PLC0415 - after the path is set

    return latency_results()
