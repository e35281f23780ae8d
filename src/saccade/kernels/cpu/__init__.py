"""How operators are done: one folder per family, an explicit list of all kernels.

Most models need few of them, so a kernel's module is imported when the kernel is first asked for,
by one of its operators or by its name.

Every family's folder has the same names of files:

    <algorithm>.py         the kernel `family.algorithm`: what it computes and refuses, its config,
                           its launches and costs, and the one `CpuKernel(...)` value. A few kernels
                           that are one file's share it (`Listed.module`).
    <algorithm>_code.py    the code that is emitted for it, where that is another file
    <algorithm>_config.py  what that code depends on, where others need it without the code
    <algorithm>_launch.py  how a call is cut into phases, where that is another file
    <algorithm>_<part>.py  any other part of that algorithm; other kernels may use it too
    pack_<what>.py         how constants are packed: functions that `packing.FUNCTIONS` lists
    <thing>_<part>.py      what several kernels share, none of which it belongs to, by the field's
                           name for it: `loop_nest`, `row_bands`, `box_iou`; single words are
                           `config` (of all of the family's kernels), `epilogue`, `microkernel`
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.kernels.cpu.base import CpuKernel

__all__ = ["CPU_KERNELS", "Listed", "all_kernels", "bring_usual", "kernel_named", "kernels_for"]

_USUAL = ("Conv2d", "MatMul", "Pool2d", "Reduce", "Pointwise", "Move")
"""Operators that nearly every model of vision has."""


class Listed(NamedTuple):  # which a warm start makes in a fifth of a dataclass's time
    """Where a kernel is.

    Attributes:
        name: `CpuKernel.name`.
        ops: Names of the classes in `CpuKernel.ops`.
        module: In `saccade.kernels.cpu`.
        value: What the `CpuKernel` is called there.
    """

    name: str
    ops: tuple[str, ...]
    module: str
    value: str


# fmt: off
CPU_KERNELS: tuple[Listed, ...] = (
    Listed("conv2d.direct", ("Conv2d",), "conv2d.direct", "CONV2D_DIRECT"),
    Listed("conv2d.winograd", ("Conv2d",), "conv2d.winograd", "CONV2D_WINOGRAD"),
    Listed("conv2d.lattice", ("Conv2d",), "conv2d.lattice", "CONV2D_LATTICE"),
    Listed("conv2d.amx", ("Conv2d",), "conv2d.amx", "CONV2D_AMX"),
    Listed("conv2d.limbs", ("Conv2d",), "conv2d.limbs", "CONV2D_LIMBS"),
    Listed("conv2d.depthwise", ("Conv2d", "RowSums"), "conv2d.depthwise", "CONV2D_DEPTHWISE"),
    Listed("conv2d.grouped", ("Conv2d", "RowSums"), "conv2d.grouped", "CONV2D_GROUPED"),
    Listed(
        "conv2d.expand_depthwise", ("ExpandDepthwise", "RowSums"),
        "conv2d.expand_depthwise", "CONV2D_EXPAND",
    ),
    Listed("conv2d.separable", ("SeparableConv2d",), "conv2d.separable", "CONV2D_SEPARABLE"),
    Listed("conv2d.few_inputs", ("Conv2d",), "conv2d.few_inputs", "CONV2D_FEW_INPUTS"),
    Listed("conv2d.few_outputs", ("Conv2d",), "conv2d.few_outputs", "CONV2D_FEW_OUTPUTS"),
    Listed(
        "conv_transpose2d.direct", ("ConvTranspose2d",),
        "conv_transpose2d.direct", "CONV_TRANSPOSE2D_DIRECT",
    ),
    Listed(
        "conv2d.direct_computed", ("Conv2d",), "conv2d.direct_computed", "CONV2D_DIRECT_COMPUTED"
    ),
    Listed(
        "conv2d.depthwise_computed", ("Conv2d",),
        "conv2d.depthwise_computed", "CONV2D_DEPTHWISE_COMPUTED",
    ),
    Listed(
        "conv_transpose2d.direct_computed", ("ConvTranspose2d",),
        "conv_transpose2d.direct_computed", "CONV_TRANSPOSE2D_DIRECT_COMPUTED",
    ),
    Listed("deform.forward", ("DeformConv",), "deform.forward", "DEFORM_CONV2D"),
    Listed(
        "deform.gradient", ("DeformConvGradient",),
        "deform.gradient", "DEFORM_CONV2D_GRADIENT",
    ),
    Listed("matmul.direct", ("MatMul",), "matmul.direct", "MATMUL_DIRECT"),
    Listed("matmul.amx", ("MatMul",), "matmul.amx", "MATMUL_AMX"),
    Listed("matmul.limbs", ("MatMul",), "matmul.limbs", "MATMUL_LIMBS"),
    Listed("excite.direct", ("Excite",), "excite.direct", "EXCITE"),
    Listed(
        "pointwise.chain", ("Pointwise", "GatheredPointwise"), "pointwise.chain", "CHAIN"
    ),
    Listed("movement.copy", ("Move", "BitCast"), "movement.copy", "COPY"),
    Listed("pool.direct", ("Pool2d",), "pool.direct", "POOL"),
    Listed("reduce.direct", ("Reduce",), "reduce.direct", "REDUCE"),
    Listed("reduce.norm", ("VectorNorm",), "reduce.direct", "NORM"),
    Listed("norm.gradient", ("VectorNormGrad",), "norm.gradient", "NORM_GRAD"),
    Listed("movement.concat", ("Concat",), "movement.concat", "CONCAT"),
    Listed("movement.pad", ("Pad",), "movement.pad", "PAD"),
    Listed(
        "movement.gather", ("Gather", "GatherNd", "GatheredPointwise"), "movement.gather", "GATHER"
    ),
    Listed("movement.scatter", ("ScatterRows",), "movement.scatter", "SCATTER"),
    Listed("resize.direct", ("Resize",), "resize.direct", "RESIZE"),
    Listed("resize.rows", ("Resize",), "resize.rows", "RESIZE_ROWS"),
    Listed("resize.resample", ("Resample",), "resize.resample", "RESIZE_RESAMPLE"),
    Listed("attention.rows", ("Attention",), "attention.rows", "ATTENTION_ROWS"),
    Listed("softmax.direct", ("Softmax",), "softmax.direct", "SOFTMAX"),
    Listed("normalize.layer", ("LayerNorm",), "normalize.mean_variance", "LAYER_NORM"),
    Listed("normalize.group", ("GroupNorm",), "normalize.mean_variance", "GROUP_NORM"),
    Listed(
        "normalize.local_response", ("LocalResponseNorm",),
        "normalize.local_response", "LOCAL_RESPONSE",
    ),
    Listed("normalize.lp", ("LpNormalize",), "normalize.lp", "LP_NORMALIZE"),
    Listed("reduce.scan", ("CumSum",), "reduce.scan", "CUMSUM"),
    Listed("reduce.arg", ("ArgReduce",), "reduce.scan", "ARG_REDUCE"),
    Listed("nms.direct", ("Nms",), "nms.direct", "NMS"),
    Listed("nms.classes", ("NonMaxSuppression",), "nms.classes", "NMS_CLASSES"),
    Listed("roi.align", ("RoiAlign",), "roi.align", "ROI_ALIGN"),
    Listed("roi.align_separable", ("RoiAlign",), "roi.align_separable", "ROI_ALIGN_SEPARABLE"),
    Listed("roi.align_gradient", ("RoiAlignGradient",), "roi.align_gradient", "ROI_ALIGN_GRADIENT"),
    Listed("roi.pool", ("RoiPool",), "roi.pool", "ROI_POOL"),
    Listed("roi.pool_few", ("RoiPool",), "roi.pool_few", "ROI_POOL_FEW"),
    Listed("roi.pool_gradient", ("RoiPoolGradient",), "roi.pool_gradient", "ROI_POOL_GRADIENT"),
    Listed("roi.ps", ("PsRoi",), "roi.ps", "PS_ROI"),
    Listed("roi.ps_gradient", ("PsRoiGradient",), "roi.ps_gradient", "PS_ROI_GRADIENT"),
    Listed("recurrent.walk", ("Recurrent",), "recurrent.walk", "WALK"),
    Listed("sample.grid", ("GridSample",), "sample.grid", "GRID"),
    Listed("sample.weighted", ("WeightedSamples",), "sample.weighted", "WEIGHTED"),
    Listed("select.top_k", ("TopK",), "select.top_k", "TOP_K"),
    Listed("select.non_zero", ("NonZero",), "select.non_zero", "NON_ZERO"),
    Listed("select.packed", ("PackedPlaces",), "select.packed", "PACKED"),
    Listed("pack.panels", (), "pack.panels", "PACK"),
)
# fmt: on


@cache
def kernels_for(op: str) -> tuple[CpuKernel, ...]:
    """The kernels that may be asked about an operator, by its class's name, in the list's order."""
    return tuple(_load(entry) for entry in CPU_KERNELS if op in entry.ops)


def kernel_named(name: str) -> CpuKernel:
    """The kernel of this name."""
    return _load(_entries()[name])


def all_kernels() -> tuple[CpuKernel, ...]:
    """Every kernel there is: imports them all."""
    return tuple(map(_load, CPU_KERNELS))


def bring_usual() -> None:
    """Import what most models need, where there is time while something else is waited for."""
    for op in _USUAL:
        kernels_for(op)


@cache
def _entries() -> dict[str, Listed]:
    return {entry.name: entry for entry in CPU_KERNELS}


@cache
def _load(entry: Listed) -> CpuKernel:
    with forkless:  # and one at a time: Python refuses imports that wait for each other
        found: CpuKernel = getattr(
            import_module(f"saccade.kernels.cpu.{entry.module}"), entry.value
        )
    return found
