"""Saccade's kernels behind torchvision's operators, for models that stay as they are.

Torchvision's Python functions, scripted modules and compiled graphs all call `torchvision::…`
through PyTorch's dispatcher. Three of its keys get another kernel there, and the same three of CUDA
where all GPUs are ones that kernels are for (compute capability 8.0, 8.6, 8.9, 9.0 and 10.0):

    AutogradCPU     the operator of Saccade with its own autograd: gradients that nobody asks for
                    are not computed, and what `torch.compile` traces is `saccade::…`
    AutocastCPU     the same, in place of torchvision's casts to float32 and back
    CPU             the same, for calls below autograd such as those of `torch.inference_mode`;
                    and the gradients' operators, which graphs traced earlier call by name

Other devices, quantised tensors and shape functions keep what they have.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
import torch.compiler.config
from torch import Tensor

from saccade.backends.cuda.gpus import GPUS
from saccade.errors import OptionError
from saccade.locks import Lock

__all__ = ["TorchvisionPatch", "patch_torchvision"]

Function = Callable[..., Any]

_SAME = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
"""Operators that take and give what torchvision's do."""

_QUANTIZED = ("nms", "roi_align")
"""Operators that torchvision has kernels of quantised tensors for."""

_PLANAR = ("_roi_pool_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward")
"""Gradients whose operators are also told the memory format; torchvision's are in planes."""

_TAG = "+saccade"


class TorchvisionPatch:
    """A hold on the kernels behind torchvision's operators; see `patch_torchvision`."""

    def __init__(self) -> None:
        self._held = True
        _KERNELS.hold()

    def undo(self) -> None:
        """Let go; torchvision's own kernels are back once no patch is left. Again: no effect."""
        held, self._held = self._held, False
        if held:
            _KERNELS.release()

    def __enter__(self) -> TorchvisionPatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()


def patch_torchvision() -> TorchvisionPatch:
    """Run torchvision's operators on Saccade's kernels, everywhere in this process.

    On the CPU, and on NVIDIA GPUs if all of this process's are ones that kernels are for: of
    compute capability 8.0, 8.6, 8.9, 9.0 or 10.0.

    `nms`, `roi_align`, `roi_pool`, `ps_roi_align`, `ps_roi_pool` and `deform_conv2d`, forward and
    backward, wherever they are called from: torchvision's functions, modules and models, eager,
    scripted or compiled, in all threads and in forks of this process. Under autocast they compute
    in the dtype that they are given, or as convolutions do (`deform_conv2d`). What `torch.compile`
    has compiled so far is compiled again.

    The patch lasts until the handle's `undo`, or the end of its `with` block, whether the handle is
    kept or not. Patches nest, and may end in any order. Patch and undo while no other thread is in
    one of these operators: PyTorch changes its tables of kernels without locks.

        saccade.ops.patch_torchvision()                 # for good

        with saccade.ops.patch_torchvision():           # for a while
            model(images)

    Raises:
        OptionError: If torchvision is not installed, or is without its operators.
    """
    return TorchvisionPatch()


