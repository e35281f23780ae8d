"""What `saccade bench-ops` times: operators, operands, their peers, what is aimed at.

Peers are torchvision and PyTorch, called with the same tensors in the same process; `copy_` stands
for the speed of memory, where an operator is bound by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade import ops
from saccade.ops.rearrange import gather_into, spread_into

__all__ = ["Bout", "OperatorCase", "aim_on_gpu", "beside_float32", "cases"]

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Bout:
    """Two functions that take turns.

    Attributes:
        ours: Ours; called without arguments.
        theirs: The peer's. Where both give tensors, they are compared before anything is timed.
        compared: Whether their results say the same.
        truth: What ours is held against in place of theirs, which is less exact.
    """

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    compared: bool = True
    truth: Callable[[], Any] | None = None


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One line of the table.

    Attributes:
        operator: Its name in `saccade.ops`.
        name: Operands, layout, and what of it: forward, backward.
        peer: "torchvision", "torch", "copy", "float32" (see `beside_float32`), or "empty" (see
            `_call_cases`).
        aim: The peer's time over ours that is aimed at; microseconds over that of an empty one.
        make: Gives the bout for a dtype and a device; operands are made there.
    """

    operator: str
    name: str
    peer: str
    aim: float
    make: Callable[[torch.dtype, str], Bout]


def cases() -> tuple[OperatorCase, ...]:
    """All of them."""
    return (*_deform(), *_rois(), *_suppression(), *_norms(), *_shuffles())


def beside_float32(case: OperatorCase) -> OperatorCase:
    """The same operands, ours in their dtype and ours in float32: what fewer bytes gain."""

    def make(dtype: torch.dtype, device: str) -> Bout:
        ours, wide = case.make(dtype, device).ours, case.make(torch.float32, device).ours
        return Bout(ours, wide, compared=False)

    return OperatorCase(case.operator, case.name, "float32", 1.0, make)


_GPU_AIMS: dict[tuple[str, str, str], float] = {
    ("deform_conv2d", "forward", "float16"): 32, ("deform_conv2d", "trained", "float16"): 300,
    ("deform_conv2d", "forward", "float32"): 200, ("deform_conv2d", "trained", "float32"): 800,
    ("roi_align", "NCHW, forward", "float32"): 100, ("roi_align", "NCHW, trained", "float32"): 300,
    ("roi_align", "channels-last, forward", "float32"): 65,
    ("roi_align", "channels-last, forward", "float16"): 40,
    ("roi_align", "channels-last, trained", "float32"): 300,
    ("roi_pool", "NCHW, forward", "float32"): 100,
    ("roi_pool", "channels-last, forward", "float32"): 100,
    ("nms", "1000 boxes", "float32"): 100, ("nms", "4000 boxes", "float32"): 300,
    ("nms", "20000 boxes", "float32"): 1500,
    ("vector_norm", "backward", "float32"): 42, ("vector_norm", "backward", "float16"): 24,
}  # fmt: skip
"""Microseconds on an H200, by operator, how its case ends, and dtype."""


_CALL = 8.0
"""Microseconds of a call over those of an empty one."""


def aim_on_gpu(case: OperatorCase, dtype: str) -> float | None:
    """Microseconds that are aimed at on an H200; None where only a ratio is, or nothing."""
    if case.peer == "empty":
        return _CALL
    name = case.name.replace("forward and backward", "trained")
    for (operator, end, kind), micros in _GPU_AIMS.items():
        if (operator, kind) == (case.operator, dtype) and name.endswith(end):
            return micros
    return None


def _ours(name: str) -> Function:
    found: Function = getattr(ops, name)
    return found


def _peer(name: str) -> Function:
    """Torchvision's function, which is looked for when it is called."""

    def call(*operands: Any, **options: Any) -> Any:  # noqa: ANN401
        import torchvision.ops  # noqa: PLC0415 - an environment of its own: it wants CUDA's PyTorch

        return getattr(torchvision.ops, name)(*operands, **options)

    return call


def _trained(function: Function, operands: list[Tensor], grad: Tensor) -> Callable[[], Any]:
    """Forward and backward, with fresh gradients."""

    def run() -> Any:  # noqa: ANN401
        leaves = [t.detach().requires_grad_() for t in operands]
        function(*leaves).backward(grad)
        return [leaf.grad for leaf in leaves]

    return run


