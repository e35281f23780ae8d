"""How operators are done on NVIDIA's GPUs: one folder per family, a list of all kernels.

Files are named as in `kernels.cpu`, but for code:

    <algorithm>.py         the kernel `family.algorithm`: it plans, with an `Entry` for each config
    <algorithm>_code.py    handwritten Triton functions, which only compiling and interpreting
                           import: an `Entry` names them
    <algorithm>_<part>.py  any other part of that algorithm; other kernels may use it too
    pack_<what>.py         how constants are packed: functions that `packing.FUNCTIONS` lists
    <thing>_<part>.py      what several kernels share, none of which it belongs to: `loop_axes`
    <thing>_code.py        Triton functions that several kernels share: `walk_code`, `store_code`
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.kernels.cuda.base import CudaKernel

__all__ = ["CUDA_KERNELS", "CudaListed", "kernel_named", "kernels_for"]


class CudaListed(NamedTuple):
    """Where a kernel is.

    Attributes:
        name: `CudaKernel.name`.
        ops: Names of the classes in `CudaKernel.ops`.
        module: In `saccade.kernels.cuda`.
        value: What the `CudaKernel` is called there.
    """

    name: str
    ops: tuple[str, ...]
    module: str
    value: str


# fmt: off
CUDA_KERNELS: tuple[CudaListed, ...] = (
    CudaListed("conv2d.hopper", ("Conv2d",), "conv2d.hopper", "CONV2D_HOPPER"),
    CudaListed(
        "conv2d.hopper_patches", ("Conv2d",), "conv2d.hopper_patches", "CONV2D_HOPPER_PATCHES"
    ),
    CudaListed("conv2d.hopper_rows", ("Conv2d",), "conv2d.hopper_rows", "CONV2D_HOPPER_ROWS"),
    CudaListed("conv2d.hopper_strips", ("Conv2d",), "conv2d.hopper_strips", "CONV2D_HOPPER_STRIPS"),
    CudaListed(
        "conv2d.hopper_point", ("Conv2dPoint",), "conv2d.hopper_point", "CONV2D_HOPPER_POINT"
    ),
    CudaListed(
        "conv2d.hopper_stationary", ("Conv2d",), "conv2d.hopper_stationary",
        "CONV2D_HOPPER_STATIONARY",
    ),
    CudaListed("conv2d.hopper_stem", ("Conv2d",), "conv2d.hopper_stem", "CONV2D_HOPPER_STEM"),
    CudaListed("conv2d.stem_lanes", ("Conv2d",), "conv2d.stem_lanes", "CONV2D_STEM_LANES"),
    CudaListed(
        "conv2d.hopper_teams", ("Conv2d",), "conv2d.hopper_teams", "CONV2D_HOPPER_TEAMS"
    ),
    CudaListed("conv2d.hopper_sum", ("Conv2dSum",), "conv2d.hopper_sum", "CONV2D_HOPPER_SUM"),
    CudaListed(
        "conv2d.hopper_subpixel", ("Conv2dSubPixel",),
        "conv2d.hopper_subpixel", "CONV2D_HOPPER_SUBPIXEL",
    ),
    CudaListed("conv2d.implicit_gemm", ("Conv2d",), "conv2d.implicit_gemm", "CONV2D_IMPLICIT_GEMM"),
    CudaListed("conv2d.few_channels", ("Conv2d",), "conv2d.few_channels", "CONV2D_FEW_CHANNELS"),
    CudaListed(
        "conv2d.few_channels_lanes", ("Conv2d",),
        "conv2d.few_channels_lanes", "CONV2D_FEW_CHANNELS_LANES",
    ),
    CudaListed("conv2d.row_taps", ("Conv2d",), "conv2d.row_taps", "CONV2D_ROW_TAPS"),
    CudaListed("conv2d.few_outputs", ("Conv2d",), "conv2d.few_outputs", "CONV2D_FEW_OUTPUTS"),
    CudaListed(
        "conv2d.few_outputs_lanes", ("Conv2d",),
        "conv2d.few_outputs_lanes", "CONV2D_FEW_OUTPUTS_LANES",
    ),
    CudaListed("conv2d.depthwise", ("Conv2d",), "conv2d.depthwise", "CONV2D_DEPTHWISE"),
    CudaListed(
        "conv2d.depthwise_rows", ("Conv2d",), "conv2d.depthwise_rows", "CONV2D_DEPTHWISE_ROWS"
    ),
    CudaListed("conv2d.grouped", ("Conv2d",), "conv2d.grouped", "CONV2D_GROUPED"),
    CudaListed("conv2d.split_k", ("Conv2d",), "conv2d.split_k", "CONV2D_SPLIT_K"),
    CudaListed(
        "conv_transpose2d.direct", ("ConvTranspose2d",),
        "conv_transpose2d.direct", "CONV_TRANSPOSE2D_DIRECT",
    ),
    CudaListed(
        "deform.implicit_gemm", ("DeformConv",), "deform.implicit_gemm", "DEFORM_IMPLICIT_GEMM",
    ),
    CudaListed("deform.hopper", ("DeformConv",), "deform.hopper", "DEFORM_HOPPER"),
    CudaListed("deform.columns", ("DeformConv",), "deform.columns", "DEFORM_COLUMNS"),
    CudaListed("deform.gradient", ("DeformConvGradient",), "deform.gradient", "DEFORM_GRADIENT"),
    CudaListed("matmul.hopper", ("MatMul",), "matmul.hopper", "MATMUL_HOPPER"),
    CudaListed(
        "matmul.hopper_stationary", ("MatMul",), "matmul.hopper", "MATMUL_HOPPER_STATIONARY"
    ),
    CudaListed("matmul.hopper_teams", ("MatMul",), "matmul.hopper", "MATMUL_HOPPER_TEAMS"),
    CudaListed("matmul.tiled", ("MatMul",), "matmul.tiled", "MATMUL_TILED"),
    CudaListed("matmul.gemv", ("MatMul",), "matmul.gemv", "MATMUL_GEMV"),
    CudaListed("matmul.elementwise", ("MatMul",), "matmul.elementwise", "MATMUL_ELEMENTWISE"),
    CudaListed("attention.fused", ("Attention",), "attention.fused", "ATTENTION_FUSED"),
    CudaListed("pointwise.chain", ("Pointwise",), "pointwise.chain", "POINTWISE_CHAIN"),
    CudaListed(
        "pointwise.gathered", ("GatheredPointwise",), "pointwise.gathered", "POINTWISE_GATHERED"
    ),
    CudaListed("movement.copy", ("Move", "BitCast"), "movement.copy", "MOVEMENT_COPY"),
    CudaListed("movement.exchange", ("Move",), "movement.exchange", "MOVEMENT_EXCHANGE"),
    CudaListed("movement.concat", ("Concat",), "movement.concat", "MOVEMENT_CONCAT"),
    CudaListed("movement.pad", ("Pad",), "movement.pad", "MOVEMENT_PAD"),
    CudaListed("movement.gather", ("Gather", "GatherNd"), "movement.gather", "MOVEMENT_GATHER"),
    CudaListed("movement.scatter", ("ScatterRows",), "movement.scatter", "MOVEMENT_SCATTER"),
    CudaListed("pool.whole_image", ("Pool2d",), "pool.whole_image", "POOL_WHOLE_IMAGE"),
    CudaListed("pool.direct", ("Pool2d",), "pool.direct", "POOL_DIRECT"),
    CudaListed("recurrent.walk", ("Recurrent",), "recurrent.walk", "RECURRENT_WALK"),
    CudaListed("reduce.direct", ("Reduce", "VectorNorm"), "reduce.direct", "REDUCE_DIRECT"),
    CudaListed("reduce.arg", ("ArgReduce",), "reduce.arg", "REDUCE_ARG"),
    CudaListed("reduce.scan", ("CumSum",), "reduce.scan", "REDUCE_SCAN"),
    CudaListed("norm.tied", ("TiedNorm",), "norm.tied", "NORM_TIED"),
    CudaListed("norm.gradient", ("VectorNormGrad",), "norm.gradient", "NORM_GRADIENT"),
    CudaListed(
        "norm.gradient_flat", ("VectorNormGrad",), "norm.gradient_flat", "NORM_GRADIENT_FLAT"
    ),
    CudaListed("resize.direct", ("Resize",), "resize.direct", "RESIZE_DIRECT"),
    CudaListed("sample.grid", ("GridSample",), "sample.grid", "SAMPLE_GRID"),
    CudaListed("sample.weighted", ("WeightedSamples",), "sample.weighted", "SAMPLE_WEIGHTED"),
    CudaListed("softmax.direct", ("Softmax",), "softmax.direct", "SOFTMAX_DIRECT"),
    CudaListed(
        "normalize.rows", ("LayerNorm", "GroupNorm", "LpNormalize"),
        "normalize.rows", "NORMALIZE_ROWS",
    ),
    CudaListed(
        "normalize.local_response", ("LocalResponseNorm",),
        "normalize.local_response", "NORMALIZE_LOCAL_RESPONSE",
    ),
    CudaListed("select.top_k", ("TopK",), "select.top_k", "SELECT_TOP_K"),
    CudaListed("select.non_zero", ("NonZero",), "select.non_zero", "SELECT_NON_ZERO"),
    CudaListed("select.packed", ("PackedPlaces",), "select.packed", "SELECT_PACKED"),
    CudaListed("nms.suppress", ("Nms", "NonMaxSuppression"), "nms.suppress", "NMS_SUPPRESS"),
    CudaListed("roi.align", ("RoiAlign",), "roi.align", "ROI_ALIGN"),
    CudaListed("roi.pool", ("RoiPool",), "roi.pool", "ROI_POOL"),
    CudaListed("roi.pool_windows", ("RoiPool",), "roi.pool_windows", "ROI_POOL_WINDOWS"),
    CudaListed("roi.ps", ("PsRoi",), "roi.ps", "PS_ROI"),
    CudaListed(
        "roi.align_gradient", ("RoiAlignGradient",), "roi.align_gradient", "ROI_ALIGN_GRADIENT"
    ),
    CudaListed(
        "roi.pool_gradient", ("RoiPoolGradient",), "roi.pool_gradient", "ROI_POOL_GRADIENT"
    ),
    CudaListed("roi.ps_gradient", ("PsRoiGradient",), "roi.ps_gradient", "PS_ROI_GRADIENT"),
)
# fmt: on


@cache
def kernels_for(op: str) -> tuple[CudaKernel, ...]:
    """The kernels that may be asked about an operator, by its class's name, in the list's order."""
    return tuple(_load(entry) for entry in CUDA_KERNELS if op in entry.ops)


def kernel_named(name: str) -> CudaKernel:
    """The kernel of this name."""
    return _load(_entries()[name])


@cache
def _entries() -> dict[str, CudaListed]:
    return {entry.name: entry for entry in CUDA_KERNELS}


@cache
def _load(entry: CudaListed) -> CudaKernel:
    with forkless:
        found: CudaKernel = getattr(
            import_module(f"saccade.kernels.cuda.{entry.module}"), entry.value
        )
    return found
