"""The same programs on a real GPU: their kernel is PTX, so that no compiler is needed.

Skipped where there is none; run alone, as `python -m pytest tests/cuda/test_cuda_gpu_runtime.py`.
"""

import gc
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cuda_programs as made
from cuda_programs import chained, info, weights

from saccade.backends.cuda.arrays import CudaArrays
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.backends.cuda.runtime.bindings import BoundDriver
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.facts import device_facts, programs_by
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.errors import DeviceError, InputError, OutOfMemoryError
from saccade.ir import DType

pytestmark = pytest.mark.gpu


PTX = """
.version {version}
.target {target}
.address_size 64
.visible .entry scale_and_add(.param .u64 px, .param .u64 pw, .param .u64 py, .param .u32 pn,
                              .param .u64 scratch, .param .u64 profiler)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %d<8>;
    {wait}
    ld.param.u64 %d1, [px];
    ld.param.u64 %d2, [pw];
    ld.param.u64 %d3, [py];
    ld.param.u32 %r1, [pn];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    mad.lo.s32 %r6, %r2, %r3, %r4;
    mul.lo.s32 %r7, %r3, %r5;
next:
    setp.ge.s32 %p1, %r6, %r1;
    @%p1 bra done;
    mul.wide.s32 %d4, %r6, 4;
    add.s64 %d5, %d1, %d4;
    add.s64 %d6, %d2, %d4;
    add.s64 %d7, %d3, %d4;
    ld.global.f32 %f1, [%d5];
    ld.global.f32 %f2, [%d6];
    fma.rn.f32 %f3, %f1, 0f40000000, %f2;
    st.global.f32 [%d7], %f3;
    add.s32 %r6, %r6, %r7;
    bra next;
done:
    {trigger}
    ret;
}}
"""


def code_of(*, waits=False):
    """The kernel for any GPU, or one that waits for the launch before by itself."""
    text = PTX.format(
        version="7.8" if waits else "7.0",
        target="sm_90" if waits else "sm_70",
        wait="griddepcontrol.wait;" if waits else "",
        trigger="griddepcontrol.launch_dependents;" if waits else "",
    )
    names = ("x", "w", "y", "n")
    return Cubin("scale_and_add", text.encode() + b"\0", names, 4, 0, chained=waits)


def program_of(device, n, links=2, arena=0, **how):
    plan = made.chain(n, links, arena)
    return CudaProgram(device, plan, [code_of(**how)] * links, lambda _: weights(n), "ptx")


@pytest.fixture(scope="module")
def opened():
    device = DeviceContext(BoundDriver(0))
    return device, CudaArrays(lambda: device)


