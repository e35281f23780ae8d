"""Programs on a fake GPU: graphs, memory, streams, faults."""

import gc
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cuda_programs as made
from cuda_programs import chain_program, chained, info, opened, weights

from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.backends.cuda.runtime.lengths import cut_on_device
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.errors import DeviceError, LaunchError, OptionError, OutOfMemoryError
from saccade.ir import DType
from saccade.kernels.bind import Argument, Ref, Role
from saccade.plan import Constant, Port
from saccade.plan.types import Cut
from saccade.signature import TensorInfo


def ran(program, arrays, x):
    """One run from NumPy to NumPy."""
    (y,) = arrays.give(program.run([arrays.take(info(), x)]), [x])
    return y


def vector(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("virtual", [True, False])
def test_a_program_runs(virtual):
    device, arrays = opened(virtual=virtual)
    program = chain_program(device, 100, links=3)
    for seed in range(3):
        x = vector(100, seed)
        np.testing.assert_array_equal(ran(program, arrays, x), chained(x, 3))
    assert device.driver.graphs == 1
    device.driver.memory.check()


def test_kept_results_are_not_overwritten():
    device, arrays = opened()
    program = chain_program(device, 50)
    inputs = [vector(50, seed) for seed in range(20)]
    results = [program.run([arrays.take(info(), x)])[0] for x in inputs]
    assert len({result.address for result in results}) == 20
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), chained(x))


def test_nodes_are_updated_only_where_an_address_changed():
    device, _ = opened()
    program = chain_program(device, 64, links=4)
    with device.driver.current():
        memory = [DeviceArray.empty(device, (64,), DType.F32, 0) for _ in range(2)]
    counts = device.driver.counts
    kept = program.run([memory[0]])
    assert counts["update"] == 0
    del kept
    kept = program.run([memory[0]])  # whose result has the memory of the one before
    assert counts["update"] == 0
    more = program.run([memory[0]])  # another result: the last link
    assert counts["update"] == 1
    del more
    program.run([memory[1]])  # another input: the first link
    assert counts["update"] == 2
    assert counts["launch_graph"] == 4 and counts["make_graph"] == 1
    del kept


def test_inputs_that_are_not_aligned_are_copied():
    device, _ = opened()
    x, program = vector(33), chain_program(device, 32)
    for shift in (0, 1):  # elements of 4 bytes
        given = x[shift : shift + 32]
        raw = DeviceArray(device, _address_of(given, shift), (32,), DType.F32, 0, given)
        (y,) = program.run([raw])
        np.testing.assert_array_equal(y.numpy(), chained(given))
    assert device.driver.counts["copy"] == 1


def _address_of(array, shift):
    """Of an aligned copy, moved by so many elements; the copy stays for as long as the array."""
    block = np.zeros(array.size + 16, np.float32)
    start = (-block.ctypes.data % 64) // 4 + shift
    block[start : start + array.size] = array
    _KEPT.append(block)
    return block.ctypes.data + 4 * start


_KEPT = []


def test_phases_without_chunks_are_no_nodes():
    device, arrays = opened()
    program = chain_program(device, 0)
    assert ran(program, arrays, np.empty(0, np.float32)).shape == (0,)
    assert device.driver.graphs == 0


def test_threads():
    device, arrays = opened()
    small, large = chain_program(device, 40), chain_program(device, 3000, links=3)
    failed = []

    def work(number):
        try:
            for i in range(15):
                n, program, links = (40, small, 2) if (i + number) % 2 else (3000, large, 3)
                x = vector(n, 100 * number + i)
                np.testing.assert_array_equal(ran(program, arrays, x), chained(x, links))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    device.driver.memory.check()


def test_runs_on_two_streams_do_not_disturb_each_other():
    device, _ = opened()
    program = chain_program(device, 64, links=3)
    with device.driver.current():
        streams = [device.driver.make_stream() for _ in range(7)]
    xs = [vector(64, i) for i in range(7)]
    results = []
    for x, stream in zip(xs, streams, strict=True):  # nobody waits meanwhile
        address = _address_of(x, 0)
        raw = DeviceArray(device, address, (64,), DType.F32, stream, x, caller=True)
        results.append(program.run([raw])[0])
    assert len(device.arenas) == 4
    for x, result in zip(reversed(xs), reversed(results), strict=True):
        assert result.stream in streams
        np.testing.assert_array_equal(result.numpy(), chained(x, 3))


