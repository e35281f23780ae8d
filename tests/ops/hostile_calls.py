"""Calls of all operators with arguments that nobody should give; run as a script by a test.

    python hostile_calls.py SEED CALLS

Each call is printed before it is made, so that the last line names the one that crashed or hung. It
is made twice, with other contents in all memory that is fresh: what differs was never written.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import sys

import numpy as np
import torch

from saccade import ops
from saccade.errors import OperandError
from saccade.opdefs import Nms, PsRoi, RoiAlign, RoiPool
from saccade.ops._boxes import bins_of, joined_boxes
from saccade.ops._library import library

# Of fresh memory: NaN in every float dtype, and nothing.
POISONS = (0xFF, 0x00)

NUMBERS = (0, -1, 1, 2, 3, 7, 2**20, 2**31, 2**40, 2**62, 2**63, -(2**63), 1.5, True, None, "two")
NUMBERS += (np.int64(2), math.nan, (2,), (2, 3), [3, 1], (1, 2, 3), (), (2, -1), (2, 2**62), (0, 3))
REALS = (1.0, 0.5, 0, -1.0, -0.25, 1e-300, 1e30, 1e300, math.nan, math.inf, -math.inf, None, "one")
WILD = (math.nan, math.inf, -math.inf, 1e38, -1e38, 1e9, 2.0**31, -(2.0**63), 0.0, 3.5, 5.0, 2.0)
SIZES = (0, 1, 2, 3, 4, 6, 8)
DTYPES = (torch.float32, torch.float64)
OTHERS = (torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint8)


class Draw:
    """Arguments, most of which fit: a call with one thing wrong goes farther than a wild one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, usual, wild, odds=0.12):
        """One of the usual values, now and then a wild one."""
        return self.random.choice(wild if self.random.random() < odds else usual)

    def tensor(self, shape, *, values=None):
        """Of a shape that may be off by an axis or a size, of any dtype and strides."""
        shape = list(shape)
        if self.random.random() < 0.08 and shape:
            shape[self.random.randrange(len(shape))] = self.random.choice(SIZES)
        if self.random.random() < 0.03:
            shape = shape[1:]
        if values is None:
            dtype = self.some(DTYPES, OTHERS, 0.08)
            found = (8 * torch.randn(shape)).to(dtype)
        else:
            flat = [self.random.choice(values) for _ in range(math.prod(shape))]
            found = torch.tensor(flat, dtype=torch.float64).reshape(shape)
            found = found.to(self.some(DTYPES, OTHERS, 0.05))
        return self.stored(found)

    def stored(self, tensor):
        """The same elements, lying in another way."""
        way = self.random.randrange(8)
        if way == 0 and tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        if way == 1 and tensor.dim():
            return torch.stack([tensor, tensor], -1)[..., 0]
        if way == 2 and tensor.dim() and tensor.shape[0]:
            return tensor[:1].expand(tensor.shape)
        if way == 3:
            return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor
        return self.some((tensor,), (None, tensor.to("meta"), tensor.tolist(), "x"), 0.03)

    def images(self, channels=(1, 4, 8, 0)):
        sides = self.some(((6, 5), (1, 9), (8, 8)), ((0, 5), (5, 0)))
        shape = (self.random.choice((1, 2, 0, 2)), self.random.choice(channels), *sides)
        return self.tensor(shape if self.random.random() < 0.9 else shape[1:])

    def boxes(self):
        count = self.random.randrange(5)
        if self.random.random() < 0.2:
            listed = [self.tensor((count, 4), values=WILD) for _ in range(self.random.randrange(4))]
            return self.some((listed, tuple(listed)), (None, [1], [[0, 0, 1, 1]], "boxes", 3))
        corners = self.tensor((count, 4), values=WILD)
        if not isinstance(corners, torch.Tensor) or corners.dim() != 2 or corners.is_meta:
            return corners
        numbers = [self.some((0, 0, 1), (-1, 2, math.nan, 1e30, 0.5)) for _ in range(len(corners))]
        images = torch.tensor(numbers, dtype=torch.float64).reshape(-1, 1)
        images = images.nan_to_num(0) if not corners.is_floating_point() else images
        return self.stored(torch.cat([images.to(corners.dtype), corners], 1))

    def regions(self, *rest):
        bins = self.some((1, 2, 3, (2, 3), (1, 2)), NUMBERS, 0.2)
        scale = self.some((1.0, 0.5, 2.0), REALS, 0.2)
        return (self.images(), self.boxes(), bins, scale, *rest)

    def ratio(self):
        return self.some((-1, 0, 1, 2), (*NUMBERS[:13], 2**16), 0.2)


