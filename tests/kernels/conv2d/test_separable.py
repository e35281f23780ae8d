"""A depthwise and a 1x1 convolution in one pass, bit by bit against the reference on integers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Scratch, Variant
from saccade.kernels.cpu.conv2d.depthwise import CONV2D_DEPTHWISE
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.separable import CONV2D_SEPARABLE
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
RELU = parse("relu(add($0, $1))")
QUICK = (("avx512", False, 2, (1, 0)), ("avx2", False, 3, (1, 2, 0)))
CHECKED = (("avx512", True, 2, (1, 0)), ("avx2", True, 1, None))
CASES = [
    # n, channels, filters, h, w, taps, stride, padding, dilation
    (1, 17, 33, 9, 13, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (2, 48, 24, 7, 7, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    (2, 3, 1, 11, 9, (3, 3), (2, 2), (1, 0, 2, 3), (1, 1)),
    (1, 1, 17, 8, 30, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1)),
    (1, 20, 40, 15, 14, (3, 3), (1, 1), (4, 4, 4, 4), (4, 4)),
    (1, 58, 58, 6, 11, (3, 5), (1, 2), (5, 1, 0, 6), (2, 1)),
    (1, 960, 16, 5, 4, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 16, 100, 1, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (3, 5, 7, 3, 40, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (0, 8, 16, 5, 5, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
]


def setup(case, *, make=exact_operands, kinds=(F32, F32), **pointwise):
    """The operator, its image in `kinds[0]`, what lies between in `kinds[1]`, and constants."""
    n, channels, filters, h, w, taps, stride, padding, dilation = case
    pointwise.setdefault("epilogue", RELU)
    rng = np.random.default_rng(1)
    first = Conv2d(stride, padding, dilation, channels, epilogue=RELU)
    op = SeparableConv2d(first, Conv2d(**pointwise), 1, kinds[1])
    shapes = [(n, channels, h, w), (channels, 1, *taps), (filters, channels, 1, 1)]
    shapes += [(1, channels, 1, 1), (1, filters, 1, 1)]
    held = [kinds[0], *[F32] * 4]
    return op, [make(s, kind, rng) for s, kind in zip(shapes, held, strict=True)]


def sums_of(op, arrays):
    """Shape of the 1x1 convolution's sums."""
    between = op.depthwise.sum_shape(arrays[0].shape, arrays[1].shape)
    return op.pointwise.sum_shape(between, arrays[2].shape)


def views_of(op, arrays, result=F32, extra=(3, 2)):
    """Channels-last images with gaps between their pixels, constants as they are."""
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    x, *rest = arrays
    views = [nhwc_view(DType.of(x.dtype), x.shape, x.shape[1] + extra[0])]
    views += [row_major(DType.of(a.dtype), a.shape) for a in rest[:4]]
    views += [nhwc_view(DType.of(a.dtype), a.shape) for a in rest[4:]]
    return views, [nhwc_view(result, kind.shape, kind.shape[1] + extra[1])]


