"""Real networks in tiles: the whole's bits, and those that look at the whole image refused."""

from __future__ import annotations

import numpy as np
import pytest

from saccade import vision
from saccade.errors import OptionError


@pytest.mark.parametrize(("high", "wide", "edge"), [(70, 81, 33), (64, 64, 48)])
def test_an_upscaler_by_four(zoo, high, wide, edge):
    model = zoo.compiled("subpixel_x4", exact=True)
    x = np.random.default_rng(0).random((1, 3, high, wide), np.float32)
    np.testing.assert_array_equal(vision.tiled(model, x, edge), model(x))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("deeplabv3_mobilenet", r"GlobalAveragePool \(Reduce\) takes the mean of the whole image"),
        ("resnet50", r"\(Reduce\) takes the mean of the whole image"),
        ("fasterrcnn_resnet50_fpn", "tiles need a model from one image to one other"),
    ],
)
def test_what_looks_at_the_whole_image_is_refused(zoo, name, reason):
    model = zoo.compiled(name)
    shape = (3, 224, 224) if len(model.inputs[0].shape) == 3 else (1, 3, 224, 224)
    with pytest.raises(OptionError, match=reason):
        vision.tiling_of(model, shape, 64)