def roi_align(draw):
    return (*draw.regions(), draw.ratio(), draw.some((True, False), (None, 2, "yes"), 0.04))


def roi_pool(draw):
    return draw.regions()


def ps_roi_align(draw):
    return (*draw.regions(), draw.ratio())


def ps_roi_pool(draw):
    return draw.regions()


def nms(draw):
    count = draw.random.randrange(6)
    boxes = draw.tensor((count, 4), values=WILD)
    return boxes, draw.tensor((count,)), draw.some((0.5, 0.0), (*REALS, 2.0, -1.0), 0.3)


def batched_nms(draw):
    boxes, scores, threshold = nms(draw)
    count = len(scores) if isinstance(scores, torch.Tensor) and scores.dim() else 3
    return boxes, scores, draw.tensor((count,), values=(0, 1, 7)), threshold


def deform_conv2d(draw):
    n, c, o = (draw.random.choice(sizes) for sizes in ((0, 1, 2), (2, 4), (2, 6)))
    kh, kw = draw.random.choice(((1, 1), (3, 2)))
    offset = draw.tensor((n, 2 * kh * kw, 6, 5), values=(0.0, 0.5, -3.25, 9.0))
    if draw.random.random() < 0.15:
        offset = draw.tensor((n, 2 * kh * kw, 6, 5), values=WILD)
    x = draw.tensor((n, c, 5 + kh, 4 + kw))
    weight = draw.tensor((o, c, kh, kw))
    bias = draw.some((None, draw.tensor((o,))), (3, draw.tensor((o + 1,))), 0.05)
    mask = draw.some((None, draw.tensor((n, kh * kw, 6, 5))), (3, draw.tensor((n, 1, 6, 5))), 0.05)
    numbers = [draw.some((usual,), (*NUMBERS, (1, 0), (-1, 1)), 0.08) for usual in (1, 0, 1)]
    return x, offset, weight, bias, *numbers, mask


def vector_norm(draw):
    x = draw.tensor(draw.random.choices(SIZES, k=draw.random.randrange(5)))
    p = draw.some((2, 1, 0, math.inf, -math.inf, 3.0), (*REALS, "fro", 2**70, 1j, -2.5), 0.3)
    dim = draw.some((None, -1, (0,), ()), (*NUMBERS, (0, 0), (1.5,), [None], 9, (0, -1)), 0.3)
    keep = draw.some((True, False), (None, 2, "yes"), 0.05)
    return x, p, dim, keep


def rearranged(draw, shape):
    x = draw.tensor(shape)
    return x, draw.some((1, 2, 3), NUMBERS, 0.3)


def pixel_shuffle(draw):
    return rearranged(draw, draw.random.choice(((2, 36, 3, 2), (36, 1, 5), (2, 4, 0, 3))))


def pixel_unshuffle(draw):
    return rearranged(draw, draw.random.choice(((2, 1, 6, 12), (3, 6, 6), (0, 2, 6, 6))))


def space_to_depth(draw):
    return *pixel_unshuffle(draw), draw.some(("CRD", "DCR"), (None, "", "crd", 3), 0.1)


KINDS = (
    roi_align, roi_pool, ps_roi_align, ps_roi_pool, nms, batched_nms, deform_conv2d, vector_norm,
    pixel_shuffle, pixel_unshuffle, space_to_depth,
)  # fmt: skip


def described(value):
    """An argument in a line."""
    if isinstance(value, torch.Tensor):
        few = value.tolist() if value.numel() <= 20 and not value.is_meta else ""
        return f"{value.dtype}{list(value.shape)}/{value.stride()}@{value.device}{few}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(described, value))}]"
    return repr(value)


class Poisoned:
    """Workspaces whose memory is filled before operators get it."""

    def __init__(self, workspaces):
        self.own, self.byte = workspaces, 0
        self.give_back = workspaces.give_back

    def take(self, nbytes):
        block = self.own.take(nbytes)
        ctypes.memset(block.address, self.byte, min(nbytes, 1 << 22))
        return block


