"""Direct convolutions summed in parts: exact, the same for every team, chosen where it pays."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.conv2d import RESNET, WINDOWS, ConvShape
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT, window_of
from saccade.kernels.cpu.conv2d.direct_split import Split
from saccade.kernels.cpu.conv2d.epilogue_spec import conv_epilogue
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(11)
F32, BF16 = DType.F32, DType.BF16
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 7, None))
LAST = nhwc_view
DEEP = ConvShape("deep", (2, 70, 4, 3), (40, 70, 3, 3), Conv2d(padding=(1, 1, 1, 1)))


def split(channels, rows=1):
    """The kernel with its sums in parts."""

    def launch(call):
        spec = conv_epilogue(call)
        return Split(channels, rows).launches(call, spec, window_of(call, spec))

    return launched_as(CONV2D_DIRECT, launch)


def cuts(case):
    """Every number of parts of the rows of taps, with one that divides the channels."""
    most = max(n for n in range(1, 9) if case.w[1] % n == 0)
    both = {(most, 1), (1, case.w[2]), (most, min(2, case.w[2]))}
    return sorted(cut for cut in both if cut != (1, 1)) or [(1, 1)]


def run(hold, kernel, op, arrays, *, y=LAST, more=(), **kwargs):
    """Operands without a view are constants."""
    shape = op.reference(*(a.astype(np.float32) for a in arrays))[0].shape
    kind = DType.of(arrays[0].dtype)
    views = [LAST(kind, arrays[0].shape)]
    views += [row_major(DType.of(a.dtype), a.shape) for a in arrays[1 : len(arrays) - len(more)]]
    known = (False, *(True for _ in views[1:]), *(False for _ in more))
    return hold(
        kernel, op, arrays, inputs=[*views, *more], outputs=[y(kind, shape)], constant=known,
        **kwargs,
    )  # fmt: skip


EACH = [(case, cut) for case in (*WINDOWS, DEEP) for cut in cuts(case)]


@pytest.mark.parametrize(("case", "cut"), EACH, ids=[f"{c.name}-{a}x{b}" for c, (a, b) in EACH])
def test_integers_are_exact(hold, case, cut):
    arrays = [exact_operands(case.x, F32, RNG), exact_operands(case.w, F32, RNG)]
    run(hold, split(*cut), case.op, arrays, exact=True, runs=FEW)


@pytest.mark.parametrize("name", ["same", "grouped", "pointwise", "dilated", "no-images"])
def test_bfloat16_is_summed_in_float32(hold, name):
    case = next(case for case in WINDOWS if case.name == name)
    arrays = [exact_operands(case.x, BF16, RNG), exact_operands(case.w, BF16, RNG)]
    for cut in cuts(case):
        run(hold, split(*cut), case.op, arrays, exact=True, runs=FEW)


@pytest.mark.parametrize("kind", [F32, BF16])
def test_teams_of_any_width_give_the_same_bits(hold, kind):
    arrays = [random_operands(DEEP.x, kind, RNG), random_operands(DEEP.w, kind, RNG)]
    run(hold, split(5, 3), DEEP.op, arrays, k=DEEP.depth, runs=[
        (isa, False, threads, None) for isa in ("avx512", "avx2") for threads in (1, 2, 5)
    ])  # fmt: skip


def test_channel_operands_and_a_residual(hold):
    op = dataclasses.replace(DEEP.op, epilogue=parse("relu(add(mul($0, $1), $2))"))
    shapes = (DEEP.x, DEEP.w, (40, 1, 1), (2, 40, 4, 3))
    arrays = [exact_operands(shape, F32, RNG) for shape in shapes]
    for y in (LAST, row_major):
        more = (LAST(F32, shapes[3]),)
        run(hold, split(7), op, arrays, y=y, more=more, exact=True, runs=FEW)


def pitched(kind, shape):
    """A slice of a concatenation's storage."""
    return LAST(kind, shape, shape[1] + 3)


