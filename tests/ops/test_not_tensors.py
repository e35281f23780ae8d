"""What is no tensor in the place of one, in every operator; and PyTorch that is not there."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from saccade import ops
from saccade.errors import OperandError

X, BOX = torch.zeros(1, 4, 4, 4), torch.zeros(1, 4)
ONE, OFFSET, WEIGHT = torch.zeros(1), torch.zeros(1, 18, 4, 4), torch.zeros(2, 4, 3, 3)
CALLS = {
    "nms: boxes": lambda bad: ops.nms(bad, ONE, 0.5),
    "nms: scores": lambda bad: ops.nms(BOX, bad, 0.5),
    "batched_nms: boxes": lambda bad: ops.batched_nms(bad, ONE, ONE, 0.5),
    "batched_nms: scores": lambda bad: ops.batched_nms(BOX, bad, ONE, 0.5),
    "batched_nms: idxs": lambda bad: ops.batched_nms(BOX, ONE, bad, 0.5),
    "nms_padded: boxes": lambda bad: ops.nms_padded(bad, ONE, 0.5),
    "nms_padded: scores": lambda bad: ops.nms_padded(BOX, bad, 0.5),
    "nms_padded: idxs": lambda bad: ops.nms_padded(BOX, ONE, 0.5, bad),
    "roi_align: input": lambda bad: ops.roi_align(bad, [BOX], 2),
    "roi_align": lambda bad: ops.roi_align(X, bad, 2),
    "roi_pool: input": lambda bad: ops.roi_pool(bad, [BOX], 2),
    "ps_roi_align: input": lambda bad: ops.ps_roi_align(bad, [BOX], 2),
    "ps_roi_pool: input": lambda bad: ops.ps_roi_pool(bad, [BOX], 2),
    "deform_conv2d: input": lambda bad: ops.deform_conv2d(bad, OFFSET, WEIGHT, padding=1),
    "deform_conv2d: offset": lambda bad: ops.deform_conv2d(X, bad, WEIGHT, padding=1),
    "deform_conv2d: weight": lambda bad: ops.deform_conv2d(X, OFFSET, bad, padding=1),
    "deform_conv2d: bias": lambda bad: ops.deform_conv2d(X, OFFSET, WEIGHT, bad, padding=1),
    "deform_conv2d: mask": lambda bad: ops.deform_conv2d(X, OFFSET, WEIGHT, padding=1, mask=bad),
    "pixel_shuffle: x": lambda bad: ops.pixel_shuffle(bad, 2),
    "pixel_unshuffle: x": lambda bad: ops.pixel_unshuffle(bad, 2),
    "depth_to_space: x": lambda bad: ops.depth_to_space(bad, 2),
    "space_to_depth: x": lambda bad: ops.space_to_depth(bad, 2),
    "vector_norm: x": ops.vector_norm,
}


@pytest.mark.parametrize(
    "bad", [[1.0], np.zeros((1, 4), np.float32), "x"], ids=["list", "array", "text"]
)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_tensor_is_named(call, bad):
    with pytest.raises(OperandError) as caught:
        CALLS[call](bad)
    # Of boxes torchvision has messages of its own.
    assert (call if ":" in call else "boxes") in str(caught.value)


def test_every_function_is_tried():
    tried = {call.partition(":")[0] for call in CALLS} | {"pixel_shuffle", "pixel_unshuffle"}
    others = {"compile_ahead", "load_code", "release_memory", "patch_torchvision"}
    functions = {name for name in ops.__all__ if name[0].islower()}
    assert functions == tried | others


def test_pytorch_that_is_not_there():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    import saccade.ops\nexcept ModuleNotFoundError as error:\n"
        "    print(error.name, str(error))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "torch saccade.ops needs PyTorch: pip install 'saccade[torch]'\n"
