"""What the tests of kernels over regions share: images' sizes, boxes, views."""

from __future__ import annotations

import numpy as np

from saccade.ir import DType
from saccade.testing.kernels import nchw_view, nhwc_view, row_major

N, H, W = 3, 13, 11
FEW = (("avx512", False, 1, None), ("avx512", True, 5, (3, 1, 4, 0, 2)))
REPORT = row_major(DType.I32, (1,))
VIEWS = {"planar": nchw_view, "last": nhwc_view}


def some_boxes(rng, count=12, *, finite=False):
    """Multiples of 1/8, so that positions are exact at a scale of 1/2.

    Inside, outside, across borders, to the last row and column, smaller than a pixel, empty,
    without an image, and unless `finite` of NaN and of infinite size.
    """
    boxes = rng.integers(-32, 160, (count, 5)) / 8.0
    boxes[:, 0] = rng.integers(0, N, count)
    boxes[0, 1:] = (-60, -60, -40, -40)
    boxes[1, 1:] = (2, 3, 2, 3)
    boxes[2, 1:] = (0, 0, 2 * W + 4, 2 * H + 4) if finite else (np.nan, 0, 5, 5)
    boxes[3, 1:] = (1, 1, 9, 5) if finite else (0, -np.inf, 5, np.inf)
    boxes[4, 1:] = (-40, -24, 40, 72)
    boxes[5, 0] = N
    boxes[6, 0] = np.nan
    boxes[7, 1:] = (3, 3, 3.5, 3.25)
    return boxes.astype(np.float32)
