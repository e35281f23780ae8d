"""Steps behind a number that a run finds, for about as many rows as there are."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache as once

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from runtime_models import model_of, tensor, weights

import saccade
from saccade.backends.cpu.runtime import fewer_rows
from saccade.backends.cpu.runtime.counted_run import rounded
from saccade.backends.cpu.runtime.program import CpuProgram
from saccade.kernels.cpu import kernel_named
from saccade.plan import Plan
from saccade.plan.rows import all_counted_steps

BOUND, CHANNELS, SIDE = 64, 64, 14
SHAPES = {"features": (BOUND, CHANNELS, SIDE, SIDE), "scores": (BOUND,)}
COUNTS = (0, 1, 5, 8, 9, 23, BOUND)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def head(more=(), outputs=(), constants=()):
    """A head over the boxes whose score is high: their features through convolutions."""
    nodes = [
        node("Greater", "scores low", "high"),
        node("NonZero", "high", "where"),
        node("Squeeze", "where v0", "kept"),
        node("Gather", "features kept", "rows", axis=0),
        node("Conv", "rows w", "c0", pads=[1] * 4),
        node("Relu", "c0", "r0"),
        node("Conv", "r0 ww", "c1", pads=[1] * 4),
        node("Relu", "c1", "r1"),
        node("ConvTranspose", "r1 wt", "y", strides=[2, 2]),
        *more,
    ]
    inputs = [tensor(name, shape) for name, shape in SHAPES.items()]
    known = [
        weights("w", (CHANNELS, CHANNELS, 3, 3)), weights("ww", (CHANNELS, CHANNELS, 3, 3)),
        weights("wt", (CHANNELS, 7, 2, 2)), constant("low", np.float32(0.5)),
        constant("v0", [0]), *constants,
    ]  # fmt: skip
    outputs = outputs or [tensor("y", ["n", 7, 2 * SIDE, 2 * SIDE])]
    return model_of(nodes, inputs, [tensor("kept", ["n"], TensorProto.INT64), *outputs], known)


def feeds(count, seed=0):
    rng = np.random.default_rng((seed, count))
    scores = np.zeros(BOUND, np.float32)
    scores[rng.choice(BOUND, count, replace=False)] = 1
    return {
        "features": rng.standard_normal(SHAPES["features"]).astype(np.float32),
        "scores": scores,
    }


@once
def session(of):
    return onnxruntime.InferenceSession(of().SerializeToString())


def right(results, given, of=head):
    wanted = session(of).run(None, given)
    for found, array in zip(results.values(), wanted, strict=True):
        assert found.shape == array.shape
        np.testing.assert_allclose(found, array, rtol=1e-3, atol=1e-3)
    return True


def program_of(model):
    """The one program that a model has made."""
    (program,) = model._programs.values()
    return program


def run_once(model):
    """The model, which has run: a program's first run looks for fewer rows only if it is long."""
    model.run(feeds(BOUND))
    return model


@pytest.fixture
def whole(monkeypatch):
    """Run a model for all rows, as if no step could do with less."""

    def run(model, given):
        with monkeypatch.context() as patch:
            patch.setattr(CpuProgram, "_row_arguments", lambda *_: None)
            return model.run(given)

    return run


def same_bits(results, others):
    return all(
        a.tobytes() == b.tobytes() for a, b in zip(results.values(), others.values(), strict=True)
    )


@pytest.mark.parametrize(
    "options",
    [{"threads": 1}, {"threads": 2}, {"threads": 3, "checked": True}, {"exact": True}],
    ids=str,
)
def test_any_counts_by_turns(options, whole):
    model = saccade.compile(head(), **options)
    for count in (*COUNTS, *reversed(COUNTS)):
        given = feeds(count)
        results = model.run(given)
        assert right(results, given) and same_bits(results, whole(model, given))
    made = program_of(model)._fewer_rows._known
    assert {0, 1, 5, 8, 10, 24} == {rows for _, rows in made}
    assert all(arguments is not None for arguments in made.values())


def test_the_steps_run_for_fewer_rows(whole):
    """What is beyond is left as it was in memory that only the run sees."""
    model = saccade.compile(head(), threads=2)
    written = []
    for run in (lambda given: whole(model, given), model.run, model.run):
        for state in program_of(model)._idle if model._programs else ():
            for array in state.full_outputs.values():
                array.view(np.uint8)[...] = 0xAB
        run(feeds(9))
        (state,) = program_of(model)._idle
        (y,) = (a for a in state.full_outputs.values() if a.ndim == 4)
        rows = (y.view(np.uint32) != 0xABABABAB).any((1, 2, 3))
        written.append(int(rows.sum()))
    assert written[1:] == [10, 10]
    whole(model, feeds(9))
    assert (y.view(np.uint32) != 0xABABABAB).any((1, 2, 3)).all()


def test_a_plan_says_which_rows_are_counted():
    plan = saccade.compile(head(), threads=2).plan(**SHAPES)
    counted = {step.op.family for step in plan.steps if step.rows is not None}
    assert {"Conv2d", "ConvTranspose2d"} <= counted and "NonZero" not in counted
    (group,) = all_counted_steps(plan)
    assert group.bound == BOUND and plan.steps[group.known].op.family == "NonZero"
    families = [plan.steps[i].op.family for i in group.steps]
    assert families.count("Conv2d") == 2 and families[-1] == "ConvTranspose2d"
    assert Plan.from_json(plan.to_json()) == plan
    assert f"{len(families)} step(s) have as many rows as nonzero says, {BOUND} at most" in str(
        plan
    )