def test_a_result_is_the_next_input_on_another_stream():
    device, _ = opened()
    program = chain_program(device, 64)
    with device.driver.current():
        a, b = (device.driver.make_stream() for _ in range(2))
    x = vector(64)
    raw = DeviceArray(device, _address_of(x, 0), (64,), DType.F32, a, x, caller=True)
    (first,) = program.run([raw])
    moved = DeviceArray(device, first.address, (64,), DType.F32, first.stream, first.owner)
    other = DeviceArray(device, _address_of(x, 0), (64,), DType.F32, b, x, caller=True)
    device.driver.counts.clear()
    with device.driver.current():
        assert program._entered([other, moved]) == b
    assert device.driver.counts["order"] == 1


def on_stream(device, x, stream):
    """Somebody's array, who wants programs on this stream."""
    address = _address_of(x, 0)
    return DeviceArray(device, address, x.shape, DType.F32, stream, x, caller=True)


def streams_of(device, count):
    with device.driver.current():
        return [device.driver.make_stream() for _ in range(count)]


@pytest.mark.parametrize("beside", [False, True])
def test_programs_that_share_arenas_do_not_disturb_each_other(beside):
    device, _ = opened()
    device.driver.beside = beside
    programs = [chain_program(device, 64, links=links) for links in (2, 3, 4, 5)]
    runs = []
    for number, stream in enumerate(streams_of(device, 12)):
        x, links = vector(64, number), 2 + number % 4
        (result,) = programs[links - 2].run([on_stream(device, x, stream)])
        runs.append((result, chained(x, links)))
    for result, expected in reversed(runs):
        np.testing.assert_array_equal(result.numpy(), expected)


def test_memory_of_a_result_is_reused_after_the_work_on_it():
    device, _ = opened()
    program = chain_program(device, 64)
    a, b = streams_of(device, 2)
    (first,) = program.run([on_stream(device, vector(64, 1), a)])
    address = first.address
    del first  # while it waits on its stream
    x = vector(64, 2)
    (second,) = program.run([on_stream(device, x, b)])
    assert second.address == address
    np.testing.assert_array_equal(second.numpy(), chained(x))
    with device.driver.current():
        device.driver.synchronize()
    np.testing.assert_array_equal(second.numpy(), chained(x))


def test_memory_of_an_input_is_reused_after_the_run():
    device, arrays = opened()
    program = chain_program(device, 64)
    (stream,) = streams_of(device, 1)
    x, y = vector(64, 1), vector(64, 2)
    taken = arrays.take(info(), x)
    taken.numpy()
    given = DeviceArray(device, taken.address, (64,), DType.F32, stream, taken.owner, caller=True)
    (result,) = program.run([given])
    del given, taken
    np.testing.assert_array_equal(arrays.take(info(), y).numpy(), y)
    np.testing.assert_array_equal(result.numpy(), chained(x))


def test_memory_of_other_libraries_is_read_when_run_returns():
    device, _ = opened()
    program = chain_program(device, 64)
    x = vector(64)
    address = _address_of(x, 0)
    (result,) = program.run([DeviceArray(device, address, (64,), DType.F32, 0, x)])
    made.at(address, 64)[:] = np.nan
    np.testing.assert_array_equal(result.numpy(), chained(x))


@pytest.mark.parametrize("virtual", [True, False])
def test_memory_in_use_is_not_given_back(virtual):
    device, _ = opened(virtual=virtual)
    small, large = chain_program(device, 64), chain_program(device, 100_000)
    (stream,) = streams_of(device, 1)
    x, y = vector(64), vector(100_000)
    (first,) = small.run([on_stream(device, x, stream)])
    (second,) = large.run([on_stream(device, y, stream)])  # for which the arena grows
    np.testing.assert_array_equal(second.numpy(), chained(y))
    np.testing.assert_array_equal(first.numpy(), chained(x))
    large.run([on_stream(device, y, stream)])  # whose result nobody wants
    with device.driver.current():
        device._buffers.clear()
        device.arenas.clear()
        device.driver.synchronize()
    device.driver.memory.check()