def check(hold, op, arrays, kernel=CONV2D_SEPARABLE, result=F32, outputs=None, **more):
    inputs, plain = views_of(op, arrays, result)
    constant = [False, True, True, True, True] + [False] * (len(arrays) - 5)
    more.setdefault("exact", True)
    return hold(
        kernel, op, arrays, inputs=inputs, outputs=outputs or plain, constant=constant, **more
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_window_and_size(hold, case):
    more = {} if case in CASES[:2] else {"runs": QUICK}
    check(hold, *setup(case), **more)


def changed(**words):
    """The kernel with other integers than it would choose."""

    def variants(call):
        (launch,) = CONV2D_SEPARABLE.launch(call)
        found = {name: value(launch.integers[name]) for name, value in words.items()}
        other = dataclasses.replace(launch, integers={**launch.integers, **found})
        return (Variant(1.0, lambda: (other,)),)

    return dataclasses.replace(CONV2D_SEPARABLE, variants=variants)


def sharing(part):
    """The kernel with the share of the pixels that is `part` on the way from least to most."""

    def variants(call):
        shares = {v.launches[0].integers["share"]: v for v in CONV2D_SEPARABLE.variants(call)}
        ranked = sorted(shares)
        return (shares[ranked[int(part * (len(ranked) - 1))]],)

    return dataclasses.replace(CONV2D_SEPARABLE, variants=variants)


def test_chunks_may_end_within_a_row_and_reach_into_the_next_image(hold):
    found = CONV2D_SEPARABLE.variants(call(case=CASES[1]))
    shares = {variant.launches[0].integers["share"] for variant in found}
    assert {share % 7 == 0 for share in shares} == {True, False}
    assert any(49 % share for share in shares)
    results = []
    for part in (0, 0.5, 0.8):
        runs = (("avx512", False, 2, (1, 0)), ("avx512", True, 2, None))
        results += check(hold, *setup(CASES[1]), kernel=sharing(part), runs=runs)
    assert len({r.tobytes() for r in results}) == 1


@pytest.mark.parametrize("between", [F32, BF16])
def test_any_mix_of_float32_and_bfloat16(hold, between, mixed):
    """Image, what lies between, residual and result; sums of nine small products fit bfloat16."""
    op, arrays = setup(
        CASES[0], kinds=(mixed[0], between), epilogue=parse("relu(add(add($0, $1), $2))")
    )
    rng = np.random.default_rng(2)
    residual = exact_operands(sums_of(op, arrays), mixed[1], rng)
    runs = (*QUICK, CHECKED[0]) if mixed == (BF16, BF16) else QUICK
    check(hold, op, [*arrays, residual], result=mixed[1], runs=runs)


@pytest.mark.parametrize("channels", [1, 2, 16, 18, 35])
def test_pairs_of_channels_and_what_is_left_of_them(hold, channels):
    case = (1, channels, 5, 4, 6, *CASES[0][5:])
    check(hold, *setup(case, kinds=(BF16, BF16)), runs=(QUICK[0], CHECKED[0]))


def test_random_operands_a_residual_and_a_clip(hold):
    second = parse("clip(add(add($0, $1), $2), -0.5, 6)")
    op, arrays = setup(CASES[0], make=random_operands, epilogue=second)
    residual = random_operands(sums_of(op, arrays), F32, np.random.default_rng(2))
    check(hold, op, [*arrays, residual], exact=False, k=9 + 17, runs=QUICK)


def test_the_first_epilogue_may_vary_from_pixel_to_pixel(hold):
    op, arrays = setup(CASES[2])
    first = dataclasses.replace(op.depthwise, epilogue=parse("relu(add($0, $1))"))
    op = dataclasses.replace(op, depthwise=first)
    between = first.sum_shape(arrays[0].shape, arrays[1].shape)
    arrays[3] = exact_operands(between, F32, np.random.default_rng(4))
    inputs, outputs = views_of(op, arrays)
    inputs[3] = nhwc_view(F32, between, between[1] + 1)
    constant = [False, True, True, False, True]
    hold(
        CONV2D_SEPARABLE, op, arrays, inputs=inputs, outputs=outputs, constant=constant,
        exact=True, runs=(*QUICK, CHECKED[0]),
    )  # fmt: skip


@pytest.mark.parametrize("position", [0, 1])
def test_interleaved_with_another_part(hold, position):
    op, arrays = setup(CASES[0], store=InterleaveStore(2, position))
    part = exact_operands(sums_of(op, arrays), F32, np.random.default_rng(3))
    check(hold, op, [*arrays, part], runs=(*QUICK, CHECKED[position]))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("stored", [nhwc_view, row_major])
def test_channels_stored_as_pixels(hold, mode, stored):
    case = (2, 17, 20, 5, 6, *CASES[0][5:])
    op, arrays = setup(case, store=DepthToSpaceStore(2, mode))
    outputs = [stored(F32, (2, 5, 10, 12))]
    check(hold, op, arrays, outputs=outputs, runs=(*QUICK, CHECKED[0]))


def test_a_row_major_result(hold):
    op, arrays = setup(CASES[0])
    check(hold, op, arrays, outputs=[row_major(F32, sums_of(op, arrays))], runs=QUICK)


@pytest.mark.parametrize(("isa", "between"), [("avx512", F32), ("avx512", BF16), ("avx2", F32)])
def test_the_same_bits_as_in_two_steps(isa, between):
    if between is BF16 and not runnable_target(isa).bf16:
        pytest.skip("this machine has no products of pairs: what lies between is not rounded")
    op, arrays = setup(CASES[0], make=random_operands, kinds=(between, between))
    x, u, w, first_bias, second_bias = arrays
    (middle,) = op.depthwise.infer([TensorType(F32, a.shape) for a in (x, u, first_bias)])
    inputs, outputs = views_of(op, arrays)

    def run(kernel, op, arrays, inputs, outputs):
        constant = [False, *[True] * (len(arrays) - 1)]
        return run_kernel(
            kernel, op, arrays, outputs, inputs=inputs, constant=constant, isa=isa, threads=2
        )

    held = nhwc_view(between, middle.shape)
    images = [inputs[0], inputs[1], inputs[3]]
    (z,) = run(CONV2D_DEPTHWISE, op.depthwise, [x, u, first_bias], images, [held])
    constants = [inputs[2], inputs[4]]
    (y,) = run(CONV2D_DIRECT, op.pointwise, [z, w, second_bias], [held, *constants], outputs)
    (both,) = run(CONV2D_SEPARABLE, op, arrays, inputs, outputs)
    assert both.tobytes() == y.tobytes()


def call(change=None, case=CASES[0], threads=2):
    op, arrays = setup(case)
    inputs, outputs = views_of(op, arrays)
    known = (False, True, True, True, True)
    made = Call(op, tuple(inputs), tuple(outputs), known, ZEN4, threads)
    return made if change is None else dataclasses.replace(made, **change(made))


def with_first(**words):
    def change(c):
        return {
            "op": dataclasses.replace(c.op, depthwise=dataclasses.replace(c.op.depthwise, **words))
        }

    return change


X = (1, 17, 9, 13)
REFUSED = {
    "constant": lambda c: {"constant": (False, True, False, True, True)},
    "channels-last": lambda c: {"inputs": (row_major(F32, X), *c.inputs[1:])},
    "neither": lambda c: {"inputs": (nhwc_view(DType.F64, X), *c.inputs[1:])},
    "one filter": lambda c: {
        "inputs": (c.inputs[0], row_major(F32, (34, 1, 3, 3)), row_major(F32, (33, 34, 1, 1)),
                   row_major(F32, (1, 34, 1, 1)), c.inputs[4]),
    },
    "prologue": with_first(prologue=parse("relu($0)")),
    "store map": with_first(store=DepthToSpaceStore(2)),
    "leave the image": with_first(padding=(1, 70, 1, 70)),
    "3 parts": lambda c: {
        "op": dataclasses.replace(c.op, pointwise=Conv2d(store=InterleaveStore(3, 0))),
        "inputs": (*c.inputs, *[nhwc_view(F32, (1, 33, 9, 13))] * 2),
        "constant": (*c.constant, False, False),
    },
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_refuses(reason):
    assert reason in CONV2D_SEPARABLE.supports(call(REFUSED[reason]))


def test_takes_what_it_does_not_refuse():
    assert CONV2D_SEPARABLE.supports(call()) is None


def test_a_residual_may_give_its_memory_to_the_result():
    second = parse("add(add($0, $1), $2)")
    op, arrays = setup(CASES[0], epilogue=second)
    arrays.append(np.zeros(sums_of(op, arrays), np.float32))
    inputs, _ = views_of(op, arrays)
    known = (False, *[True] * 4, False)
    made = Call(op, tuple(inputs), (inputs[5],), known, ZEN4, 2)
    assert CONV2D_SEPARABLE.aliases(made) == ((5, 0),)
    other = dataclasses.replace(made, outputs=(nhwc_view(F32, arrays[5].shape, 40),))
    assert CONV2D_SEPARABLE.aliases(other) == ()


def test_variants_are_shares_and_tiles_and_their_planes_stay_in_the_cache():
    large = call(case=(1, 64, 32, 56, 56, *CASES[0][5:]))
    found = list(CONV2D_SEPARABLE.variants(large))
    assert [v.micros for v in found] == sorted(v.micros for v in found)
    assert len({repr(v.launches) for v in found}) == len(found) > 12
    for variant in found:
        (scratch,) = (o for o in variant.launches[0].operands.values() if isinstance(o, Scratch))
        assert scratch.nbytes < large.target.l2 // 2


def test_the_estimate_counts_pixels_channels_and_filters():
    small = CONV2D_SEPARABLE.cost(call(case=(1, 64, 64, 32, 32, *CASES[0][5:])))
    for n, channels, filters, h, w in (
        (2, 64, 64, 32, 32), (1, 128, 64, 32, 32), (1, 64, 128, 32, 32), (1, 64, 64, 64, 32),
    ):  # fmt: skip
        large = CONV2D_SEPARABLE.cost(call(case=(n, channels, filters, h, w, *CASES[0][5:])))
        assert large > 1.3 * small


WIDE = (1, 35, 100, 9, 29, *CASES[0][5:])
MUTANTS = {
    "rows": -1, "columns": -1, "height": 1, "x_h": 1, "x_w": -1, "top": -1, "left": 1, "taps": -1,
    "dilation": 1, "repeats": 1, "depth": -1, "vectors": -1, "plane": -1600, "blocks": -1,
    "share": 80,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name):
    mutant = changed(**{name: lambda n: n + MUTANTS[name]})
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, *setup(WIDE), kernel=mutant, runs=(("avx512", True, 2, None),))


def test_without_a_mistake_there_is_nothing_to_catch(hold):
    check(hold, *setup(WIDE), kernel=changed(), runs=(("avx512", True, 2, None),))
