"""Torchvision's own tests of its operators, on Saccade's kernels.

    python tests/ops/torchvision_suite.py                 fetch them for the torchvision installed
    python tests/ops/torchvision_suite.py --folder DIR    take them from a checkout's `test` folder
    python tests/ops/torchvision_suite.py -- -k nms -x    what follows goes to pytest

The files are fetched into a temporary folder that goes away. Exit status: pytest's, or 69 where
they cannot be fetched.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torchvision

from saccade import ops

FILES = ("test_ops.py", "common_utils.py", "conftest.py", "optests_failures_dict.json")
ADDRESS = "https://raw.githubusercontent.com/pytorch/vision/v{version}/test/{name}"
UNREACHABLE = 69  # EX_UNAVAILABLE

# Tests of operators; those of box arithmetic, losses and layers in Python have none to replace.
WANTED = (
    "TestRoiPool",
    "TestPSRoIPool",
    "TestRoIAlign",
    "TestPSRoIAlign",
    "TestMultiScaleRoIAlign",
    "TestNMS",
    "TestDeformConv",
    "test_roi_opcheck",
)
# Part of a test's name -> why it cannot pass.
WAIVERS = {
    "TestDeformConv::test_autocast[dtype0-33]": (
        "float32 under autocast of a GPU is computed in float16, as by convolutions"
    ),
}


def pytest_configure(config) -> None:
    """This file is a plugin, too, which workers of pytest-xdist load by its name."""
    config.pluginmanager.register(Suite())


class Suite:
    """A plugin of pytest: the patch, the choice of tests, and what they must include."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def pytest_sessionstart(self) -> None:
        """For the whole session: classes hold scripted functions."""
        ops.patch_torchvision()

    def pytest_collection_modifyitems(self, config, items) -> None:
        """Only operators' tests, the waived ones marked."""
        wanted = [item for item in items if family(item) in WANTED]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        if not config.option.keyword:
            self.missing = set(WANTED) - {family(item) for item in wanted}
        for item in wanted:
            for part, reason in WAIVERS.items():
                if part in item.nodeid:
                    item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        items[:] = wanted

    def pytest_sessionfinish(self, session) -> None:
        """Tests that are gone are a failure."""
        if self.missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter) -> None:
        """What a newer torchvision may have renamed must not be missed in silence."""
        for name in sorted(self.missing):
            terminalreporter.write_line(f"not there to be run: {name}", red=True)


def family(item) -> str:
    """The class of a test, or its own name."""
    return item.cls.__name__ if item.cls else item.originalname


def fetch(version: str, folder: Path) -> None:
    """Torchvision's tests as of a version.

    Raises:
        urllib.error.URLError: If they cannot be had.
    """
    for name in FILES:
        address = ADDRESS.format(version=version, name=name)
        with urllib.request.urlopen(address, timeout=30) as answer:
            (folder / name).write_bytes(answer.read())


def run(folder: Path, options: list[str]) -> int:
    """Pytest's exit status."""
    arguments = ["-q", "-rfEx", "-p", "no:cacheprovider", "-p", Path(__file__).stem]
    # Torchvision's own warnings are no errors, as they are for tests of this project.
    arguments += ["-W", "default", "--rootdir", str(folder), *options]
    return int(pytest.main([*arguments, str(folder / "test_ops.py")]))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="torchvision's tests, already here")
    parser.add_argument("options", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    if given.folder:
        return run(given.folder.resolve(), given.options)
    version = torchvision.__version__.partition("+")[0]
    with tempfile.TemporaryDirectory() as folder:
        try:
            fetch(version, Path(folder))
        except OSError as error:
            print(f"torchvision {version}'s tests cannot be fetched: {error}", file=sys.stderr)
            return UNREACHABLE
        return run(Path(folder), given.options)


if __name__ == "__main__":
    sys.exit(main())