class _Kernels:
    """The kernels in PyTorch's dispatcher, which are there while a patch holds them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._library: torch.library.Library | None = None

    def hold(self) -> None:
        with self._lock:
            if self._library is None:
                self._library = _override()
            # Behind what may raise: then nobody holds anything.
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._library is not None:
                # At once, not when the collector gets to it; PyTorch has no public way.
                self._library._destroy()
                self._library = None
                _mark_compiled(False)


_KERNELS = _Kernels()


def _override() -> torch.library.Library:
    """Put the kernels there; destroying the library takes them away again."""
    _require_torchvision()
    saccade = torch.ops.saccade
    forward: dict[str, Function] = {name: getattr(saccade, name).default for name in _SAME}
    forward["deform_conv2d"] = _deform_conv2d
    library = torch.library.Library("torchvision", "IMPL")
    with warnings.catch_warnings():
        # PyTorch says once that a kernel is replaced, which is what a patch is for.
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        for device in _devices():
            for name, function in forward.items():
                library.impl(name, function, device)
                above = _or_quantized(name, function) if name in _QUANTIZED else function
                for key in (f"Autograd{device}", f"Autocast{device}"):
                    library.impl(name, above, key)
            for name, function in _BACKWARD.items():
                library.impl(name, function, device)
    _mark_compiled(True)
    return library


def _or_quantized(name: str, function: Function) -> Function:
    """The function, and what torchvision has for quantised tensors, which come to the same keys."""
    theirs = getattr(torch.ops.torchvision, name).default

    def call(first: Tensor, *rest: Any) -> Any:  # noqa: ANN401
        if first.is_quantized:
            with torch._C._AutoDispatchBelowAutograd():
                return theirs(first, *rest)
        return function(first, *rest)

    return call


def _devices() -> tuple[str, ...]:
    """Kinds of devices that there are kernels for; code runs on the architecture that it is for."""
    known = {(gpu.arch // 10, gpu.arch % 10) for gpu in GPUS.values()}
    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    found = {torch.cuda.get_device_capability(i) for i in gpus}
    return ("CPU", "CUDA") if found and found <= known else ("CPU",)


def _require_torchvision() -> None:
    try:
        # Its import fills `torch.ops.torchvision`.
        importlib.import_module("torchvision")
    except ImportError as error:
        raise OptionError("patch_torchvision: torchvision is not installed") from error
    # Torchvision can be imported without its compiled part.
    if not hasattr(torch.ops.torchvision, "nms"):
        raise OptionError(
            "patch_torchvision: torchvision is installed without its operators; its version may "
            f"not fit PyTorch {torch.__version__}"
        )


def _mark_compiled(patched: bool) -> None:
    """Keep graphs compiled with and without the patch apart.

    They hold the operators and memory formats that were there when they were traced, and the key
    that PyTorch keeps them under on disk does not tell.
    """
    config = torch.compiler.config
    if hasattr(config, "cache_key_tag"):  # PyTorch 2.7; before, such graphs were not kept
        # The user may have a tag of his own, which stays.
        tag = config.cache_key_tag.replace(_TAG, "")
        config.cache_key_tag = tag + _TAG if patched else tag
    # Without it nothing was compiled so far, and `reset` would import it.
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def _deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *rest: Any,  # noqa: ANN401
) -> Tensor:  # fmt: skip
    """Torchvision passes a mask always, and says whether it means it."""
    *geometry, use_mask = rest
    result: Tensor = torch.ops.saccade.deform_conv2d(
        x, weight, offset, bias, mask if use_mask else None, *_pairs(*geometry)
    )
    return result


def _pairs(
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int,
) -> tuple[Any, ...]:  # fmt: skip
    stride, padding, dilation = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    return stride, padding, dilation, groups, offset_groups


def _deform_conv2d_backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[Tensor, ...]:  # fmt: skip
    """All five gradients, as the schema has no way to ask for less."""
    *geometry, use_mask = rest
    wanted = [True, True, True, True, use_mask]
    grad_x, grad_weight, grad_offset, grad_bias, grad_mask = (
        torch.ops.saccade._deform_conv2d_backward(
            grad, x, weight, offset, mask if use_mask else None, wanted, *_pairs(*geometry)
        )
    )
    # The schema has a tensor for every operand, and autograd wants one of the mask's shape.
    if not use_mask:
        grad_mask = torch.zeros_like(mask)
    return grad_x, grad_weight, grad_offset, grad_mask, grad_bias


def _roi_align_backward(
    grad: Tensor, rois: Tensor, scale: float, pooled_height: int, pooled_width: int, batch: int,
    channels: int, height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    del pooled_height, pooled_width, channels
    result: Tensor = torch.ops.saccade._roi_align_backward(
        grad, rois, scale, (batch, height, width), sampling_ratio, aligned, False
    )
    return result


def _planar(operator: str) -> Function:
    """A gradient whose operator takes torchvision's arguments and the memory format."""

    def backward(*arguments: object) -> Tensor:
        result: Tensor = getattr(torch.ops.saccade, operator)(*arguments, False)
        return result

    return backward


_BACKWARD: dict[str, Function] = {
    **{name: _planar(name) for name in _PLANAR},
    "_roi_align_backward": _roi_align_backward,
    "_deform_conv2d_backward": _deform_conv2d_backward,
}