def _deform() -> Iterator[OperatorCase]:
    def operands(dtype: torch.dtype, device: str) -> list[Tensor]:
        random = torch.Generator().manual_seed(0)
        shapes = ((6, 512, 19, 34), (6, 18, 19, 34), (256, 512, 3, 3), (6, 9, 19, 34))
        x, offset, weight, mask = (torch.randn(s, generator=random) for s in shapes)
        # 68 is about the root of 512 · 9, the terms of a sum: results are of size 1.
        return [t.to(device, dtype) for t in (x, offset, weight / 68, mask.sigmoid())]

    def call(function: Function) -> Function:
        return lambda x, offset, weight, mask: function(x, offset, weight, padding=1, mask=mask)

    def forward(dtype: torch.dtype, device: str) -> Bout:
        given = operands(dtype, device)
        # Torchvision's kernels take no bfloat16.
        theirs = [t.float() for t in given] if dtype is torch.bfloat16 else given
        return Bout(
            lambda: call(_ours("deform_conv2d"))(*given),
            lambda: call(_peer("deform_conv2d"))(*theirs),
        )

    def trained(dtype: torch.dtype, device: str) -> Bout:
        given = operands(dtype, device)
        grad = torch.randn(6, 256, 19, 34).to(device, dtype)
        wide = dtype is torch.bfloat16
        theirs = [t.float() for t in given] if wide else given
        floats = [t.float() for t in given]
        return Bout(
            _trained(call(_ours("deform_conv2d")), given, grad),
            _trained(call(_peer("deform_conv2d")), theirs, grad.float() if wide else grad),
            # Torchvision adds gradients up in float16 on GPUs.
            truth=_trained(call(_peer("deform_conv2d")), floats, grad.float()),
        )

    shape = "6x512x19x34, 256 filters 3x3, masks"
    yield OperatorCase("deform_conv2d", f"{shape}, forward", "torchvision", 6.0, forward)
    yield OperatorCase(
        "deform_conv2d", f"{shape}, forward and backward", "torchvision", 15.0, trained
    )


def detector_boxes(count: int, dtype: torch.dtype) -> Tensor:
    """[count, 5]: two images of 800x1216 in turns, corners and sizes uniform in [0, 400)."""
    random = torch.Generator().manual_seed(0)
    corner = 400 * torch.rand(count, 2, generator=random)
    size = 400 * torch.rand(count, 2, generator=random)
    image = (torch.arange(count) % 2)[:, None]
    return torch.cat([image, corner, corner + size], 1).to(dtype)


def _rois() -> Iterator[OperatorCase]:
    aims = {"roi_align": (20.0, 30.0, 15.0), "roi_pool": (15.0, 15.0, 15.0)}
    layouts = {"NCHW": torch.contiguous_format, "channels-last": torch.channels_last}
    for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"):
        # Eight for each of 7x7 bins.
        channels = 392 if name.startswith("ps") else 256
        plain, last, trained = aims.get(name, (8.0, 8.0, 8.0))
        for layout, aim in zip(layouts, (plain, last), strict=True):
            for backward in (False, True):
                yield OperatorCase(
                    name,
                    f"2x{channels}x200x304, 1000 boxes, {layout}, "
                    + ("forward and backward" if backward else "forward"),
                    "torchvision",
                    trained if backward else aim,
                    _roi_bout(name, channels, layouts[layout], backward),
                )


def _roi_bout(
    name: str, channels: int, layout: torch.memory_format, backward: bool
) -> Callable[[torch.dtype, str], Bout]:
    options: dict[str, Any] = {"output_size": (7, 7), "spatial_scale": 0.25}
    if name.endswith("align"):
        options["sampling_ratio"] = 2
    if name == "roi_align":
        options["aligned"] = True

    def make(dtype: torch.dtype, device: str) -> Bout:
        random = torch.Generator().manual_seed(1)
        x = torch.randn(2, channels, 200, 304, generator=random).to(device, dtype)
        x = x.contiguous(memory_format=layout)
        boxes = detector_boxes(1000, torch.float32).to(device)
        wide = x.float() if dtype is torch.bfloat16 else x
        if device != "cpu" and dtype is torch.float16:
            boxes = boxes.to(dtype)  # torchvision's kernels for GPUs take one type

        def run(function: Function, source: Tensor) -> Callable[[], Any]:
            own = boxes.float() if source.dtype is torch.float32 else boxes
            if not backward:
                return lambda: function(source, own, **options)
            kept = channels // 49 if name.startswith("ps") else channels
            grad = torch.ones(1000, kept, 7, 7, dtype=source.dtype, device=device)
            return _trained(lambda t: function(t, own, **options), [source], grad)

        # In float16 torchvision's kernels for GPUs find places in float16, and add gradients up.
        truth = run(_peer(name), x.float()) if dtype is torch.float16 else None
        return Bout(run(_ours(name), x), run(_peer(name), wide), truth=truth)

    return make


