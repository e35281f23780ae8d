"""Loops and branches on a fake GPU: bodies are programs, whose turns the host counts."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))
from loop_models import TURNS, X, by_turns, model

import saccade
from saccade.backends.cuda.arrays import CudaArrays
from saccade.backends.cuda.backend import packed_constant
from saccade.backends.cuda.batches import plan_keys, whole_keys
from saccade.backends.cuda.beside import bodies_of, turns_beside
from saccade.backends.cuda.bundle import bundle_entries
from saccade.backends.cuda.runtime.batches import batches_of
from saccade.errors import LoopError
from saccade.kernels.cuda import kernel_named
from saccade.testing.fake_gpu import fake_gpu, fake_program


class Played:
    """A model whose plans run on a fake GPU, beside the reference device."""

    def __init__(self, built, **options):
        made = saccade.compile(built, device="cuda", machine="a100", cache=False, **options)
        self.engine = made._started()
        self.reference = saccade.compile(built, device="reference", cache=False)
        self.driver, device = self.gpu = fake_gpu()
        self.arrays = CudaArrays(lambda: device)
        self.programs = {}

    def program(self, feeds):
        shapes = tuple(np.shape(feeds[info.name]) for info in self.engine.signature.inputs)
        if shapes not in self.programs:
            plan = self.engine.plan(shapes)
            constant = partial(packed_constant, self.engine.graph, plan)
            self.programs[shapes] = fake_program(plan, constant, self.gpu)
        return self.programs[shapes]

    def run(self, feeds):
        program = self.program(feeds)
        given = [np.asarray(feeds[info.name]) for info in self.engine.signature.inputs]
        taken = map(self.arrays.take, self.engine.signature.inputs, given)
        return self.arrays.give(program.run([*taken]), given)

    def hold(self, feeds, tolerance=1e-5):
        found, truths = self.run(feeds), self.reference.run(feeds).values()
        for result, truth in zip(found, truths, strict=True):
            assert result.dtype == truth.dtype
            assert result.shape == truth.shape
            np.testing.assert_allclose(
                result.astype(np.float64), truth.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        self.driver.memory.check()


@pytest.mark.parametrize("name", TURNS)
def test_turns_by_data(name):
    played = Played(by_turns(name))
    for n in (0, 1, 4, 4):
        played.hold({"n": np.array(n), "x": X})


def test_turns_in_half_precision():
    for name in ("sums", "products", "gathered", "loops in a loop"):
        played = Played(by_turns(name), precision="fp16")
        played.hold({"n": np.array(3), "x": X}, 2e-2)


BRANCH = (
    "m = ReduceMax<keepdims=0>(x) q = Greater(m, level) a = Exp(x) "
    "y = If(q) <then_branch = p () => (float[3, 5] u) { u = Add(a, x) }, "
    "else_branch = o () => (float[3, 5] v) { v = Mul(a, half) }> s = Transpose(y)"
)


def test_a_branch_by_data():
    built = model(
        BRANCH, "float[3, 5] x", "float[5, 3] s", level=np.float32(1), half=np.float32(0.5)
    )
    played = Played(built)
    for x in (0 * X, X + 5, 0 * X - 1):
        played.hold({"x": x})


def test_one_turn_too_many():
    name = "an end that a turn finds"
    played = Played(by_turns(name), limits=saccade.Limits(turns=4))
    played.hold({"n": np.array(3), "x": X})
    with pytest.raises(LoopError, match="not done after 4 turns"):
        played.run({"n": np.array(50), "x": 0 * X})
    played.hold({"n": np.array(3), "x": X})


def test_what_every_turn_says_alike_is_read_once(monkeypatch):
    reads = []
    driver = type(fake_gpu()[0])
    download = driver.download
    monkeypatch.setattr(
        driver, "download", lambda self, *args: (reads.append(args), download(self, *args))[1]
    )

    def counted(name):
        played, found = Played(by_turns(name)), []
        for n in (2, 2, 6):  # once before: constants are read by the first run
            reads.clear()
            played.run({"n": np.array(n), "x": X / 100})
            found.append(len(reads))
        return found[1:]

    few, many = counted("sums")
    assert few == many == 3  # how many turns, whether there is another one, the result
    few, many = counted("an end that a turn finds")
    assert many == few + 4


def test_a_profile_times_a_loop_as_one():
    played = Played(by_turns("what is gathered is used"))
    feeds = {"n": np.array(3), "x": X}
    program = played.program(feeds)
    clock = iter(range(10_000))
    played.driver.milliseconds = lambda _start, _end: next(clock)
    taken = [
        played.arrays.take(info, np.asarray(feeds[info.name]))
        for info in played.engine.signature.inputs
    ]
    readings = program.profile(taken, 2)
    assert [phase is None for _, phase, _ in readings].count(True) == 1
    (loop,) = [reading for reading in readings if reading[1] is None]
    assert loop[0].bodies and (loop[2][..., 1] > loop[2][..., 0]).all()
    assert len(program.facts()) == len(readings)
    assert program.micros(taken, 2) > 0


# -- turns that do not wait for each other ---------------------------------------------------------

PASTED = (
    "r, o = Loop(n, t) <body = b (int64 i, bool c) => (bool c2, float[5, 3] p, bool f) "
    "{ c2 = Identity(c) k = Mod(i, three) a = Gather<axis=0>(x, k) e = Exp(a) q = Cast<to=1>(i) "
    "s = Mul(w, q) d = Add(s, e) p = Transpose(d) g = ReduceSum<keepdims=0>(e) f = Greater(g, q) }>"
)


def pasted():
    return model(
        PASTED, "int64 n, float[3, 5] x", "float[k, 5, 3] r, bool[k] o",
        t=np.array(True), three=np.array(3), w=np.ones((3, 5), np.float32),
    )  # fmt: skip


def loops(program):
    return [step for step in program.plan.steps if step.bodies]


def test_turns_that_only_gather_run_side_by_side():
    played = Played(pasted())
    for n in (40, 0, 1, 5, 31, 32, 33, 64, 70, -2):
        played.hold({"n": np.array(n), "x": X})
    (step,) = loops(played.program({"n": np.array(1), "x": X}))
    assert turns_beside(step) == 32


def test_launches_of_turns_side_by_side_are_one():
    played = Played(pasted())
    program = played.program({"n": np.array(1), "x": X})
    (step,) = loops(program)
    (several,) = bodies_of(step)
    assert len(several.steps) == 32 * len(step.bodies[0].steps)
    keys = plan_keys(several)
    assert all(key.rows for key in keys)
    codes = [key._replace(aligned=()) for key in keys]
    assert len(batches_of(several, codes)) == len(step.bodies[0].steps)


def test_turns_side_by_side_take_a_part_of_the_memory():
    (step,) = loops(Played(pasted()).program({"n": np.array(1), "x": X}))
    (body,) = step.bodies
    for name, nbytes, turns in (("h200", 200, 5), ("l4", 200, 1), ("l4", 60, 3), ("h200", 2e3, 1)):
        speeds = replace(body.speeds, name=name)
        large = replace(body, arena_bytes=int(nbytes) << 20, speeds=speeds)
        assert turns_beside(replace(step, bodies=(large,))) == turns


def test_turns_side_by_side_stay_within_their_limits():
    played = Played(pasted(), limits=saccade.Limits(gathered=50))
    played.hold({"n": np.array(50), "x": X})
    with pytest.raises(LoopError, match="more than 50 turns"):
        played.run({"n": np.array(51), "x": X})
    played.hold({"n": np.array(3), "x": X})


@pytest.mark.parametrize(
    "name", ["sums", "gathered", "loops in a loop", "an end that a turn finds"]
)
def test_turns_that_wait_for_each_other_do_not(name):
    played = Played(by_turns(name))
    (step, *_) = loops(played.program({"n": np.array(1), "x": X}))
    assert turns_beside(step) == 1
    assert bodies_of(step) == step.bodies


def test_a_bundle_holds_what_bodies_need():
    played = Played(by_turns("products"))
    plan = played.program({"n": np.array(1), "x": X}).plan
    codes = [
        played.driver.code(kernel_named(key.kernel).entry(key.config), rows=key.rows)
        for key in whole_keys(plan)
    ]
    constant = partial(packed_constant, played.engine.graph, plan)
    entries = bundle_entries([(plan, codes, constant)])
    names = json.loads(entries["plan/0"])["code"]
    assert len(names) == len(codes) > len(plan_keys(plan))
    own = len(plan.constants)
    read = [*zip(plan.whole_constants, plan.whole_constants_read, strict=True)]
    assert any(used for _, used in read[own:])  # the weights of its product
    for i, (one, used) in enumerate(read):
        assert (f"constant/{one.key}" in entries) >= used
        if used:
            assert entries[f"constant/{one.key}"] == np.ascontiguousarray(constant(i)).tobytes()