def test_constants_are_shared_and_let_go():
    device, arrays = opened()
    asked = []
    one = chain_program(device, 64, packed=asked)
    two = chain_program(device, 64, links=3, packed=asked)
    assert asked == [0]
    other = chain_program(device, 64, identity="another model", packed=asked)
    assert asked == [0, 0] and device.constants.count == 2
    del one
    gc.collect()
    x = vector(64)
    np.testing.assert_array_equal(ran(two, arrays, x), chained(x, 3))
    del two, other
    gc.collect()
    assert device.constants.count == 0
    assert device.driver.graphs == 0


def test_nothing_is_left_of_the_last_program():
    device, arrays = opened()
    program = chain_program(device, 5000)
    ran(program, arrays, vector(5000))
    assert device.driver.memory.used
    del program
    gc.collect()
    assert device.driver.memory.used == 0
    device.driver.memory.check()


def test_many_runs_do_not_grow():
    device, arrays = opened()
    program = chain_program(device, 300)
    x = vector(300)
    for _ in range(5):
        ran(program, arrays, x)
    before = device.driver.memory.used, device.driver.graphs, device.driver.counts["make_event"]
    for _ in range(1000):
        ran(program, arrays, x)
    after = device.driver.memory.used, device.driver.graphs, device.driver.counts["make_event"]
    assert after == before


@pytest.mark.parametrize("virtual", [True, False])
def test_out_of_memory_says_how_much_is_missing_and_smaller_runs_go_on(virtual):
    device, arrays = opened(memory=3 << 20, virtual=virtual)
    small, large = chain_program(device, 1000), chain_program(device, 1000, arena=4 << 20)
    x = vector(1000)
    np.testing.assert_array_equal(ran(small, arrays, x), chained(x))
    with pytest.raises(OutOfMemoryError, match=r"need 4198304 bytes.*: \d+ are missing") as caught:
        ran(large, arrays, x)
    assert int(re.search(r"(\d+) are missing", str(caught.value))[1]) >= 1 << 20
    np.testing.assert_array_equal(ran(small, arrays, x), chained(x))
    device.driver.memory.check()


def test_idle_memory_is_given_up_before_it_runs_out():
    device, arrays = opened()
    program = chain_program(device, 500_000)  # 2 MB: input, output, arena
    x = vector(500_000)
    np.testing.assert_array_equal(ran(program, arrays, x), chained(x))
    device.driver.memory.total = device.driver.memory.used + 3_000_000  # others took the rest
    larger = chain_program(device, 520_000)
    x = vector(520_000)
    np.testing.assert_array_equal(ran(larger, arrays, x), chained(x))


def test_constants_without_room_leave_nothing_behind():
    device, arrays = opened(memory=1 << 20)
    small = chain_program(device, 100)
    with pytest.raises(OutOfMemoryError, match="are missing"):
        chain_program(device, 1_000_000)
    gc.collect()
    assert device.constants.count == 1
    x = vector(100)
    np.testing.assert_array_equal(ran(small, arrays, x), chained(x))


def test_growing_keeps_the_graphs_where_addresses_can_be_reserved():
    for virtual, graphs in ((True, 2), (False, 3)):
        device, arrays = opened(virtual=virtual)
        small, large = chain_program(device, 10), chain_program(device, 100_000)
        for program, n in ((small, 10), (large, 100_000), (small, 10)):
            x = vector(n)
            np.testing.assert_array_equal(ran(program, arrays, x), chained(x))
        assert device.driver.counts["make_graph"] == graphs
        assert device.driver.graphs == 2


def test_a_lost_gpu_is_an_error_and_no_hang():
    device, arrays = opened()
    program = chain_program(device, 64)
    x = vector(64)
    given = arrays.take(info(), x)
    (result,) = program.run([given])
    device.driver.lose("cuStreamSynchronize says CUDA_ERROR_LAUNCH_FAILED")
    message = "Fake GPU was lost .*LAUNCH_FAILED.*start a new one"
    with pytest.raises(DeviceError, match=message):
        program.run([given])
    with pytest.raises(DeviceError, match=message):
        result.numpy()
    with pytest.raises(DeviceError, match=message):
        arrays.take(info(), x)
    with pytest.raises(DeviceError, match=message):
        program.speeds()
    del program, given, result
    gc.collect()  # without a word


