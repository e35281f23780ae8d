"""ONNX's operators as functions of PyTorch tensors, for the module that peers compile.

A function takes the node's inputs by position (None where the node leaves one out) and its
attributes by name, under ONNX's own names. Inputs that say how, not what (shapes, axes, pads), come
as lists of integers or floats: `OPERATORS` tells which.
"""

# ruff: noqa: N803 - ONNX's own names of what it gives

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from saccade.cli._torch_elements import ELEMENTS, PICKED, REDUCED
from saccade.errors import OptionError

__all__ = ["OPERATORS", "TorchOperator", "attention", "softmax"]

Tensor = Any
"""A `torch.Tensor`, or a number where the file has a constant without axes."""


@dataclass(frozen=True, slots=True)
class TorchOperator:
    """How one operator is computed.

    Attributes:
        call: The function.
        host: Positions of inputs that come as lists.
    """

    call: Callable[..., Any]
    host: tuple[int, ...] = ()


def conv(
    x: Tensor, w: Tensor, b: Tensor = None, *, pads: Sequence[int] = (), group: int = 1,
    strides: Sequence[int] = (), dilations: Sequence[int] = (), **rest: object,
) -> Tensor:  # fmt: skip
    """Convolution of any rank."""
    # The weights' own shape says that as well.
    _plain(rest, "Conv", "kernel_shape")
    rank = x.dim() - 2
    x, padding = _padded(x, pads, rank)
    call = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    return call(x, w, b, tuple(strides) or 1, padding, tuple(dilations) or 1, group)


def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor = None, *, pads: Sequence[int] = (), group: int = 1,
    strides: Sequence[int] = (), dilations: Sequence[int] = (),
    output_padding: Sequence[int] = (), **rest: object,
) -> Tensor:  # fmt: skip
    """Transposed convolution in two dimensions, with the same padding on both sides."""
    _plain(rest, "ConvTranspose", "kernel_shape")
    before, after = _sides(pads, 2)
    if before != after:
        raise OptionError("a ConvTranspose that pads its sides unlike each other is not known")
    more = tuple(output_padding) or 0
    return F.conv_transpose2d(
        x, w, b, tuple(strides) or 1, before, more, group, tuple(dilations) or 1
    )


def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    **rest: object,
) -> Tensor:  # fmt: skip
    """With the statistics of training."""
    _plain(rest, "BatchNormalization", "momentum")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


def layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor = None, *, axis: int = -1, epsilon: float = 1e-5,
    **rest: object,
) -> Tensor:  # fmt: skip
    """Over the axes from `axis` on."""
    _plain(rest, "LayerNormalization", "stash_type")
    return F.layer_norm(x, x.shape[axis:], scale, bias, epsilon)


def max_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] = (), ceil_mode: int = 0,
    pads: Sequence[int] = (), dilations: Sequence[int] = (), **rest: object,
) -> Tensor:  # fmt: skip
    """In two dimensions."""
    _plain(rest, "MaxPool", "storage_order")
    # A pixel of padding must never be the largest.
    x, padding = _padded(x, pads, 2, float("-inf"))
    size, step = tuple(kernel_shape), tuple(strides) or 1
    return F.max_pool2d(x, size, step, padding, tuple(dilations) or 1, bool(ceil_mode))


def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] = (), ceil_mode: int = 0,
    pads: Sequence[int] = (), count_include_pad: int = 0, **rest: object,
) -> Tensor:  # fmt: skip
    """In two dimensions, with the same padding on both sides."""
    _plain(rest, "AveragePool")
    before, after = _sides(pads, 2)
    if before != after:
        # Zeros put there beforehand would count as pixels, whatever `count_include_pad` says.
        raise OptionError("an AveragePool that pads its sides unlike each other is not known")
    size, step = tuple(kernel_shape), tuple(strides) or 1
    return F.avg_pool2d(x, size, step, before, bool(ceil_mode), bool(count_include_pad))


def global_average_pool(x: Tensor) -> Tensor:
    """Mean of each channel."""
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