def _suppression() -> Iterator[OperatorCase]:
    # `count` is a default of `make`: the loop has gone on when that is called.
    for count, aim in ((1000, 5.0), (4000, 10.0), (20000, 20.0)):

        def make(dtype: torch.dtype, device: str, count: int = count) -> Bout:
            random = torch.Generator().manual_seed(2)
            boxes = detector_boxes(count, dtype)[:, 1:].contiguous().to(device)
            scores = torch.rand(count, generator=random).to(device, dtype)
            # Torchvision's kernels take no bfloat16; on GPUs they find overlaps in float16.
            wide = dtype is torch.bfloat16 or (dtype is torch.float16 and device != "cpu")
            theirs = (boxes, scores)
            if dtype is torch.bfloat16:
                theirs = (boxes.float(), scores.float())
            return Bout(
                lambda: _ours("nms")(boxes, scores, 0.5),
                lambda: _peer("nms")(*theirs, 0.5),
                not wide,
            )

        yield OperatorCase("nms", f"{count} boxes", "torchvision", aim, make)

    def by_classes(dtype: torch.dtype, device: str) -> Bout:
        random = torch.Generator().manual_seed(3)
        boxes = detector_boxes(100_000, torch.float32)[:, 1:].contiguous().to(device, dtype)
        scores = torch.rand(100_000, generator=random).to(device, dtype)
        kinds = torch.randint(80, (100_000,), generator=random).to(device)
        # Torchvision's rounds coordinates.
        return Bout(
            lambda: _ours("batched_nms")(boxes, scores, kinds, 0.5),
            lambda: _peer("batched_nms")(boxes, scores, kinds, 0.5),
            compared=False,
        )

    yield OperatorCase("batched_nms", "100000 boxes, 80 classes", "torchvision", 10.0, by_classes)


def _norms() -> Iterator[OperatorCase]:
    for dim in (-1, 1):
        for p in (1.0, 2.0, 3.0, math.inf):
            text = f"300x250x250, dim {dim}, p = {p:g}"
            yield OperatorCase("vector_norm", f"{text}, forward", "torch", 2.0, _norm(p, dim))
            yield OperatorCase(
                "vector_norm", f"{text}, backward", "torch", 2.0, _norm_gradient(p, dim)
            )


def _norm(p: float, dim: int) -> Callable[[torch.dtype, str], Bout]:
    def make(dtype: torch.dtype, device: str) -> Bout:
        x = torch.randn(300, 250, 250).to(device, dtype)
        return Bout(
            lambda: _ours("vector_norm")(x, p, dim), lambda: torch.linalg.vector_norm(x, p, dim)
        )

    return make


def _norm_gradient(p: float, dim: int) -> Callable[[torch.dtype, str], Bout]:
    def make(dtype: torch.dtype, device: str) -> Bout:
        x = torch.randn(300, 250, 250).to(device, dtype)

        def run(function: Function) -> Callable[[], Any]:
            leaf = x.detach().requires_grad_()
            # Forward is done once, outside the clock, and its graph is used again: backward goes on
            # forward's stream, and the default one cannot be part of a CUDA graph.
            with _stream_of_its_own(device):
                y = function(leaf, p, dim)
                grad = torch.ones_like(y)
            return lambda: torch.autograd.grad(y, leaf, grad, retain_graph=True)

        return Bout(run(_ours("vector_norm")), run(torch.linalg.vector_norm))

    return make


@contextmanager
def _stream_of_its_own(device: str) -> Iterator[None]:
    if device != "cuda":
        yield
        return
    usual, other = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    other.wait_stream(usual)
    with torch.cuda.stream(other):
        yield
    usual.wait_stream(other)


def _shuffles() -> Iterator[OperatorCase]:
    layouts = {"NCHW": torch.contiguous_format, "channels-last": torch.channels_last}
    for layout, kind in layouts.items():
        for name, shape in (
            ("pixel_shuffle", (1, 128, 720, 640)),
            ("pixel_unshuffle", (1, 32, 1440, 1280)),
        ):
            text = f"{'x'.join(map(str, shape))}, factor 2, {layout}"
            yield OperatorCase(name, text, "torch", 2.0, _shuffle(name, shape, kind))
            yield OperatorCase(
                name, f"{text}, into a result", "copy", 0.83, _shuffle_into(name, shape, kind)
            )


def _shuffle(
    name: str, shape: tuple[int, ...], layout: torch.memory_format
) -> Callable[[torch.dtype, str], Bout]:
    def make(dtype: torch.dtype, device: str) -> Bout:
        x = torch.randn(shape).to(device, dtype).contiguous(memory_format=layout)
        theirs = getattr(torch.nn.functional, name)
        return Bout(lambda: _ours(name)(x, 2), lambda: theirs(x, 2))

    return make


def _shuffle_into(
    name: str, shape: tuple[int, ...], layout: torch.memory_format
) -> Callable[[torch.dtype, str], Bout]:
    into = spread_into if name == "pixel_shuffle" else gather_into

    def make(dtype: torch.dtype, device: str) -> Bout:
        x = torch.randn(shape).to(device, dtype).contiguous(memory_format=layout)
        out, copied = _ours(name)(x, 2), torch.empty_like(x)
        # Fresh pages would cost the copy a fault each.
        copied.zero_()
        return Bout(lambda: into(x, out, 2, "CRD"), lambda: copied.copy_(x), compared=False)

    return make