def test_profile():
    device, arrays = opened()
    program = chain_program(device, 64, links=3)
    x = vector(64)
    readings = program.profile([arrays.take(info(), x)], 4)
    assert [step.name for step, _, _ in readings] == ["link0", "link1", "link2"]
    clocks = np.stack([clock for _, _, clock in readings], axis=1)
    assert clocks.shape == (4, 3, 1, 2)
    assert (clocks[..., 1] >= clocks[..., 0]).all()
    np.testing.assert_array_equal(clocks[:, 1:, 0, 0], clocks[:, :-1, 0, 1])
    assert program.speeds().bandwidth > 0 and program.speeds().flops == made.SPEEDS.flops


def test_profile_of_phases_without_chunks():
    device, arrays = opened()
    program = chain_program(device, 0)
    for _, _, clock in program.profile([arrays.take(info(), np.empty(0, np.float32))], 2):
        np.testing.assert_array_equal(clock, np.zeros((2, 1, 2)))


def counting_program(device, n):
    """The positive ones of x as [2, found], twice, and how many there are."""
    nbytes = 4 * n
    arguments = [
        Argument("x", Role.INPUT, Ref(1, 0, nbytes)),
        Argument("y", Role.OUTPUT, Ref(2, 0, nbytes)),
        Argument("count", Role.OUTPUT, Ref(3, 0, 8)),
    ]
    steps = [made.step("count", arguments, {"n": n}, (), ())]
    plan = made.plan_of(
        steps,
        (Port("x", "float32", (n,)),),
        (Port("y", "float32", (n,)), Port("found", "int64", (1,))),
        counts=1,
        cuts=(Cut(0, 0, 1, 1),),
    )
    code = device.driver.host_code(("x", "y", "count"), "n", made.count_positive)
    return CudaProgram(device, plan, [code], weights, "model")


def test_results_of_unknown_length_are_cut():
    device, arrays = opened()
    program = counting_program(device, 40)
    for seed in range(3):
        x = vector(40, seed)
        np.testing.assert_array_equal(ran(program, arrays, x), x[x > 0])
    assert ran(program, arrays, -np.ones(40, np.float32)).shape == (0,)
    assert ran(program, arrays, np.ones(40, np.float32)).shape == (40,)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cuts_along_every_axis(axis):
    device, arrays = opened()
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    whole = arrays.take(TensorInfo("x", "float32", x.shape), x)
    numbers = arrays.take(TensorInfo("n", "int64", (2, 16)), np.arange(32).reshape(2, 16) // 16)
    with device.driver.current():
        (part,) = cut_on_device([whole], numbers, [Cut(0, axis, 2, 1)], device.stream())
    np.testing.assert_array_equal(part.numpy(), x.take([0], axis))


def test_steps_without_a_kernel_are_refused():
    device, _ = opened()
    plan = made.plan_of([made.step("far", [], {}, (), (), kernel=None)], (), ())
    with pytest.raises(OptionError, match=r"no kernel for NoneType \(far\)"):
        CudaProgram(device, plan, [], weights, "model")


def test_arguments_that_do_not_fit_the_code_are_refused():
    device, _ = opened()
    plan = made.chain(8)
    for names, integers in (("xw", "n"), ("xwy", ""), ("xwy", "nm")):
        code = device.driver.host_code(names, integers, made.scale_and_add)
        with pytest.raises(LaunchError, match="takes"):
            CudaProgram(device, plan, [code, code], lambda _: weights(8), "m")


def test_code_for_another_gpu_is_refused():
    device, _ = opened()
    other, _ = opened()
    code = other.driver.host_code("xwy", "n", made.scale_and_add)
    with pytest.raises(DeviceError, match="another GPU"):
        CudaProgram(device, made.chain(8), [code, code], lambda _: weights(8), "m")


def test_constants_that_no_phase_reads_are_not_asked_for():
    device, arrays = opened()
    plan = made.chain(16)
    unread = Constant(("raw",), None, 64)
    plan = made.plan_of(
        plan.steps, plan.inputs, plan.outputs, [*plan.constants, unread], plan.arena_bytes
    )
    code = device.driver.host_code("xwy", "n", made.scale_and_add)
    asked = []
    program = CudaProgram(
        device, plan, [code, code], lambda i: asked.append(i) or weights(16), "model"
    )
    assert asked == [0]
    x = vector(16)
    np.testing.assert_array_equal(ran(program, arrays, x), chained(x))


def test_long_copies_go_by_chunks():
    device, arrays = opened(memory=1 << 26)
    program = chain_program(device, 3_000_000)  # 12 MB
    x = vector(3_000_000)
    np.testing.assert_array_equal(ran(program, arrays, x), chained(x))