def gemm(
    a: Tensor, b: Tensor, c: Tensor = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """The sum alpha · A · B + beta · C: what `nn.Linear` is, where it is one."""
    if (alpha, beta, transA, transB) == (1.0, 1.0, 0, 1):
        return F.linear(a, b, c)
    product = alpha * (a.t() if transA else a) @ (b.t() if transB else b)
    return product if c is None else product + beta * c


def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Over one axis."""
    return F.softmax(x, axis)


def attention(q: Tensor, kt: Tensor, v: Tensor, *, scale: float) -> Tensor:
    """softmax(scale · q · kt) · v as the one operator that PyTorch has for it."""
    return F.scaled_dot_product_attention(q, kt.transpose(-2, -1), v, scale=scale)


def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """PyTorch's own where it is that one."""
    # An attribute is a float32, which has no sixth.
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(x)
    return (alpha * x + beta).clamp(0.0, 1.0)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """With slope `alpha` below zero."""
    return F.leaky_relu(x, alpha)


def gelu(x: Tensor, *, approximate: bytes = b"none") -> Tensor:
    """With the error function, or `tanh`."""
    return F.gelu(x, approximate=approximate.decode())


def clip(x: Tensor, low: Tensor = None, high: Tensor = None, *, min: Tensor = None,  # noqa: A002
         max: Tensor = None) -> Tensor:  # noqa: A002 # fmt: skip
    """Between bounds that are inputs, or attributes in old files."""
    return x.clamp(min if low is None else low, max if high is None else high)


def cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    """Between kinds of numbers; floating point stays what the module computes in."""
    # For float8 alone, which no result here is.
    del saturate
    # By the numbers of `TensorProto.DataType`.
    kinds = {6: torch.int32, 7: torch.int64, 9: torch.bool}
    if to in kinds:
        return x.to(kinds[to])
    return x if x.is_floating_point() else x.float()


def concat(*parts: Tensor, axis: int) -> Tensor:
    """Side by side."""
    return torch.cat(parts, axis)


def slice_(
    x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """With steps forward."""
    which, by = axes or range(len(starts)), steps or [1] * len(starts)
    if min(by, default=1) < 1:
        raise OptionError("a Slice with steps backward is not known")
    where = [slice(None)] * x.dim()
    for axis, *part in zip(which, starts, ends, by, strict=True):
        where[axis] = slice(*part)
    return x[tuple(where)]


def split(
    x: Tensor, sizes: Sequence[int] | None = None, *, axis: int = 0, num_outputs: int = 0,
    split: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    """Into parts of given sizes, else into equal ones."""
    given = list(sizes or split)
    if not given:
        given = [-(-x.shape[axis] // num_outputs)] * num_outputs
        # Where sizes do not divide, ONNX makes the last part the smaller one.
        given[-1] += x.shape[axis] - sum(given)
    return torch.split(x, given, axis)


def reshape(x: Tensor, shape: Sequence[int], *, allowzero: int = 0) -> Tensor:
    """Zeros mean the size that is there."""
    kept = [n or (0 if allowzero else x.shape[i]) for i, n in enumerate(shape)]
    return x.reshape(kept)


def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """To a matrix."""
    rows = 1
    for size in x.shape[:axis]:
        rows *= size
    return x.reshape(rows, -1)


def transpose(x: Tensor, *, perm: Sequence[int] = ()) -> Tensor:
    """Axes in another order, backward unless one is given."""
    return x.permute(tuple(perm) or tuple(reversed(range(x.dim()))))


def squeeze(x: Tensor, given: Sequence[int] | None = None, *, axes: Sequence[int] = ()) -> Tensor:
    """Without axes of size 1."""
    over = tuple(given or axes)
    return x.squeeze(over) if over else x.squeeze()


def unsqueeze(x: Tensor, given: Sequence[int] | None = None, *, axes: Sequence[int] = ()) -> Tensor:
    """With further axes of size 1."""
    over = list(given or axes)
    rank = x.dim() + len(over)
    # In rising order: each one counts those that are put in before it.
    for axis in sorted(axis % rank for axis in over):
        x = x.unsqueeze(axis)
    return x


def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """One place of an axis, or several; negative ones count from the end."""
    # A scalar index takes the axis away, unlike a list of one.
    if isinstance(indices, int):
        return x.select(axis, indices)
    axis %= x.dim()
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    places = torch.where(indices < 0, indices + x.shape[axis], indices)
    return x.index_select(axis, places.flatten()).reshape(shape)


def expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Axes of size 1 as often as asked for."""
    rank = max(x.dim(), len(shape))
    here, asked = ([1] * (rank - len(one)) + list(one) for one in (x.shape, shape))
    # ONNX broadcasts both ways: where a 1 is asked for, the operand's own size stays.
    return x.expand([b if a == 1 else a for a, b in zip(here, asked, strict=True)])


def depth_to_space(x: Tensor, *, blocksize: int, mode: bytes = b"DCR") -> Tensor:
    """Channels become pixels."""
    if mode == b"CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    parts = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(n, -1, h * blocksize, w * blocksize)


def resize(
    x: Tensor, roi: object = None, scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None, *, mode: bytes = b"nearest",
    coordinate_transformation_mode: bytes = b"half_pixel", nearest_mode: bytes = b"",
    **rest: object,
) -> Tensor:  # fmt: skip
    """The ways that PyTorch has."""
    # Only `tf_crop_and_resize` reads it, which is refused below.
    del roi
    _plain(rest, "Resize", "cubic_coeff_a")
    size = [int(n) for n in sizes[2:]] if sizes else [
        int(n * s) for n, s in zip(x.shape[2:], scales[2:], strict=True)  # type: ignore[index]
    ]  # fmt: skip
    way = (mode, coordinate_transformation_mode)
    # The only one of ONNX's many that PyTorch's `nearest` is.
    if way == (b"nearest", b"asymmetric") and nearest_mode == b"floor":
        return F.interpolate(x, size, mode="nearest")
    aligned = {b"half_pixel": False, b"pytorch_half_pixel": False, b"align_corners": True}
    names = {b"linear": "bilinear", b"cubic": "bicubic"}
    if mode not in names or way[1] not in aligned:
        raise OptionError(f"a Resize of mode {mode.decode()}, {way[1].decode()} is not known")
    return F.interpolate(x, size, mode=names[mode], align_corners=aligned[way[1]])


def pad(
    x: Tensor, given: Sequence[int] | None = None, fill: Tensor = None,
    over: Sequence[int] | None = None, *, pads: Sequence[int] = (), value: float = 0.0,
    mode: bytes = b"constant",
) -> Tensor:  # fmt: skip
    """A constant around any axes; negative numbers cut off."""
    if mode != b"constant":
        raise OptionError(f"a Pad of mode {mode.decode()} is not known")
    axes = [axis % x.dim() for axis in over] if over else list(range(x.dim()))
    before, after = _sides(given or pads, len(axes))
    by_axis = dict(zip(axes, zip(before, after, strict=True), strict=True))
    flat = [n for axis in reversed(range(x.dim())) for n in by_axis.get(axis, (0, 0))]
    return F.pad(x, flat, value=value if fill is None else float(fill))


def _sides(pads: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    given = tuple(pads) or (0,) * (2 * rank)
    return given[:rank], given[rank:]


def _padded(x: Tensor, pads: Sequence[int], rank: int, fill: float = 0.0) -> tuple[Tensor, Any]:
    """The padding that the operator does by itself; else none, and a padded operand."""
    before, after = _sides(pads, rank)
    if before == after:
        return x, before
    # `F.pad` begins with the last axis.
    flat = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return F.pad(x, flat, value=fill), 0


def _plain(rest: Mapping[str, Any], kind: str, *harmless: str) -> None:
    """Refuse attributes that change what is computed."""
    defaults = {"auto_pad": b"NOTSET", "training_mode": 0, "antialias": 0, "exclude_outside": 0,
                "keep_aspect_ratio_policy": b"stretch", "extrapolation_value": 0.0}  # fmt: skip
    for name, value in rest.items():
        if name not in harmless and (name not in defaults or value != defaults[name]):
            raise OptionError(f"{kind} with {name}={value!r} is not known")


OPERATORS: Mapping[str, TorchOperator] = {
    "Add": TorchOperator(operator.add),
    "AveragePool": TorchOperator(average_pool),
    "BatchNormalization": TorchOperator(batch_normalization),
    "Cast": TorchOperator(cast),
    "Clip": TorchOperator(clip),
    "Concat": TorchOperator(concat),
    "Conv": TorchOperator(conv),
    "ConvTranspose": TorchOperator(conv_transpose),
    "DepthToSpace": TorchOperator(depth_to_space),
    "Div": TorchOperator(operator.truediv),
    "Erf": TorchOperator(torch.erf),
    "Exp": TorchOperator(torch.exp),
    "Expand": TorchOperator(expand, (1,)),
    "Flatten": TorchOperator(flatten),
    "Gather": TorchOperator(gather),
    "Gelu": TorchOperator(gelu),
    "Gemm": TorchOperator(gemm),
    "GlobalAveragePool": TorchOperator(global_average_pool),
    "HardSigmoid": TorchOperator(hard_sigmoid),
    "HardSwish": TorchOperator(F.hardswish),
    "LayerNormalization": TorchOperator(layer_normalization),
    "LeakyRelu": TorchOperator(leaky_relu),
    "MatMul": TorchOperator(operator.matmul),
    "MaxPool": TorchOperator(max_pool),
    "Mul": TorchOperator(operator.mul),
    "Neg": TorchOperator(torch.neg),
    "Pad": TorchOperator(pad, (1, 3)),
    "Pow": TorchOperator(operator.pow),
    "Relu": TorchOperator(F.relu),
    "Reshape": TorchOperator(reshape, (1,)),
    "Resize": TorchOperator(resize, (1, 2, 3)),
    "Sigmoid": TorchOperator(torch.sigmoid),
    "Slice": TorchOperator(slice_, (1, 2, 3, 4)),
    "Softmax": TorchOperator(softmax),
    "Split": TorchOperator(split, (1,)),
    "Sqrt": TorchOperator(torch.sqrt),
    "Squeeze": TorchOperator(squeeze, (1,)),
    "Sub": TorchOperator(operator.sub),
    "Tanh": TorchOperator(torch.tanh),
    "Transpose": TorchOperator(transpose),
    "Unsqueeze": TorchOperator(unsqueeze, (1,)),
    **{name: TorchOperator(call) for name, call in ELEMENTS.items()},
    **{name: TorchOperator(call, (1,)) for name, call in {**REDUCED, **PICKED}.items()},
}
"""By ONNX's names. What only shapes and constants go into needs none of these."""