def outcome(call, inputs):
    """Result and gradients, or the error that it is right to raise."""
    for tensor in inputs:
        tensor.grad = None
    try:
        y = call()
        if y.requires_grad:
            y.backward(torch.full_like(y, 0.5))
    except (OperandError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    except RuntimeError as error:
        if "Expected a value of type" not in str(error):  # PyTorch's parser of arguments
            raise
        return str(error)
    return [y.detach(), *(t.grad for t in inputs if t.grad is not None)]


def same(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return all(
        x.is_meta or torch.allclose(x, y, rtol=0, atol=0, equal_nan=True)
        for x, y in zip(a, b, strict=True)
    )


def attempt(kind, draw, workspaces):
    """One call, with both poisons; whether it was refused."""
    arguments = kind(draw)
    differentiated = draw.random.random() < 0.4
    print(kind.__name__, described(arguments), differentiated, flush=True)
    inputs = [
        value.requires_grad_()
        for value in arguments
        if differentiated and isinstance(value, torch.Tensor) and value.is_floating_point()
    ]
    found = []
    for poison in POISONS:
        workspaces.byte = poison
        # PyTorch then fills whatever it allocates with NaN or the largest integer.
        torch.use_deterministic_algorithms(poison == POISONS[0])
        found.append(outcome(lambda: getattr(ops, kind.__name__)(*arguments), inputs))
    assert same(*found), found
    if isinstance(found[0], str):
        return True
    hold(kind.__name__, arguments, found[0][0])
    return False


def hold(name, arguments, y):
    """Against what the operator means, computed by NumPy or PyTorch."""
    x, *rest = (a.detach() if isinstance(a, torch.Tensor) else a for a in arguments)
    if y.is_meta or any(isinstance(a, torch.Tensor) and a.dtype not in DTYPES for a in (x, *rest)):
        return
    wanted = meaning(name, x, *rest)
    if wanted is not None:
        near = {"rtol": 1e-3, "atol": 1e-3, "equal_nan": True, "check_dtype": False}
        torch.testing.assert_close(y, wanted, **near)


def meaning(name, x, *rest):
    """What a call should give; None where there is no quick way to know."""
    if name == "vector_norm":
        p, dim, keep = rest
        if p != "fro" and not (p in (0, math.inf, -math.inf) or 0.1 < abs(p) < 10):
            return None  # powers overflow, and PyTorch leaves out those of one element
        p, dim = 2 if p == "fro" else float(p), dim if dim is None else tuple(np.ravel(dim))
        return torch.linalg.vector_norm(x, p, tuple(map(int, dim or ())) or None, bool(keep))
    if name.startswith("pixel") and x.numel():  # of nothing PyTorch gives other shapes
        return getattr(torch.nn.functional, name)(x, int(rest[0]))
    if name == "nms":
        *_, count = kept = Nms(rest[1]).reference(x.numpy(), rest[0].numpy())[0]
        return torch.from_numpy(kept[:count])
    makers = {
        "roi_align": RoiAlign, "roi_pool": RoiPool,
        "ps_roi_align": lambda bins, scale, ratio: PsRoi(bins, scale, "align", max(ratio, 0)),
        "ps_roi_pool": lambda bins, scale: PsRoi(bins, scale, "pool"),
    }  # fmt: skip
    if name not in makers:
        return None
    boxes, bins, scale, *more = rest
    images = x if x.dim() == 4 else x[None]
    rois = joined_boxes(boxes, x).detach()
    if rois.dtype not in DTYPES or (more and more[0] > 4):
        return None
    bins = tuple(map(int, bins_of(bins)))
    if max(bins) > 16:  # of nothing
        return None
    op = makers[name](bins, float(scale), *(int(n or 0) for n in more))
    return torch.from_numpy(op.reference(images.numpy(), rois.numpy())[0])


def main(seed, calls):
    """Half of the calls or more are such as have a result."""
    np.seterr(all="ignore")
    os.environ["SACCADE_CHECKED"] = str(seed % 2)
    torch.manual_seed(seed)
    draw = Draw(seed)
    workspaces = library().workspaces = Poisoned(library().workspaces)
    refused = sum(attempt(draw.random.choice(KINDS), draw, workspaces) for _ in range(calls))
    print("refused", refused, "of", calls)
    assert calls // 10 < refused < calls * 2 // 3


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