@pytest.mark.parametrize("y", [LAST, pitched, row_major])
@pytest.mark.parametrize("channels", [12, 64])
def test_depth_to_space(hold, channels, y):
    op = Conv2d(epilogue=parse("add($0, $1)"), store=DepthToSpaceStore(2, "DCR"))
    shapes = ((1, 48, 3, 2), (channels, 48, 1, 1), (1, channels, 1, 1))
    arrays = [exact_operands(shape, F32, RNG) for shape in shapes]
    run(hold, split(4), op, arrays, y=y, exact=True, runs=FEW)


def test_interleaving(hold):
    op = Conv2d(store=InterleaveStore(2, 1))
    shapes = ((1, 48, 3, 2), (21, 48, 1, 1), (1, 21, 3, 2))
    arrays = [exact_operands(shape, F32, RNG) for shape in shapes]
    run(hold, split(3), op, arrays, more=(LAST(F32, shapes[2]),), exact=True, runs=FEW)


def bound(case, threads=2, op=None):
    shape = tuple(int(str(n)) for n in case.op.sum_shape(case.x, case.w))
    views, out = (LAST(F32, case.x), row_major(F32, case.w)), (LAST(F32, shape),)
    return Call(op or case.op, views, out, (False, True), ZEN4, threads)


def in_parts(call):
    """Which of the variants have two phases."""
    return [len(variant.launches) == 2 for variant in CONV2D_DIRECT.variants(call)]


FORCED = ConvShape("one-tile", (1, 4096, 7, 1), (16, 4096, 3, 1), Conv2d(padding=(1, 0, 1, 0)))


def test_parts_are_taken_where_tiles_are_fewer_than_threads():
    assert in_parts(bound(FORCED))[0]
    assert not any(any(in_parts(bound(case))) for case in RESNET)


def test_where_the_reduction_is_cut_does_not_depend_on_the_team():
    for case, channels in itertools.product((FORCED, DEEP), (1, 64)):
        wide = ConvShape("", case.x, (16 * channels, *case.w[1:]), case.op)
        first = {in_parts(bound(wide, threads))[0] for threads in (1, 2, 7, 64)}
        assert len(first) == 1
        parts = {
            v.launches[1].integers["parts"]
            for threads in (1, 2, 7, 64)
            for v in itertools.islice(CONV2D_DIRECT.variants(bound(wide, threads)), 1)
            if len(v.launches) == 2
        }
        assert len(parts) < 2


def test_a_prologue_is_not_split():
    case = ConvShape("", (1, 4096, 7, 1), (16, 4096, 1, 1))
    assert any(in_parts(bound(case)))
    assert not any(in_parts(bound(case, op=Conv2d(prologue=parse("relu($0)")))))


MUTANTS = {
    "a-row-of-taps-too-few": (0, "taps_r"),
    "parts-of-other-rows": (0, "row_parts"),
    "a-part-too-few": (1, "parts"),
    "a-vector-too-few": (1, "vectors"),
    "a-pixel-too-few": (1, "pixels"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_mistakes_are_seen(mutant):
    """The comparison of these tests fails when a part is missing."""
    arrays = [exact_operands(DEEP.x, F32, RNG), exact_operands(DEEP.w, F32, RNG)]
    truth = DEEP.op.reference(*arrays)[0]
    right, (phase, name) = split(5, 3), MUTANTS[mutant]

    def launch(call):
        phases = list(right.launch(call))
        phases[phase] = mistaken(phases[phase], name, -1)
        return tuple(phases)

    views = [LAST(F32, DEEP.x), row_major(F32, DEEP.w)]
    (result,) = run_kernel(
        launched_as(CONV2D_DIRECT, launch), DEEP.op, arrays, [LAST(F32, truth.shape)],
        inputs=views, constant=(False, True),
    )  # fmt: skip
    with pytest.raises(AssertionError):
        assert_exact(result, truth)
