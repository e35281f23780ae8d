"""The direct convolution: every case, layout, epilogue and store against the reference."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.conv2d import WINDOWS, ConvShape
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(4)
F32 = DType.F32
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))
PLAIN = (("avx512", False, 2, None), ("avx2", False, 1, None))
BIAS_RELU = parse("relu(add($0, $1))")


def last(shape, pitch=None):
    return nhwc_view(F32, shape, pitch)


def operands(case, make):
    return [make(case.x, F32, RNG), make(case.w, F32, RNG)]


def run(hold, op, arrays, *, x=None, y=None, more=(), constant=None, **kwargs):
    """Channels-last unless views are given; weights and operands without a view are constants."""
    shape = op.reference(*arrays)[0].shape
    views = [x or last(arrays[0].shape), row_major(F32, arrays[1].shape), *more]
    views += [row_major(F32, a.shape) for a in arrays[len(views) :]]
    known = constant or (False, *(True for _ in arrays[1:]))
    return hold(
        CONV2D_DIRECT,
        op,
        arrays,
        inputs=views,
        outputs=[y or last(shape)],
        constant=known,
        **kwargs,
    )


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
def test_integers_are_exact(hold, case):
    run(hold, case.op, operands(case, exact_operands), exact=True)


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
def test_random_operands_with_bias_and_relu(hold, case):
    arrays = [*operands(case, random_operands), random_operands((1, case.w[0], 1, 1), F32, RNG)]
    run(hold, dataclasses.replace(case.op, epilogue=BIAS_RELU), arrays, k=case.depth, runs=PLAIN)


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
def test_row_major_images(hold, case):
    arrays = operands(case, exact_operands)
    shape = case.op.reference(*arrays)[0].shape
    run(hold, case.op, arrays, x=row_major(F32, case.x), exact=True, runs=FEW)
    run(hold, case.op, arrays, y=row_major(F32, shape), exact=True, runs=FEW)


def test_views_of_larger_buffers(hold):
    case = WINDOWS[0]
    arrays = operands(case, exact_operands)
    shape = case.op.reference(*arrays)[0].shape
    run(hold, case.op, arrays, x=last(case.x, 21), y=last(shape, 50), exact=True)


EPILOGUES = {
    "channel": ("add($0, $1)", (1, 20, 1, 1)),
    "channel-short": ("mul($0, $1)", (20, 1, 1)),
    "scalar": ("add($0, $1)", ()),
    "image-channel": ("mul($0, $1)", (2, 20, 1, 1)),
    "residual": ("relu(add($0, $1))", (2, 20, 6, 5)),
    "one-image": ("add($0, $1)", (1, 20, 6, 5)),
    "map": ("mul($0, $1)", (2, 1, 6, 5)),
    "row": ("add($0, $1)", (1, 1, 1, 5)),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue_operands(hold, name):
    text, shape = EPILOGUES[name]
    op = Conv2d(padding=(1, 1, 1, 1), epilogue=parse(text))
    arrays = [exact_operands(s, F32, RNG) for s in ((2, 7, 6, 5), (20, 7, 3, 3), shape)]
    run(hold, op, arrays, exact=True, runs=FEW)
    if len(shape) == 4:
        run(hold, op, arrays, more=(last(shape),), constant=(0, 1, 0), exact=True, runs=FEW)
        out = row_major(F32, (2, 20, 6, 5))
        run(hold, op, arrays, y=out, more=(last(shape),), exact=True, runs=FEW)


def test_several_operands(hold):
    op = Conv2d(epilogue=parse("mul($3, max(add(mul($0, $1), $2), -2.0))"))
    shapes = ((2, 9, 5, 5), (37, 9, 1, 1), (37, 1, 1), (1, 37, 1, 1), (2, 37, 5, 5))
    arrays = [exact_operands(s, F32, RNG) for s in shapes]
    run(hold, op, arrays, exact=True, runs=FEW)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(("block", "channels"), [(2, 12), (2, 128), (3, 45), (4, 48)])
@pytest.mark.parametrize("storage", [last, lambda s: row_major(F32, s)], ids=["last", "rows"])
def test_depth_to_space(hold, mode, block, channels, storage):
    op = Conv2d(
        padding=(1, 1, 1, 1), epilogue=parse("mul(add($0, $1), $2)"),
        store=DepthToSpaceStore(block, mode),
    )  # fmt: skip
    shapes = ((2, 5, 4, 5), (channels, 5, 3, 3), (1, channels, 1, 1), ())
    arrays = [exact_operands(s, F32, RNG) for s in shapes]
    out = op.reference(*arrays)[0].shape
    run(hold, op, arrays, y=storage(out), exact=True, runs=FEW)


def test_tiles_may_reach_beyond_the_last_sub_pixel(hold):
    """Nine vectors in tiles of two: the tenth has no elements in a packed operand either."""
    op = Conv2d(epilogue=parse("add($0, $1)"), store=DepthToSpaceStore(3, "CRD"))
    arrays = [exact_operands(s, F32, RNG) for s in ((1, 5, 4, 5), (45, 5, 1, 1), (1, 45, 1, 1))]

    def uneven(call):
        found = (variant.launches for variant in CONV2D_DIRECT.variants(call))
        return next(some for some in found if 9 % some[0].config.vectors)

    kernel = launched_as(CONV2D_DIRECT, uneven)
    views = [last(arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:])]
    runs = [(isa, True, 1, None) for isa in ("avx512", "avx2")]
    hold(
        kernel, op, arrays, inputs=views, outputs=[last((1, 5, 12, 15))],
        constant=(False, True, True), exact=True, runs=runs,
    )  # fmt: skip


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("channels", [5, 16, 58])
def test_interleaving(hold, position, channels):
    op = Conv2d(epilogue=BIAS_RELU, store=InterleaveStore(2, position))
    shapes = ((2, 6, 5, 4), (channels, 6, 1, 1), (1, channels, 1, 1), (2, channels, 5, 4))
    arrays = [exact_operands(s, F32, RNG) for s in shapes]
    views = (row_major(F32, shapes[2]), last(shapes[3], channels + 3))
    run(hold, op, arrays, more=views, constant=(0, 1, 1, 0), exact=True, runs=FEW)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("storage", [last, lambda s: row_major(F32, s)], ids=["last", "rows"])
def test_prologue(hold, images, storage):
    op = Conv2d(
        stride=(1, 2), prologue=parse("relu(add(mul($0, $1), $2))"), n_prologue=2,
        epilogue=parse("add($0, $1)"),
    )  # fmt: skip
    shapes = ((2, 37, 9, 7), (70, 37, 1, 1), (images, 37, 1, 1), (1, 37, 1, 1), (1, 70, 1, 1))
    arrays = [exact_operands(s, F32, RNG) for s in shapes]
    run(hold, op, arrays, x=storage(shapes[0]), exact=True)


def call(op, *, w=(16, 8, 1, 1), more=(), constant=(False, True), dtype=F32, y=None):
    views = [last((1, 8, 6, 6)), row_major(dtype, w), *more]
    out = y or last((1, 16, 6, 6))
    known = (*constant, *(False for _ in more))
    return Call(op, tuple(views), (out,), known, ZEN4)


REFUSED = [
    (call(Conv2d(), constant=(False, False)), "weights are not constant"),
    (call(Conv2d(), dtype=DType.F16), "elements are float16"),
    (call(Conv2d(padding=(1, 1, 1, 1), prologue=parse("relu($0)"))), "no padding"),
    (
        call(
            Conv2d(store=DepthToSpaceStore(2), epilogue=parse("add($0, $1)")),
            more=(last((1, 16, 6, 6)),),
            y=last((1, 4, 12, 12)),
        ),
        "DepthToSpace store is full",
    ),
    (
        call(Conv2d(groups=2, store=DepthToSpaceStore(2)), w=(16, 4, 1, 1), y=last((1, 4, 12, 12))),
        "grouped",
    ),
    (
        call(
            Conv2d(store=InterleaveStore(3, 1)),
            more=(last((1, 16, 6, 6)),) * 2,
            y=last((1, 48, 6, 6)),
        ),
        "only 2",
    ),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_refusals(refused, reason):
    assert reason in CONV2D_DIRECT.supports(refused)


def test_in_place_residual_is_offered():
    op = Conv2d(epilogue=parse("add($0, $1)"))
    offered = CONV2D_DIRECT.aliases(call(op, more=(last((1, 16, 6, 6)),)))
    assert offered == ((2, 0),)
    assert CONV2D_DIRECT.aliases(call(op, more=(last((1, 16, 6, 6), 20),))) == ()


MUTANTS = {
    "padding": lambda op: dataclasses.replace(op, padding=(1, 0, 1, 2)),
    "swapped-stride": lambda op: dataclasses.replace(
        op, stride=op.stride[::-1], padding=(1, 1, 0, 2)
    ),
    "dilation": lambda op: dataclasses.replace(op, dilation=(2, 1), padding=(2, 1, 2, 1)),
    "dropped-bias": lambda op: dataclasses.replace(op, epilogue=parse("relu($0)")),
    "dropped-relu": lambda op: dataclasses.replace(op, epilogue=parse("add($0, $1)")),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_mistakes_are_seen(mutant):
    """The comparison of these tests fails when the kernel computes something slightly else."""
    op = Conv2d(padding=(1, 1, 1, 1), epilogue=BIAS_RELU)
    if mutant == "swapped-stride":
        op = dataclasses.replace(op, stride=(1, 2), padding=(1, 1, 0, 2))
    arrays = [exact_operands(s, F32, RNG) for s in ((1, 5, 8, 8), (9, 5, 3, 3), (1, 9, 1, 1))]
    truth = op.reference(*arrays)[0]
    wrong = MUTANTS[mutant](op)
    shape = wrong.reference(*arrays)[0].shape
    views = [last(arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:])]
    (result,) = run_kernel(
        CONV2D_DIRECT, wrong, arrays, [last(shape)], inputs=views, constant=(False, True, True)
    )
    with pytest.raises(AssertionError):
        assert_exact(result, truth)


def test_one_code_serves_many_layers():
    """Channel counts, sizes and strides are run-time arguments."""
    configs = set()
    for c, k, size in ((512, 128, 28), (512, 1024, 14), (256, 1024, 14), (512, 2048, 7)):
        case = ConvShape("", (1, c, size, size), (k, c, 1, 1))
        views = (last(case.x), row_major(F32, case.w))
        out = last((1, k, size, size))
        bound = Call(case.op, views, (out,), (False, True), ZEN4, threads=2)
        configs.add(CONV2D_DIRECT.launch(bound)[0].config)
    assert len(configs) == 1


@pytest.mark.parametrize(
    ("batch", "channels", "far"), [(1, 64, 0), (8, 64, 1), (8, 4, 0)], ids=["near", "far", "few"]
)
def test_lines_are_asked_for_early_where_images_are_far_and_products_enough(batch, channels, far):
    views = (last((batch, channels, 56, 56)), row_major(F32, (64, channels, 1, 1)))
    out = (last((batch, 64, 56, 56)),)
    target = dataclasses.replace(ZEN4, l2=1 << 20)
    bound = Call(Conv2d(), views, out, (False, True), target, threads=2)
    (launch,) = CONV2D_DIRECT.launch(bound)
    assert launch.integers["far"] == far
    builder = KernelBuilder("k", target)
    CONV2D_DIRECT.emit(builder, launch.config)
    asked = [
        line for line in str(builder.finish()).splitlines() if "call" in line and "prefetch" in line
    ]
    assert any("i32 1, i32 3, i32 1)" in line for line in asked)  # lines that will be written


def test_a_prologue_is_applied_once_where_chunks_can_hold_all_channels():
    op = Conv2d(prologue=parse("mul($0, $1)"), n_prologue=1)
    shapes = ((1, 960, 33, 33), (160, 960, 1, 1), (1, 960, 1, 1))
    views = (last(shapes[0]), row_major(F32, shapes[1]), last(shapes[2]))
    out = (last((1, 160, 33, 33)),)
    bound = Call(op, views, out, (False, True, False), ZEN4, threads=2)
    (launch,) = CONV2D_DIRECT.launch(bound)
    assert launch.integers["blocks_chunk"] == launch.integers["blocks"] > 1


@pytest.mark.parametrize(("side", "ahead"), [(7, 1), (56, 0)])
def test_few_tiles_ask_for_the_weights_behind(side, ahead):
    x, w, y = (
        last((1, 256, side, side)),
        row_major(F32, (512, 256, 1, 1)),
        last((1, 512, side, side)),
    )
    call = Call(Conv2d(), (x, w), (y,), (False, True), ZEN4, 2)
    (launch,) = CONV2D_DIRECT.launch(call)
    assert launch.integers["ahead"] == ahead


@pytest.mark.parametrize("taps", [1, 3])
def test_tiles_ask_for_weights_whatever_their_taps(taps):
    """Beside what flat ones ask for of each pixel: the lines of a trip's share."""
    x, w = last((1, 64, 7, 7)), row_major(F32, (64, 64, taps, taps))
    op = Conv2d(padding=(taps // 2,) * 4)
    (launch,) = CONV2D_DIRECT.launch(
        Call(op, (x, w), (last((1, 64, 7, 7)),), (False, True), ZEN4, 2)
    )
    builder = KernelBuilder("k", ZEN4)
    CONV2D_DIRECT.emit(builder, launch.config)
    asked = [line for line in str(builder.finish()).splitlines() if "i32 0, i32 2, i32 1)" in line]
    assert len(asked) > (launch.config.rows if launch.config.flat else 0)
