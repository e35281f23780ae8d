"""Every kernel on a real GPU: its family's cases, three element types, several variants.

    python -m pytest -m gpu tests/cuda/test_cuda_gpu_kernels.py
    python -m saccade.testing.gpu_cases build FILE && python -m pytest -m gpu --gpu-code FILE

All in one process and one context. A kernel that takes the context with it fails its test, and the
others are skipped, saying so.
"""

from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from saccade.backends.cuda.runtime.bindings import BoundDriver, devices
from saccade.errors import DeviceError, OutOfBoundsError

try:
    FACTS = devices()[0]
except DeviceError:
    pytest.skip("there is no GPU", allow_module_level=True)

from saccade.backends.cuda.gpus import gpu, nearest_gpu
from saccade.processes import Processes
from saccade.testing import gpu_bench
from saccade.testing.cases import compare
from saccade.testing.gpu_bench import NOT_A_NUMBER, GpuBench
from saccade.testing.gpu_cases import VARIANTS, codes_of, gpu_cases, target_of
from saccade.testing.gpu_code import CodeFile

pytestmark = pytest.mark.gpu


def planned_for(config):
    """The file of code, if there is one, and what its kernels are planned for."""
    path = config.getoption("--gpu-code")
    if path is None:
        known = nearest_gpu(FACTS.name, FACTS.arch, FACTS.multiprocessors)
        return None, target_of(known)
    file = CodeFile(Path(path))
    target = target_of(gpu(file.machine))
    if target.arch != FACTS.arch:
        raise pytest.UsageError(f"{path} is for sm_{target.arch}, {FACTS.name} is sm_{FACTS.arch}")
    return file, target


def pytest_generate_tests(metafunc):
    if "one" in metafunc.fixturenames:
        most = metafunc.config.getoption("--gpu-variants") or VARIANTS
        cases = gpu_cases(planned_for(metafunc.config)[1], most)
        metafunc.parametrize("one", cases, ids=[one.name for one in cases])


@pytest.fixture(scope="module")
def bench(request):
    """The GPU, with the code of all tests that are going to run."""
    file, target = planned_for(request.config)
    apart = request.config.getoption("--gpu-apart")
    if file is not None:
        return GpuBench(BoundDriver(0), target, file.__getitem__, apart=apart)
    mine = [item for item in request.session.items if item.path == Path(__file__)]
    params = [getattr(item, "callspec", None) for item in mine]
    selected = [spec.params["one"] for spec in params if spec and "one" in spec.params]
    selected += planted_cases(target)
    with closing(Processes()) as processes:
        code = codes_of(selected, target, processes)
    return GpuBench(BoundDriver(0), target, code.__getitem__, apart=apart)


@contextmanager
def told(bench, one):
    """What fails says which config it was."""
    try:
        yield
    except (AssertionError, DeviceError, OutOfBoundsError) as error:
        for phase in gpu_bench.placed(one, bench.target)[1]:
            error.add_note(f"{phase.chunks} programs of {phase.config}")
        raise


def test_results(one, bench):
    with told(bench, one):
        results = bench.run(one)
        compare(one.case, results)
        if bench.apart:
            return
        again = bench.run(one, pattern=NOT_A_NUMBER)
        for result, other in zip(results, again, strict=True):
            assert result.tobytes() == other.tobytes(), "depends on what lies beside the buffers"


def test_no_access_leaves_its_buffers(one, bench):
    with told(bench, one):
        compare(one.case, bench.run(one, checked=True))


def planted_cases(target):
    """One of copies, whose only loop is over elements."""
    return [one for one in gpu_cases(target, 1) if one.kernel == "pointwise.chain"][:1]


def planted(monkeypatch, bench):
    """A case whose code believes that there are 16 more elements than there are."""
    (one,) = planted_cases(bench.target)
    real = gpu_bench.placed

    def wrong(one, target):
        memory, phases = real(one, target)
        longer = [
            p._replace(integers={**p.integers, "rows": p.integers["rows"] + 16}) for p in phases
        ]
        return memory, longer

    monkeypatch.setattr(gpu_bench, "placed", wrong)
    return one


def test_a_write_beside_a_buffer_is_caught(monkeypatch, bench):
    if bench.apart:
        pytest.skip("there are no guards")
    with pytest.raises(OutOfBoundsError, match="wrote into a guard band"):
        bench.run(planted(monkeypatch, bench))


def test_an_access_beside_a_buffer_is_caught(monkeypatch, bench):
    with pytest.raises(OutOfBoundsError, match=r"(ld|st)\.global.* at .+:\d+ leaves the buffers"):
        bench.run(planted(monkeypatch, bench), checked=True)
