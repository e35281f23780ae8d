"""What is measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case", "cases_of", "select"]

_FP32 = ("saccade", "onnxruntime", "openvino")
_BF16 = ("saccade", "openvino", "saccade:fp32")


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


def cases_of(suite: str) -> tuple[Case, ...]:
    """What a suite measures when no case is named.

    Latency takes all, threads those in fp32, the slower suites ResNet-50.
    """
    if suite == "latency":
        return CASES
    return tuple(c for c in CASES if c.precision == "fp32") if suite == "threads" else CASES[:1]


def select(names: str) -> tuple[Case, ...]:
    """The cases named in a comma-separated list, all for an empty one.

    Raises:
        ValueError: A name is unknown.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {case.name: case for case in CASES}
    for name in wanted:
        if name not in known:
            raise ValueError(f"no case {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in wanted) if wanted else CASES
