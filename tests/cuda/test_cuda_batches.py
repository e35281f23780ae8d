"""Launches that are alike are one launch, with a row of the grid for each of them."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hopper_model import run_where_it_compiles
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, save

sys.path.insert(0, str(Path(__file__).parent))
import cuda_programs as made
from cuda_programs import info, opened, view, weights

import saccade
from saccade.backends.cuda.ahead import ROWS
from saccade.backends.cuda.batches import keys_of, plan_keys
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.codegen.entry import Entry
from saccade.backends.cuda.codegen.functions import text_of
from saccade.backends.cuda.cubins import CodeKey, Cubins, common_alignment
from saccade.backends.cuda.runtime.batches import batches_of, launched_of, ordered
from saccade.backends.cuda.runtime.graph import Launches, PhaseCode, check_arguments
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.errors import OutOfMemoryError
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.plan import Constant, Port, Slot
from saccade.testing.fake_encoders import FakeEncoders
from saccade.testing.triton import play_entry
from saccade.waits import depths_of

N = 6
NBYTES, ROOM = 4 * N, 256
PLAIN = Entry(
    "movement.scatter_code:none", (("heads", "i32"),), ("rows", "count"), {"LAST": -1, "BLOCK": 64}
)


def chains(count, length=2, *, counted=0):
    """Of one x as many chains of y = 2 x + w, each with constants of its own, and their ends."""
    steps, constants = [], []
    first = 2 + count + counted
    for c in range(count):
        before = Ref(1, 0, NBYTES)
        for i in range(length):
            after = Ref(0, ROOM * (c * length + i), NBYTES)
            if i == length - 1:
                after = Ref(2 + c, 0, NBYTES)
            constant = Ref(first + len(constants), 0, NBYTES)
            constants.append(Constant((f"w{len(constants)}",), None, NBYTES))
            arguments = [
                Argument("x", Role.INPUT, before),
                Argument("w", Role.PACKED, constant),
                Argument("y", Role.OUTPUT, after),
            ]
            slots = (Slot(before, view(N)),), (Slot(after, view(N)),)
            steps.append(made.step(f"chain{c}.{i}", arguments, {"n": N}, *slots))
            before = after
    outputs = tuple(Port(f"y{c}", "float32", (N,)) for c in range(count))
    numbers = tuple(Port(f"n{i}", "int64", (1,)) for i in range(counted))
    return made.plan_of(
        steps, (Port("x", "float32", (N,)),), (*outputs, *numbers), constants,
        ROOM * count * length, counts=counted,
    )  # fmt: skip


def constant(number):
    return weights(N) + number


def truth(x, count, length):
    found = []
    for c in range(count):
        y = x
        for i in range(length):
            y = 2 * y + constant(c * length + i)
        found.append(y)
    return found


def groups(plan, codes=None):
    return batches_of(plan, codes or ["code"] * len(plan.steps))


def test_launches_of_chains_are_batches_but_for_results_that_move_by_themselves():
    assert groups(chains(3)) == [[0, 2, 4], [1], [3], [5]]
    # Without code that may be shared each is alone.
    assert groups(chains(2), [None] * 4) == [[0], [1], [2], [3]]
    assert groups(chains(2, 3), ["a", "b", "a", "c", "b", "a"]) == [[0], [1, 4], [2], [3], [5]]


def test_launches_that_wait_for_each_other_are_none():
    (one, two, three) = groups(chains(1, 3))
    assert (one, two, three) == ([0], [1], [2])


@pytest.mark.parametrize("change", ["chunks", "integers", "arguments"])
def test_launches_that_differ_are_none(change):
    plan = chains(2)
    phase = plan.steps[0].phases[0]
    arguments = (phase.arguments[1], phase.arguments[0], phase.arguments[2])
    other = {"chunks": 4, "integers": {"n": N - 1}, "arguments": arguments}[change]
    steps = list(plan.steps)
    changed = phase._replace(**{change: other})
    object.__setattr__(steps[0], "phases", (changed,))
    assert [0, 2] not in groups(plan)


def test_numbers_that_steps_find_stay_as_far_apart():
    plan = chains(2, counted=2)
    for c, step in enumerate(plan.steps[1::2]):
        x, w, _ = step.phases[0].arguments
        y = Argument("y", Role.OUTPUT, Ref(4 + c, 0, 8))
        object.__setattr__(step, "phases", (step.phases[0]._replace(arguments=(x, w, y)),))
    assert groups(plan) == [[0, 2], [1, 3]]


@st.composite
def graphs(draw):
    """Launches with a kind each, which wait for some of the earlier ones."""
    count = draw(st.integers(1, 14))
    waits = [
        tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else ()
        for i in range(count)
    ]
    return waits, [draw(st.sampled_from("abc")) for _ in range(count)]


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_batches_come_behind_all_that_they_wait_for(case):
    waits, kinds = case
    depths = depths_of(waits)
    alike: dict[object, list[int]] = {}
    for i, kind in enumerate(kinds):
        alike.setdefault((kind, depths[i]), []).append(i)
    batches, after = ordered(list(alike.values()), waits)
    assert sorted(i for batch in batches for i in batch) == list(range(len(waits)))
    done: set[int] = set()
    for batch, earlier in zip(batches, after, strict=True):
        known = {i for number in earlier for i in batches[number]}
        for i in batch:
            assert set(waits[i]) <= done and set(waits[i]) <= known
        done |= set(batch)


def test_launches_alone_stay_in_their_order():
    waits = [(), (), (0,), (1,), (2, 3)]
    alone = [[i] for i in range(5)]
    assert ordered(alone, waits) == (alone, waits)


def code(cubin, number, x, *others):
    arguments = (Argument("x", Role.INPUT, x), Argument("w", Role.PACKED, Ref(2, 0, 16)))
    phase = Phase(None, arguments, {"n": 5}, 3)
    found = check_arguments(PhaseCode(number, phase, cubin, 1))
    rest = tuple(code(cubin, number + 1 + i, one) for i, one in enumerate(others))
    return PhaseCode(found.number, phase, cubin, 1, rest)


def test_rows_say_how_far_operands_lie_behind_the_first_ones():
    device, _ = opened()
    driver = device.driver
    cubin = Cubin("kernel", b"", ("x", "w", "n", ROWS), 4, 0, chained=True)
    assert cubin.rows and not Cubin("kernel", b"", ("x", "w", "n"), 4, 0).rows
    codes = [
        code(cubin, 0, Ref(0, 64, 8), Ref(1, 0, 8), Ref(0, 32, 8)),
        code(cubin, 3, Ref(1, 8, 8)),
    ]
    launches = Launches(codes, 3, FakeEncoders())
    bases = np.array([1 << 20, 1 << 24, 1 << 28])
    with driver.current():
        address = launches.place_rows(driver, bases, 0)
        launches.point(bases)
        first, second = launches.each
        assert (first.rows, first.programs, second.rows) == (3, 3, 1)
        # Behind its pointers and the integer; then come the two that all code of Triton's takes.
        assert [one.values[3] for one in (first, second)] == [address, address + 3 * 2 * 8]
        assert list(first.values[:3]) == [(1 << 20) + 64, 1 << 28, 5]
        driver.synchronize()
        table = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 8).from_address(address))
        apart = (1 << 24) - (1 << 20)
        assert table.reshape(4, 2).tolist() == [[0, 0], [apart - 64, 0], [-32, 0], [0, 0]]
        driver.free(address)
    driver.memory.check()


def test_there_is_no_table_without_rows():
    launches = Launches(
        [code(Cubin("kernel", b"", ("x", "w", "n"), 4, 0), 0, Ref(0, 0, 8))], 3, FakeEncoders()
    )
    assert launches.place_rows(None, np.zeros(3, np.int64), 0) == 0


def program(device, count, length=2, identity="model"):
    plan = chains(count, length)
    plain = device.driver.host_code("xwy", "n", made.scale_and_add)
    rows = device.driver.host_code("xwy", ("n", ROWS), made.scale_and_add)
    codes = [rows if i % length < length - 1 else plain for i in range(count * length)]
    return CudaProgram(device, plan, codes, constant, identity)


def test_a_program_of_batches_gives_what_its_launches_would():
    device, arrays = opened()
    count, length = 5, 3
    one = program(device, count, length)
    launches, waits = launched_of(one.plan, one._codes, 0)
    assert [1 + len(code.others) for code in launches] == [5, 5, 1, 1, 1, 1, 1]
    assert waits == [(), (0,), *[(1,)] * 5]
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
        found = one.run([arrays.take(info(), x)])
        for y, wanted in zip(found, truth(x, count, length), strict=True):
            np.testing.assert_array_equal(y.numpy(), wanted)
    del found
    device.driver.memory.check()
    del one, launches
    assert device.driver.graphs == 0


def test_profile_shares_a_batch_out():
    device, arrays = opened()
    clock = iter(range(1000))
    device.driver.clock = lambda: float(next(clock))
    one = program(device, 4, 2)
    readings = one.profile([arrays.take(info(), np.zeros(N, np.float32))], 1)
    assert [step.name for step, _, _ in readings[:3]] == ["chain0.0", "chain0.1", "chain1.0"]
    spans = np.array([clock[0, 0] for _, _, clock in readings]) / 1e9
    # A second each: the batch of four first, then one after the other.
    np.testing.assert_allclose(spans[::2, 1] - spans[::2, 0], 0.25)
    np.testing.assert_allclose(spans[::2, 0], [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(spans[1::2], [[1, 2], [2, 3], [3, 4], [4, 5]])
    assert [facts.get("rows") for facts in one.facts()] == [4, None] * 4
    device.driver.memory.check()


def test_a_graph_without_room_for_its_rows_leaves_nothing():
    device, arrays = opened(memory=1 << 20)
    one = program(device, 4)
    x = arrays.take(info(), np.ones(N, np.float32))
    failing = device.driver.make_graph

    def refuse(*_):
        raise OutOfMemoryError("none")

    device.driver.make_graph = refuse
    with pytest.raises(OutOfMemoryError, match="there is no room: none"):
        one.run([x])
    used = device.driver.memory.used
    with pytest.raises(OutOfMemoryError):
        one.run([x])
    assert device.driver.memory.used == used
    device.driver.make_graph = failing
    for y, wanted in zip(one.run([x]), truth(np.ones(N, np.float32), 4, 2), strict=True):
        np.testing.assert_array_equal(y.numpy(), wanted)


def test_memory_that_moved_takes_its_rows_along():
    device, arrays = opened(virtual=False)
    small, large = program(device, 4), made.chain_program(device, 9000, links=3, identity="other")
    x = np.ones(N, np.float32)
    for _ in range(2):
        for y, wanted in zip(small.run([arrays.take(info(), x)]), truth(x, 4, 2), strict=True):
            np.testing.assert_array_equal(y.numpy(), wanted)
        big = np.ones(9000, np.float32)
        (y,) = large.run([arrays.take(info(), big)])
        np.testing.assert_array_equal(y.numpy(), made.chained(big, 3))
    device.driver.memory.check()


def classes(path, count, rows=40):
    """Of each row the three best numbers above a level, as detectors rank each class."""
    nodes, ends = [], []
    for c in range(count):
        names = {n: f"{n}{c}" for n in ("column", "mask", "found", "flat", "some", "best", "where")}
        nodes += [
            helper.make_node("Gather", ["x", f"at{c}"], [names["column"]], axis=0),
            helper.make_node("Greater", [names["column"], "level"], [names["mask"]]),
            helper.make_node("Where", [names["mask"], names["column"], "low"], [names["some"]]),
            helper.make_node("TopK", [names["some"], "three"], [names["best"], names["where"]]),
        ]
        ends.append(names["best"])
    nodes.append(helper.make_node("Concat", ends, ["y"], axis=0))
    constants = {
        **{f"at{c}": np.array(c) for c in range(count)}, "level": np.array(0, np.float32),
        "low": np.array(-9, np.float32), "three": np.array([3]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "classes", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [count, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_classes_of_a_detector_are_batches(tmp_path):
    path, plans = classes(tmp_path / "classes.onnx", 6), []
    x = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    made.held_by_the_reference(path, "fp32", 1e-6, [x], plans.append)
    keys = plan_keys(plans[0])
    assert [key[:2] for key in keys] == [key[:2] for key in keys_of(plans[0].steps)]
    assert sum(key.rows for key in keys) == 12
    # Results lie three numbers apart.
    (best,) = {key for key in keys if key.kernel == "select.top_k"}
    assert "values:4" in best.aligned and "x" in best.aligned


def test_what_holds_of_all():
    assert common_alignment([("a", "b:8", "n"), ("a:4", "b", "n"), ("a", "b", "c")]) == (
        "a:4",
        "b:8",
    )
    assert common_alignment([("a", "b:4")]) == ("a", "b:4")


def test_few_launches_are_not_worth_a_table(tmp_path):
    engine = saccade.compile(
        classes(tmp_path / "classes.onnx", 3), device="cuda", machine="a100"
    )._started()
    plan = engine.plan([(3, 40)])
    assert plan_keys(plan) == keys_of(plan.steps)


def test_programs_of_rows_run_on_operands_of_their_own():
    """The code itself, in the interpreter."""
    heads = np.zeros((5, 16), np.int32)
    offsets = np.array([[0], [3 * 64], [64]], np.int64)
    given = {"heads": heads.ctypes.data, "rows": 3, "count": 16}
    play_entry(PLAIN, 1, given, offsets)
    plain = np.zeros((5, 16), np.int32)
    for row in (0, 3, 1):
        play_entry(PLAIN, 1, given | {"heads": plain[row:].ctypes.data})
    np.testing.assert_array_equal(heads, plain)
    assert heads[[0, 1, 3], 0].tolist() == [-1] * 3 and not heads[[2, 4]].any()


def test_rows_are_known_before_code_waits():
    text = text_of(PLAIN, chained=True, grains={"heads": 16})
    order = (f"{ROWS} += tl.program_id(1) * 1", f"moved(heads, {ROWS} + 0, 16)", "gdc_wait()")
    assert sorted(order, key=text.index) == [*order]
    assert "ask" not in text and ROWS not in text_of(PLAIN, chained=True)


def test_code_with_rows_has_names_of_its_own():
    key = CodeKey("movement.copy", ("config",), ("x",))
    assert Cubins.portable_name(key) != Cubins.portable_name(key._replace(rows=True))


COMPILED = """
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
import saccade
from test_cuda_batches import ROWS, classes, plan_keys
from saccade.backends.cuda.codegen.compile import compiled, compile_entry
from saccade.kernels.cuda import kernel_named

with TemporaryDirectory() as folder:
    path = classes(Path(folder, "classes.onnx"), 6)
    engine = saccade.compile(path, device="cuda", machine="h200", precision="fp16")._started()
    plan = engine.plan([(6, 40)])
keys = {key for key in plan_keys(plan) if key.rows}
widths = Counter()
for key in keys:
    entry = kernel_named(key.kernel).entry(key.config)

    def accesses(rows):
        ptx = compiled(entry, 90, key.aligned, rows=rows).asm["ptx"]
        return Counter(re.findall(r"(?:ld|st)\\.global\\S*", ptx))

    # What is known of operands' places stays known: as wide accesses, and those to the table.
    table = accesses(True) - accesses(False)
    assert not accesses(False) - accesses(True) and set(table) == {"ld.global.b64"}, key
    assert table.total() <= len(entry.pointers) + len(entry.extra_pointers)
    widths += accesses(False)
    cubin = compile_entry(entry, 90, key.aligned, rows=True)
    assert cubin.parameters[-1] == ROWS and cubin.rows and cubin.chained
assert len(keys) > 1 and any(".v" in width for width in widths), widths
"""


def test_accesses_are_as_wide_with_rows():
    run_where_it_compiles(COMPILED)
