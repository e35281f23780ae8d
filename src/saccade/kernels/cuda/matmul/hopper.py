"""Matrix products on Hopper, by the code of convolutions: rows are pixels, a 1x1 convolution.

`y[.., m, n] = epilogue(Σ_k a[.., m, k] · b[k, n])`

Layouts: rows of a evenly apart, neighbours along k side by side; constant b, packed [N, K']; in
float16 or bfloat16 with K and N in eights. `matmul.hopper` is `conv2d.hopper`;
`matmul.hopper_stationary` and `matmul.hopper_teams`, those of `conv2d`, refuse more. Floor: 2·M·N·K
operations of the matrix units, or the bytes of a and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from saccade.kernels.base import Launch, Packed, Packing, Variant, View, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel
from saccade.kernels.cuda.conv2d.hopper import CONV2D_HOPPER
from saccade.kernels.cuda.conv2d.hopper_stationary import CONV2D_HOPPER_STATIONARY
from saccade.kernels.cuda.conv2d.hopper_teams import CONV2D_HOPPER_TEAMS
from saccade.kernels.cuda.matmul.product_axes import axes_for
from saccade.kernels.cuda.matmul.tiled import aliases, refuse_product
from saccade.opdefs import Conv2d, MatMul

__all__ = ["MATMUL_HOPPER", "MATMUL_HOPPER_STATIONARY", "MATMUL_HOPPER_TEAMS"]


@per_call
def _convolution(call: CudaCall) -> CudaCall:
    """The product as a convolution of [n0, K, n1, M] with N filters of one tap."""
    axes = axes_for(call)
    a, b, y = call.inputs[0], call.inputs[1], call.outputs[0]
    (n0, n1), (a_0, a_1, a_m, _), (y_0, y_1, y_m, _) = axes.batch, axes.a, axes.y
    x = View(a.dtype, (n0, axes.inner, n1, axes.rows), (a_0, 1, a_1, a_m))
    filters = View(b.dtype, (axes.columns, axes.inner, 1, 1), (axes.inner, 1, 1, 1))
    result = View(y.dtype, (n0, axes.columns, n1, axes.rows), (y_0, 1, y_1, y_m))
    op = Conv2d(epilogue=call.op.epilogue)
    return replace(call, op=op, inputs=(x, filters, *axes.operands), outputs=(result,))


def _supports(kernel: CudaKernel, call: CudaCall) -> str | None:
    reason = refuse_product(call)
    if reason is not None:
        return reason
    if not call.constant[1]:
        return "b is no constant"
    if axes_for(call).depends:
        return "b differs by matrix"
    if axes_for(call).a[3] != 1 or axes_for(call).y[3] != 1:
        return "neighbours of a row are apart"
    return kernel.supports(_convolution(call))


def _variants(kernel: CudaKernel, call: CudaCall) -> Iterator[Variant]:
    for variant in kernel.variants(_convolution(call)):
        yield variant._replace(build=partial(_launches, call, variant))


def _launches(call: CudaCall, variant: Variant) -> tuple[Launch, ...]:
    (launch,) = variant.launches
    kind, axes = call.inputs[0].dtype, axes_for(call)
    depth = launch.integers["depth"]
    assert isinstance(depth, int)
    packing = Packing(
        "cuda.matrix", (kind.value, call.op.transpose_b, depth, axes.columns, True), (1,),
        axes.columns * depth * kind.itemsize,
    )  # fmt: skip
    return (replace(launch, operands={**launch.operands, "w": Packed(packing)}),)


def _by_convolution(name: str, kernel: CudaKernel) -> CudaKernel:
    """Products by the code of a kernel of convolutions."""
    supports, variants = partial(_supports, kernel), partial(_variants, kernel)
    return CudaKernel(name, (MatMul,), kernel.config, supports, variants, kernel.entry, aliases)


MATMUL_HOPPER = _by_convolution("matmul.hopper", CONV2D_HOPPER)
MATMUL_HOPPER_STATIONARY = _by_convolution("matmul.hopper_stationary", CONV2D_HOPPER_STATIONARY)
MATMUL_HOPPER_TEAMS = _by_convolution("matmul.hopper_teams", CONV2D_HOPPER_TEAMS)