def ran(program, arrays, x):
    (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
    return y


def vector(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("n", [1, 1000, 3_000_000])
@pytest.mark.parametrize("waits", [False, True])
def test_a_program_runs(opened, n, waits):
    device, arrays = opened
    if waits and device.driver.facts.arch < 90:
        pytest.skip("launches cannot wait by themselves")
    program = program_of(device, n, links=9, waits=waits)
    kept = []  # so that each run has other addresses
    for seed in range(4):
        x = vector(n, seed)
        taken = arrays.take(info(), x)
        kept.append((taken, *program.run([taken])))
        np.testing.assert_array_equal(kept[-1][1].numpy(), chained(x, 9))
    assert len({taken.address for taken, _ in kept}) == 4


def test_plain_memory(opened):
    """As where the driver cannot reserve addresses."""
    driver = BoundDriver(0)
    driver.facts = replace(driver.facts, virtual=False)
    device = DeviceContext(driver)
    arrays = CudaArrays(lambda: device)
    small, large = program_of(device, 100), program_of(device, 1_000_000)
    for program, n in ((small, 100), (large, 1_000_000), (small, 100)):
        x = vector(n)
        np.testing.assert_array_equal(ran(program, arrays, x), chained(x))


def test_unaligned_inputs(opened):
    device, arrays = opened
    x = vector(101)
    whole = arrays.take(info(), x)
    program = program_of(device, 100)
    part = DeviceArray(device, whole.address + 4, (100,), DType.F32, whole.stream, whole.owner)
    (y,) = program.run([part])
    np.testing.assert_array_equal(y.numpy(), chained(x[1:]))


def test_threads(opened):
    device, arrays = opened
    programs = {n: program_of(device, n, links=5) for n in (1000, 200_000)}
    failed = []

    def work(number):
        try:
            for i in range(100):
                n = (1000, 200_000)[(i + number) % 2]
                x = vector(n, 100 * number + i)
                np.testing.assert_array_equal(ran(programs[n], arrays, x), chained(x, 5))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_many_runs_do_not_grow(opened):
    device, arrays = opened
    program = program_of(device, 50_000)
    x = vector(50_000)

    def free():
        with device.driver.current():
            device.driver.synchronize()
            return device.driver.available()

    for _ in range(20):
        ran(program, arrays, x)
    before = free()
    for _ in range(10_000):
        program.run([arrays.take(info(), x)])
    np.testing.assert_array_equal(ran(program, arrays, x), chained(x))
    assert before - free() <= 4 << 20


def test_out_of_memory(opened):
    device, arrays = opened
    program = program_of(device, 1000)
    huge = program_of(device, 1000, arena=device.driver.facts.memory - (1 << 20))
    x = vector(1000)
    np.testing.assert_array_equal(ran(program, arrays, x), chained(x))
    with pytest.raises(OutOfMemoryError, match=r"\d+ are missing") as caught:
        ran(huge, arrays, x)
    assert int(re.search(r"(\d+) are missing", str(caught.value))[1]) >= 0
    np.testing.assert_array_equal(ran(program, arrays, x), chained(x))


def test_facts_of_code_and_of_the_gpu(opened):
    """The driver's own count of programs is what registers, memory and threads leave room for."""
    device, _ = opened
    driver, facts, code = device.driver, device.driver.facts, code_of()
    for threads in (32, 64, 128, 256, 1024):
        for shared in (0, 10_000, facts.shared // 2):
            with driver.current():
                function = driver.load(code.code, code.symbol, shared)
                found = driver.describe(function, threads, shared)
            assert 0 < found.registers <= 255 and found.local == found.shared == 0
            most = programs_by(facts.multiprocessor, threads, found.registers, shared)
            assert found.programs == min(most.values()), (threads, shared, most)
    told = program_of(device, 1000).facts()
    assert len(told) == 2 and told[0]["resident"] >= 1 and told[0]["matrix"] == ""
    assert device_facts(facts)["gpu"] == facts.name and facts.cuda >= 12000


def test_a_clock(opened):
    """A run of a thousand times the elements takes longer; 20 calls are not timed as one."""
    device, arrays = opened
    times = []
    for n in (10_000, 10_000_000):
        program = program_of(device, n)
        taken = arrays.take(info(), vector(n))
        program.run([taken])
        times.append(arrays.clock(lambda p=program, x=taken: p.run([x]), arrays.queued))
    assert 0.001 < times[0] < times[1] < 100


def test_profile_and_speeds(opened):
    device, arrays = opened
    program = program_of(device, 3_000_000, links=3)
    readings = program.profile([arrays.take(info(), vector(3_000_000))], 5)
    for _, _, clock in readings:
        assert clock.shape == (5, 1, 2)
        micros = (clock[..., 1] - clock[..., 0]) / 1e3
        assert (micros > 1).all() and (micros < 10_000).all()
    assert 1e4 < program.speeds().bandwidth < 1e8  # 10 GB/s to 100 TB/s


def test_tensors_on_the_gpu(opened):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    device, arrays = opened
    program = program_of(device, 100_000, links=4)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(20):
                x = torch.randn(100_000, device="cuda")
                taken = arrays.take(info(), x)
                assert taken.address == x.data_ptr() and taken.caller
                assert taken.stream == stream.cuda_stream
                results = program.run([taken])
                (y,) = arrays.give(results, [x])
                assert y.is_cuda and y.data_ptr() == results[0].address
                expected = x
                for _ in range(4):
                    expected = 2 * expected + torch.from_numpy(weights(100_000)).cuda()
                assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5)
                del x, taken, results
    strided = torch.randn(2, 100_000, device="cuda").t()[:, 0]
    (y,) = arrays.give(program.run([arrays.take(info(), strided)]), [strided])
    assert y.shape == (100_000,)
    with pytest.raises(InputError, match="must be float32"):
        arrays.take(info(), torch.ones(3, device="cuda", dtype=torch.float64))


def test_tensors_of_the_host(opened):
    torch = pytest.importorskip("torch")
    device, arrays = opened
    program = program_of(device, 1000)
    x = torch.randn(1000)
    (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
    assert not y.is_cuda
    np.testing.assert_array_equal(y.numpy(), chained(x.numpy()))


def test_cupy(opened):
    cupy = pytest.importorskip("cupy")
    device, arrays = opened
    program = program_of(device, 1000)
    x = cupy.random.standard_normal(1000, dtype=cupy.float32)
    (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
    assert isinstance(y, DeviceArray)
    for back in (cupy.from_dlpack(y), cupy.asarray(y)):
        np.testing.assert_array_equal(cupy.asnumpy(back), chained(cupy.asnumpy(x)))


def test_code_for_another_gpu(opened):
    device, _ = opened
    wrong = Cubin("scale_and_add", b"\x7fELF no code at all", ("x", "w", "y", "n"), 4, 0)
    with pytest.raises(DeviceError, match="another GPU"):
        CudaProgram(device, made.chain(8), [wrong] * 2, lambda _: weights(8), "ptx")


def test_nothing_is_left(opened):
    device, _ = opened
    gc.collect()
    with device.driver.current():
        device.tidy()
    assert device.constants.count == 0
