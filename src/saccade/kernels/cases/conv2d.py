"""Convolutions that tests, measurements and tuning share; odd shapes are the rule."""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.opdefs import Conv2d

__all__ = ["CASES", "RESNET_CASES", "ConvCase"]


@dataclass(frozen=True, slots=True)
class ConvCase:
    """One convolution without epilogue.

    Attributes:
        name: For people.
        x: Shape of the input, [N, C, H, W].
        w: Shape of the weights, [K, C/groups, R, S].
        op: Stride, padding, dilation, groups.
    """

    name: str
    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    op: Conv2d = field(default_factory=Conv2d)

    @property
    def depth(self) -> int:
        """How many products each result sums."""
        return self.w[1] * self.w[2] * self.w[3]


CASES = (
    ConvCase("same", (1, 17, 9, 11), (48, 17, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvCase("stride-2", (2, 3, 13, 15), (17, 3, 3, 3), Conv2d((2, 2), (1, 1, 1, 1))),
    ConvCase("asymmetric", (1, 5, 7, 8), (19, 5, 3, 2), Conv2d((2, 1), (0, 2, 1, 1))),
    ConvCase("dilated", (1, 8, 12, 9), (16, 8, 3, 3), Conv2d((1, 1), (3, 2, 3, 2), (3, 2))),
    ConvCase("grouped", (2, 12, 8, 9), (30, 4, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=3)),
    ConvCase("pointwise", (2, 96, 7, 7), (48, 96, 1, 1)),
    ConvCase("pointwise-stride", (1, 33, 9, 10), (65, 33, 1, 1), Conv2d((2, 3))),
    ConvCase("one-channel", (1, 1, 10, 10), (1, 1, 5, 5), Conv2d(padding=(2, 2, 2, 2))),
    ConvCase("depthwise", (1, 17, 8, 7), (17, 1, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=17)),
    ConvCase("multiplier", (1, 5, 6, 6), (10, 1, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=5)),
    ConvCase("one-pixel", (1, 40, 1, 1), (150, 40, 1, 1)),
    ConvCase("wide-kernel", (1, 3, 20, 18), (24, 3, 7, 7), Conv2d((2, 2), (3, 3, 3, 3))),
    ConvCase("padding-only-taps", (1, 4, 2, 3), (8, 4, 3, 3), Conv2d((1, 1), (2, 2, 2, 2), (2, 2))),
    ConvCase("no-images", (0, 8, 9, 9), (16, 8, 3, 3)),
)
"""Small cases for correctness."""

RESNET_CASES = tuple(
    ConvCase(
        f"{c}-{k}-{r}x{r}-{h}" + (f"-s{s}" if s > 1 else ""),
        (1, c, h, h),
        (k, c, r, r),
        Conv2d((s, s), (r // 2,) * 4),
    )
    for c, k, r, h, s in (
        (3, 64, 7, 224, 2),
        (64, 64, 1, 56, 1), (64, 64, 3, 56, 1), (64, 256, 1, 56, 1), (256, 64, 1, 56, 1),
        (256, 128, 1, 56, 1), (128, 128, 3, 56, 2), (256, 512, 1, 56, 2),
        (128, 512, 1, 28, 1), (512, 128, 1, 28, 1), (128, 128, 3, 28, 1),
        (512, 256, 1, 28, 1), (256, 256, 3, 28, 2), (512, 1024, 1, 28, 2),
        (256, 1024, 1, 14, 1), (1024, 256, 1, 14, 1), (256, 256, 3, 14, 1),
        (1024, 512, 1, 14, 1), (512, 512, 3, 14, 2), (1024, 2048, 1, 14, 2),
        (512, 2048, 1, 7, 1), (2048, 512, 1, 7, 1), (512, 512, 3, 7, 1),
    )
)  # fmt: skip
"""The layers of ResNet-50 at 224 x 224, for measurements."""
