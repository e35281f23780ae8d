"""What is measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "DETECTORS", "GPU_CASES", "STARTS", "Case", "cases_of", "select"]

_FP32 = ("saccade", "onnxruntime", "openvino")
_BF16 = ("saccade", "openvino", "saccade:fp32")
_GPU = ("saccade", "inductor")


@dataclass(frozen=True, slots=True)
class Case:
    """A model file (without its suffix) at one input shape.

    Attributes:
        name, model, shape: What runs.
        precision: Arithmetic of all engines that do not name their own.
        engines: Who takes part unless the command line names others; ours first.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    precision: str = "fp32"
    engines: tuple[str, ...] = _FP32


CASES: tuple[Case, ...] = (
    Case("resnet50", "resnet50", (1, 3, 224, 224)),
    Case("resnet50 batch 8", "resnet50", (8, 3, 224, 224)),
    Case("mobilenet_v3_large", "mobilenet_v3_large", (1, 3, 224, 224)),
    Case("shufflenet_v2_x1_0", "shufflenet_v2_x1_0", (1, 3, 224, 224)),
    Case("efficientnet_b0", "efficientnet_b0", (1, 3, 224, 224)),
    Case("densenet121", "densenet121", (1, 3, 224, 224)),
    Case("vgg16", "vgg16", (1, 3, 224, 224), engines=(*_FP32, "ncnn")),
    Case("deeplabv3_mobilenet", "deeplabv3_mobilenet", (1, 3, 520, 520)),
    Case("subpixel_x4", "subpixel_x4", (1, 3, 180, 320)),
    Case("resnet50 bf16", "resnet50", (1, 3, 224, 224), "bf16", _BF16),
    Case("resnet50 batch 8 bf16", "resnet50", (8, 3, 224, 224), "bf16", _BF16),
    Case("mobilenet_v3_large bf16", "mobilenet_v3_large", (1, 3, 224, 224), "bf16", _BF16),
    Case("shufflenet_v2_x1_0 bf16", "shufflenet_v2_x1_0", (1, 3, 224, 224), "bf16", _BF16),
    Case("efficientnet_b0 bf16", "efficientnet_b0", (1, 3, 224, 224), "bf16", _BF16),
    Case("densenet121 bf16", "densenet121", (1, 3, 224, 224), "bf16", _BF16),
    Case("vgg16 bf16", "vgg16", (1, 3, 224, 224), "bf16", _BF16),
    Case("deeplabv3_mobilenet bf16", "deeplabv3_mobilenet", (1, 3, 520, 520), "bf16", _BF16),
    Case("subpixel_x4 bf16", "subpixel_x4", (1, 3, 180, 320), "bf16", _BF16),
)

DETECTORS: tuple[Case, ...] = (
    Case("ssdlite320_mobilenet", "ssdlite320_mobilenet", (3, 320, 320)),
    Case("fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn", (3, 480, 640)),
)
"""Whole detectors: how many boxes they give depends on the picture."""

STARTS: tuple[Case, ...] = (
    *(case for case in CASES if case.precision == "fp32" and case.shape[0] == 1),
    Case("vit_b_16", "vit_b_16", (1, 3, 224, 224)),
    *DETECTORS,
)
"""What first answers and memory are measured of: every network once."""


def _on_gpu(precision: str, model: str, *batches: int, size: tuple[int, int]) -> list[Case]:
    """A model at one size of images, a case for each batch."""
    return [
        Case(f"{model} {precision} batch {batch}", model, (batch, 3, *size), precision, _GPU)
        for batch in batches
    ]


_SQUARE = (224, 224)
GPU_CASES: tuple[Case, ...] = (
    *_on_gpu("fp16", "resnet50", 1, 32, 128, size=_SQUARE),
    *_on_gpu("fp16", "mobilenet_v3_large", 1, 64, size=_SQUARE),
    *_on_gpu("fp16", "shufflenet_v2_x1_0", 1, 64, size=_SQUARE),
    *_on_gpu("fp16", "efficientnet_b0", 1, 64, size=_SQUARE),
    *_on_gpu("fp16", "densenet121", 1, 64, size=_SQUARE),
    *_on_gpu("fp16", "vit_b_16", 1, 32, size=_SQUARE),
    *_on_gpu("fp16", "deeplabv3_mobilenet", 8, size=(520, 520)),
    *_on_gpu("fp16", "subpixel_x4", 1, size=(720, 1280)),
    *_on_gpu("bf16", "resnet50", 32, size=_SQUARE),
    *_on_gpu("bf16", "vit_b_16", 32, size=_SQUARE),
    *_on_gpu("fp32", "resnet50", 1, 32, size=_SQUARE),
    *_on_gpu("fp32", "mobilenet_v3_large", 64, size=_SQUARE),
    *_on_gpu("fp32", "subpixel_x4", 1, size=(720, 1280)),
)
"""What GPUs are measured on."""


def cases_of(suite: str) -> tuple[Case, ...]:
    """What a suite measures when no case is named.

    Latency takes all of the CPU's, threads those in fp32, first answers and memory every network
    once, sizes one that classifies and one that segments, the slowest suite ResNet-50.
    """
    if suite == "cuda":
        return GPU_CASES
    if suite == "latency":
        return CASES
    if suite == "detectors":
        return DETECTORS
    if suite in {"startup", "memory"}:
        return STARTS
    if suite == "sizes":
        return select("resnet50, deeplabv3_mobilenet")
    return tuple(c for c in CASES if c.precision == "fp32") if suite == "threads" else CASES[:1]


def select(names: str, cases: tuple[Case, ...] = CASES) -> tuple[Case, ...]:
    """The cases named in a comma-separated list, all for an empty one.

    Raises:
        ValueError: A name is unknown.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {case.name: case for case in cases}
    for name in wanted:
        if name not in known:
            raise ValueError(f"no case {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in wanted) if wanted else cases