def crossed():
    """What lies along another axis than the outermost is read as a whole: features by rows."""
    more = [
        node("ReduceMean", "y", "means", axes=[2, 3], keepdims=0),
        node("Transpose", "means", "columns", perm=[1, 0]),
        node("MatMul", "wm columns", "z"),
    ]
    return head(more, [tensor("z", [5, "n"])], [weights("wm", (5, 7))])


def test_steps_that_mix_axes_read_zeros(monkeypatch):
    model = run_once(saccade.compile(crossed(), threads=2))
    plan = model.plan(**SHAPES)
    product = next(step for step in plan.steps if step.op.family == "MatMul")
    assert product.rows is None
    filled = []

    def noted(slot, first, memory, fill=fewer_rows._fill):
        fill(slot, first, memory)
        rows = fewer_rows.array_at(slot, memory)
        filled.append((len(rows), first, bool(rows[:first].any()), bool(rows[first:].any())))

    monkeypatch.setattr(fewer_rows, "_fill", noted)
    for count in (9, 0, 3, BOUND):
        given = feeds(count, 1)
        assert right(model.run(given), given, crossed)
    assert filled == [(BOUND, 10, True, False), (BOUND, 0, False, False), (BOUND, 3, True, False)]


def test_a_step_without_such_a_variant_computes_all_rows(monkeypatch, whole):
    """Others go on with fewer: what it reads of theirs is filled with zeros."""
    alike = fewer_rows.alike

    def none_for_transposed(kernel, call, *rest):
        transposed = call.op.family == "ConvTranspose2d"
        return None if transposed else alike(kernel, call, *rest)

    monkeypatch.setattr(fewer_rows, "alike", none_for_transposed)
    model = run_once(saccade.compile(head(), threads=2))
    for count in (3, 0, 23):
        given = feeds(count)
        results = model.run(given)
        assert right(results, given) and same_bits(results, whole(model, given))
    arguments = program_of(model)._fewer_rows.arguments(0, 3)
    assert arguments.blocks and len(arguments.zeros) == 1


def test_other_code_or_rounding_is_refused():
    model = run_once(saccade.compile(head(), threads=2))
    program = program_of(model)
    rows = fewer_rows.FewerRows(program.plan, program.tables)
    (group,) = all_counted_steps(program.plan)
    step = next(s for s in map(program.plan.steps.__getitem__, group.steps) if s.name == "r1")
    assert rows._phases(step, 3)
    (variant,) = (v for call, v in rows._variants.items() if call.outputs[0].shape[0] == BOUND)
    (less,) = (call for call in rows._variants if call.outputs[0].shape[0] == 3)
    found = rows._variants[less]
    assert tuple(found.needs) == tuple(variant.needs) and found.rounding == variant.rounding
    kernel = kernel_named(step.kernel)
    for other in (
        variant._replace(rounding="another"),
        variant._replace(configs=lambda: ("another",)),
    ):
        assert fewer_rows.alike(kernel, less, 3 / BOUND, other) is None


def test_callers_at_the_same_time():
    model = saccade.compile(head(), threads=2)
    given = [feeds(count, seed) for seed in range(3) for count in COUNTS]
    with ThreadPoolExecutor(4) as pool:
        for results, one in zip(pool.map(model.run, given), given, strict=True):
            assert right(results, one)


def test_profiles_of_fewer_rows():
    model = run_once(saccade.compile(head(), threads=2))
    micros = []
    for count in (0, 3, BOUND):
        profile = model.profile(**feeds(count), repeat=3)
        heavy = [step for step in profile.steps if step.kernel.startswith("conv2d.")]
        micros.append(sum(step.microseconds for step in heavy))
        assert len(heavy) == 2 and profile.total < 1e6
    assert micros[0] < 1 < min(micros[1:])


def test_a_warm_start(cache, tmp_path, whole):
    path = tmp_path / "head.onnx"
    path.write_bytes(head().SerializeToString())
    run_once(saccade.compile(path, threads=2))
    model = run_once(saccade.compile(path, threads=2))
    for count in (3, 3, 0, 23):
        given = feeds(count)
        results = model.run(given)
        assert right(results, given) and same_bits(results, whole(model, given))
    assert model._engine is None and program_of(model)._fewer_rows._known


@pytest.mark.parametrize("machines", [(), ("desktop-avx2",)], ids=str)
def test_a_bundle(tmp_path, machines, whole):
    path = tmp_path / "head.saccade"
    saccade.compile(head(), threads=2).save(path, {}, machines=machines)
    model = run_once(saccade.compile(path))
    for count in (3, 0, 23, BOUND):
        given = feeds(count)
        results = model.run(given)
        assert right(results, given) and same_bits(results, whole(model, given))
    made = program_of(model)._fewer_rows._known
    assert {rows for _, rows in made} == {0, 3, 24} and None not in made.values()


@pytest.mark.parametrize("number", range(300))
def test_numbers_that_arguments_are_made_for(number):
    found = rounded(number)
    assert number <= found <= 1.25 * number and rounded(found) == found
    if number <= 8:
        assert found == number


def test_they_are_few():
    assert len({rounded(number) for number in range(1025)}) <= 9 + 4 * 7
