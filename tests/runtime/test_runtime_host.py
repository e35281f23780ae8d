"""Host steps, constants that are shared, and the watch that other tests rely on."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from layout_graphs import Builder, backend, plan_of
from runtime_models import image

from saccade.backends.cpu.runtime.program import CpuProgram
from saccade.backends.host import array_at
from saccade.ir import DType
from saccade.ir.expr import apply, arg
from saccade.kernels.base import View
from saccade.layout.views import channels_last
from saccade.opdefs import Pointwise
from saccade.plan import Ref, Slot
from saccade.testing.interpret import interpret
from saccade.testing.simulate import PlayError, _differences, simulate

DOUBLE = Pointwise(arg(0), DType.F64)
BENT = Pointwise(apply("tanh", arg(0)), DType.F64)  # no kernel has float64's
BACK = Pointwise(arg(0), DType.F32)


def mixed():
    """Native, host, native, host steps."""
    b = Builder((1, 3, 8, 8))
    x = b.conv(b.inputs[0], 8)
    y = b.add(BACK, b.add(BENT, b.add(DOUBLE, x)))
    z = b.conv(y, 8)
    return b.graph(b.add(BENT, b.add(DOUBLE, z)))


def build(graph, threads=1):
    return backend(threads, None).build(plan_of(graph, threads, None), graph, f"test-{id(graph)}")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_host_and_native_steps_alternate(threads):
    graph = mixed()
    x = image(1, 3, 8, 8)
    program = build(graph, threads)
    hosts = [host for host, _ in program.plan.segments()]
    assert True in hosts and False in hosts and len(hosts) >= 4
    (found,) = program.run([x])
    (wanted,) = interpret(graph, {"x0": x}).values()
    assert found.dtype == wanted.dtype == np.float64
    assert np.linalg.norm(found - wanted) < 1e-6 * np.linalg.norm(wanted)
    (watched,) = simulate(program, [x])
    assert watched.tobytes() == found.tobytes()


def test_a_stored_value_is_a_view_of_memory():
    view = channels_last(DType.F32, (1, 2, 2, 3))
    memory = np.arange(40, dtype=np.float32).view(np.uint8)
    found = array_at(Slot(Ref(0, 16, 48), view), [memory])
    assert found[0, 1, 1, 2] == 4 + 5 * 2 + 1
    found[0, 0, 0, 0] = -1
    assert memory.view(np.float32)[4] == -1
    empty = View(DType.F32, (0, 3), (3, 1))
    assert array_at(Slot(Ref(0, 0, 0), empty), [memory]).shape == (0, 3)


def test_packed_weights_are_held_once():
    b = Builder((1, 3, 8, 8))
    graph = b.graph(b.conv(b.inputs[0], 16))
    shared = backend(machine=None)
    first = shared.build(plan_of(graph, machine=None), graph, "one model")
    second = shared.build(plan_of(graph, machine=None), graph, "one model")
    other = shared.build(plan_of(graph, machine=None), graph, "another model")
    packed = [i for i, c in enumerate(first.plan.constants) if c.packing is not None]
    assert packed
    for i in packed:
        assert first.constants[i] is second.constants[i]
        assert first.constants[i] is not other.constants[i]


def planted(program, **changes):
    """The program with a wrong plan: what the watch has to notice."""
    wrong = replace(program.plan, **changes)
    program._get_plan = lambda: wrong
    return program


def chain():
    b = Builder((1, 8, 8, 8))
    x = b.conv(b.conv(b.inputs[0], 8), 8)
    return build(b.graph(b.conv(x, 8)))


def test_the_watch_sees_writes_to_other_places():
    """The plan says one place, the code writes to another."""
    program = chain()
    x = image(1, 8, 8, 8)
    first = program.plan.steps[0].outputs[0]
    moved = first._replace(ref=first.ref._replace(offset=first.ref.offset + 64))

    def slots(found):
        return tuple(moved if slot == first else slot for slot in found)

    steps = tuple(
        replace(s, inputs=slots(s.inputs), outputs=slots(s.outputs)) for s in program.plan.steps
    )
    simulate(program, [x])
    with pytest.raises(PlayError, match="outside its results"):
        simulate(planted(program, steps=steps, arena_bytes=program.plan.arena_bytes + 64), [x])


def test_the_watch_poisons_what_is_dead():
    """The plan says that the last step reads the first value, the code reads the second."""
    program = chain()
    x = image(1, 8, 8, 8)
    (wanted,) = simulate(program, [x])
    assert np.isfinite(wanted).all()
    first, second, last = program.plan.steps
    wrong = replace(last, inputs=(first.outputs[0], *last.inputs[1:]))
    assert second.outputs[0].view == first.outputs[0].view
    (found,) = simulate(planted(program, steps=(first, second, wrong)), [x])
    assert np.isnan(found).all()


def test_the_watch_sees_a_step_that_reads_what_nobody_wrote():
    program = chain()
    first, second, last = program.plan.steps
    with pytest.raises(PlayError, match="read but never written"):
        simulate(planted(program, steps=(second, first, last)), [image(1, 8, 8, 8)])


def written(monkeypatch, write):
    """Play the chain with other code: each thread calls `write` with its number and the bases."""

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def code(_, context):
        bases, _, _, thread, *_ = (ctypes.c_int64 * 6).from_address(context)
        write(thread, ctypes.cast(bases, ctypes.POINTER(ctypes.c_int64)))

    program = chain()
    table = [(ctypes.cast(code, ctypes.c_void_p).value, 0, True) for _ in program.phase_table]
    monkeypatch.setattr(CpuProgram, "phase_table", table)
    monkeypatch.setattr("saccade.testing.simulate._PART", 64)
    simulate(program, [image(1, 8, 8, 8)], order=(1, 0))


@pytest.mark.parametrize("at", [0, 1000, 2047])
def test_the_watch_sees_two_threads_that_write_the_same_byte(monkeypatch, at):
    start = chain().plan.steps[0].outputs[0].ref.offset + at
    with pytest.raises(PlayError, match=f"thread 0, .* another thread .* 1 bytes.* at {start}$"):
        written(monkeypatch, lambda thread, bases: ctypes.memset(bases[0] + start, thread, 1))


@pytest.mark.parametrize("what", ["input", "constant"])
def test_the_watch_sees_inputs_and_constants_that_change(monkeypatch, what):
    sizes = [constant.nbytes for constant in chain().constants]
    base = {"input": 1, "constant": 3 + sizes.index(max(sizes))}[what]
    changed = []

    def change_once(_, bases):
        if not changed:
            changed.append(ctypes.c_uint8.from_address(bases[base] + 99))
            changed[0].value ^= 0xFF

    with pytest.raises(PlayError, match="an input or a constant"):
        written(monkeypatch, change_once)
    if what == "constant":  # which other programs may have, too
        changed[0].value ^= 0xFF


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 65, 100, 128, 200])
def test_no_byte_that_differs_is_left_out(monkeypatch, size):
    monkeypatch.setattr("saccade.testing.simulate._PART", 64)
    one = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert not list(_differences(one, one.copy()))
    for at in range(size):
        other = one.copy()
        other[at] ^= 1 << at % 8
        (part,) = _differences(one, other)
        assert part.start <= at < part.stop <= size
