"""Vision operators for PyTorch on Saccade's kernels, forward and backward, on CPUs and NVIDIA GPUs.

Importing this registers them as `torch.ops.saccade.*`. They need the extra `saccade[torch]`, on
GPUs `saccade[cuda]` as well, and Triton or code that `compile_ahead` made.

All operands of a call are dense tensors on the CPU or on one GPU; whatever else stands in their
place, and every number that makes no sense, raises `OperandError`, a RuntimeError. Boxes that name
an image that is not there raise it, too: on a GPU, where nobody waits for the answer, they give
zeros, and the next call of an operator on that GPU raises the error (with CUDA_LAUNCH_BLOCKING=1
the call itself). A number of another Python type
than the signature says raises what PyTorch raises for its own operators: a RuntimeError that names
the argument, or a TypeError.
"""

# ruff: noqa: E402 - whoever lacks PyTorch is told what to install, before the rest wants it

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "saccade.ops needs PyTorch: pip install 'saccade[torch]'", name="torch"
    ) from None
del _torch

from saccade.ops._execute import release_memory
from saccade.ops.ahead import compile_ahead, load_code
from saccade.ops.deform import DeformConv2d, deform_conv2d
from saccade.ops.multi_scale import MultiScaleRoIAlign
from saccade.ops.nms import batched_nms, nms, nms_padded
from saccade.ops.patch import TorchvisionPatch, patch_torchvision
from saccade.ops.ps_roi import PSRoIAlign, PSRoIPool, ps_roi_align, ps_roi_pool
from saccade.ops.rearrange import depth_to_space, pixel_shuffle, pixel_unshuffle, space_to_depth
from saccade.ops.roi_align import RoIAlign, roi_align
from saccade.ops.roi_pool import RoIPool, roi_pool
from saccade.ops.vector_norm import vector_norm

__all__ = [
    "DeformConv2d",
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
    "TorchvisionPatch",
    "batched_nms",
    "compile_ahead",
    "deform_conv2d",
    "depth_to_space",
    "load_code",
    "nms",
    "nms_padded",
    "patch_torchvision",
    "pixel_shuffle",
    "pixel_unshuffle",
    "ps_roi_align",
    "ps_roi_pool",
    "release_memory",
    "roi_align",
    "roi_pool",
    "space_to_depth",
    "vector_norm",
]
