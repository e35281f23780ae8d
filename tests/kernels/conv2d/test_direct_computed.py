"""Convolutions whose weights a run computes: packed in the program, with the bits of constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Packed, Temp, View
from saccade.kernels.cpu.conv2d.depthwise_computed import CONV2D_DEPTHWISE_COMPUTED
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.direct_computed import CONV2D_DIRECT_COMPUTED
from saccade.kernels.cpu.conv_transpose2d.direct_computed import CONV_TRANSPOSE2D_DIRECT_COMPUTED
from saccade.opdefs import Conv2d, ConvTranspose2d
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
RNG = np.random.default_rng(40)
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 3, (2, 0, 1)))
SAME = (1, 1, 1, 1)
X, W = (2, 9, 7, 6), (21, 9, 3, 3)


def transposed(kind, shape):
    """Weights whose filters are neighbours, as a transposition leaves them."""
    k, _, r, s = shape
    return View(kind, shape, (1, k * r * s, k, k * r))


def held(hold, kernel, op, arrays, weights, **more):
    x, *_ = arrays
    views = [nhwc_view(DType.of(x.dtype), x.shape, x.shape[1] + 1), weights]
    views += [row_major(F32, a.shape) for a in arrays[2:]]
    (shape,) = (r.shape for r in op.reference(*(a.astype(np.float32) for a in arrays)))
    return hold(
        kernel, op, arrays, inputs=views, outputs=[nhwc_view(F32, shape)],
        constant=(False,) * len(arrays), exact=True, runs=FEW, **more,
    )  # fmt: skip


@pytest.mark.parametrize("stored", [row_major, nhwc_view, transposed])
@pytest.mark.parametrize("kind", [F32, BF16])
def test_weights_in_any_order(hold, stored, kind):
    arrays = [exact_operands(X, F32, RNG), exact_operands(W, kind, RNG)]
    held(hold, CONV2D_DIRECT_COMPUTED, Conv2d(padding=SAME), arrays, stored(kind, W))


@pytest.mark.parametrize("kind", [F32, BF16])
def test_filters_of_channels(hold, kind):
    op = Conv2d((2, 1), (2, 2, 1, 2), groups=9, epilogue=parse("relu(add($0, $1))"))
    shape = (9, 1, 5, 4)
    arrays = [exact_operands(X, F32, RNG), exact_operands(shape, kind, RNG)]
    arrays.append(exact_operands((1, 9, 1, 1), F32, RNG))
    held(hold, CONV2D_DEPTHWISE_COMPUTED, op, arrays, transposed(kind, shape))


@pytest.mark.parametrize("groups", [1, 3])
def test_transposed(hold, groups):
    op, shape = ConvTranspose2d((2, 3), SAME, (1, 0), groups=groups), (9, 4, 3, 2)
    arrays = [exact_operands(X, F32, RNG), exact_operands(shape, F32, RNG)]
    held(hold, CONV_TRANSPOSE2D_DIRECT_COMPUTED, op, arrays, transposed(F32, shape))


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_the_bits_are_those_of_constants(isa):
    """Of the same sums: taps outside the image are left out, not products with zero."""
    op, arrays = Conv2d(padding=SAME, finite=False), [random_operands(s, F32, RNG) for s in (X, W)]
    views, y = [nhwc_view(F32, X), row_major(F32, W)], [nhwc_view(F32, (2, 21, 7, 6))]
    both = []
    for kernel, known in ((CONV2D_DIRECT, True), (CONV2D_DIRECT_COMPUTED, False)):
        target = runnable_target(isa)
        both += run_kernel(
            kernel, op, arrays, y, inputs=views, constant=(False, known), isa=target, threads=2
        )
    assert both[0].tobytes() == both[1].tobytes()


def test_an_infinite_weight_meets_no_padding(hold):
    """The same whatever the team: `hold` compares the bits."""
    w = exact_operands(W, F32, RNG)
    w[3, 2, 0, 0] = np.inf
    op = Conv2d(padding=SAME)
    arrays = [np.ones(X, np.float32), w]
    views = [nhwc_view(F32, X), row_major(F32, W)]
    y = nhwc_view(F32, (2, 21, 7, 6))
    for isa, threads, order in (("avx512", 3, (1, 2, 0)), ("avx2", 1, None)):
        (found,) = run_kernel(
            CONV2D_DIRECT_COMPUTED, op, arrays, [y], inputs=views, isa=runnable_target(isa),
            threads=threads, order=order,
        )  # fmt: skip
        (inner,) = run_kernel(
            CONV2D_DIRECT_COMPUTED, replace(op, padding=(0,) * 4), arrays,
            [nhwc_view(F32, (2, 21, 5, 4))], inputs=views, isa=runnable_target(isa),
        )  # fmt: skip
        assert np.isinf(found[:, 3, 1:, 1:]).all() and np.isfinite(found[:, 3, 0]).all()
        assert np.isfinite(found[:, :3]).all()
        np.testing.assert_array_equal(found[:, :, 1:-1, 1:-1], inner)


@pytest.mark.parametrize("name", ["channels", "to_square"])
def test_a_wrong_size_of_the_packing_is_caught(hold, name):
    arrays = [exact_operands(X, F32, RNG), exact_operands(W, F32, RNG)]

    def wrong(call):
        first, *rest = CONV2D_DIRECT_COMPUTED.launch(call)
        return (mistaken(first, name, -1), *rest)

    with pytest.raises(AssertionError):
        held(
            hold, launched_as(CONV2D_DIRECT_COMPUTED, wrong), Conv2d(padding=SAME), arrays,
            row_major(F32, W),
        )  # fmt: skip


def call_of(op=None, kind=F32, known=False):
    views = (nhwc_view(F32, X), row_major(kind, W))
    return Call(op or Conv2d(), views, (nhwc_view(F32, (2, 21, 5, 4)),), (False, known), ZEN4)


def test_refusals():
    for kernel in (CONV2D_DIRECT_COMPUTED, CONV2D_DEPTHWISE_COMPUTED):
        assert "constant" in kernel.supports(call_of(known=True))
        assert kernel.supports(call_of(kind=DType.F64)) == "weights are float64"
    assert "one filter" in CONV2D_DEPTHWISE_COMPUTED.supports(call_of())
    prologue = Conv2d(prologue=parse("relu($0)"))
    assert "a prologue" in CONV2D_DIRECT_COMPUTED.supports(call_of(prologue))


def test_every_variant_packs_what_it_reads():
    """Each of them, also those with another width of panels."""
    variants = list(CONV2D_DIRECT_COMPUTED.variants(call_of(Conv2d(padding=SAME))))
    assert len(variants) > 3
    for variant in variants:
        pack, *sums = variant.launches
        assert pack.config.pack is not None and pack.config.sums is None
        read = {o for one in sums for o in one.operands.values() if isinstance(o, Temp)}
        assert pack.operands["target"] in read
        assert not any(
            isinstance(o, Packed) and 1 in o.packing.inputs
            for one in (pack, *sums) for o in one.operands.values()
        )  # fmt: skip
