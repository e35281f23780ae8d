"""What tests of all rooms share: real models, and machines that are less able than this one."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

# Before NumPy is there: two processes whose products each wait for two spinning threads on two
# cores take several times as long, and what NumPy says would depend on the number of cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from saccade.backends.cpu import target
from saccade.errors import OptionError
from saccade.forking import Inherited

MODELS = Path(os.environ.get("SACCADE_MODELS") or Path(__file__).parents[2] / "shared" / "models")
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")  # how long an example takes says how busy the machine is
_NEWER = re.compile("avx512|avx10|evex")


def pytest_addoption(parser):
    parser.addoption(
        "--isa", choices=["avx2"], help="Run as on a machine whose processor has no more than that."
    )
    kernels = parser.getgroup("gpu", "kernels on a GPU (-m gpu)")
    kernels.addoption(
        "--gpu-code", help="Code that `python -m saccade.testing.gpu_cases build` made beforehand."
    )
    kernels.addoption("--gpu-variants", type=int, help="Variants of a kernel for a case.")
    kernels.addoption(
        "--gpu-apart", action="store_true", help="Each buffer alone, as compute-sanitizer wants it."
    )


def pytest_configure(config):
    if config.getoption("--isa") is not None:
        flags = {k: v and not _NEWER.search(k) for k, v in target.host_flags().items()}
        target.host_flags = lambda: flags


def _inherited(now=Inherited.now):
    found = now()
    found.environment.pop("PYTEST_CURRENT_TEST", None)
    return found


Inherited.now = _inherited
"""Fork servers serve the tests after theirs, in whose environment nothing else changed."""
_BEGUN = {}
"""Where the random numbers of each module begin, by its name."""


def pytest_itemcollected(item):
    random = getattr(getattr(item, "module", None), "RNG", None)
    if random is not None:
        _BEGUN.setdefault(item.module.__name__, random.bit_generator.state)


def pytest_collection_finish():
    """Twenty thousand tests are no garbage: to look at them takes half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Nor is what a room leaves: tests that collect garbage would look through all of it."""
    if nextitem is not None and nextitem.path.parent != item.path.parent:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test has the random numbers that it has alone, whatever ran before it."""
    state = _BEGUN.get(getattr(getattr(item, "module", None), "__name__", None))
    if state is not None:
        item.module.RNG.bit_generator.state = state


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test that asks for code which this processor cannot run is skipped, and says so."""
    try:
        return (yield)
    except OptionError as refusal:
        if "this machine's processor does not have" in str(refusal):
            pytest.skip(str(refusal))
        raise


@pytest.fixture(scope="session")
def weightless():
    """The file of a real model by name, without weights; skips where `SACCADE_MODELS` has none."""

    def get(name):
        path = MODELS / f"{name}.onnx"
        if not path.exists():
            pytest.skip(f"{MODELS} has no {path.name} (set SACCADE_MODELS)")
        return path

    return get


@pytest.fixture(scope="session")
def filled(tmp_path_factory, weightless):
    """The same with weights, drawn once for all processes of a run; nobody writes beside it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "filled"
    folder.mkdir(exist_ok=True)

    def get(name):
        source, path = weightless(name), folder / f"{name}.onnx"
        if not path.exists():
            spec = importlib.util.spec_from_file_location("fill", MODELS / "fill.py")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            new = path.with_suffix(f".{os.getpid()}")
            new.write_bytes(module.fill(source).SerializeToString())
            new.chmod(0o444)
            new.rename(path)  # in place of the same, if another process was as fast
        return path

    return get
