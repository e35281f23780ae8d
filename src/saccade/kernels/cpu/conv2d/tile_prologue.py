"""Prologues of convolutions in tiles of matrices: of one tap, channel by channel."""

from __future__ import annotations

from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS

__all__ = ["prologue_fits", "prologue_images"]


def prologue_fits(call: CpuCall) -> bool:
    """Whether windows have one tap, lie on the image, and operands lie as channels do."""
    op = call.op
    if call.inputs[1].shape[2:] != (1, 1) or any(op.padding) or op.groups != 1:
        return False
    return all(
        view.dtype in FLOATS and (view.strides[1] == 1 or view.shape[1] == 1)
        for view in call.inputs[2 : 2 + op.n_prologue]
    )


def prologue_images(call: CpuCall) -> tuple[int, ...]:
    """Elements from image to image of each operand."""
    shape = (call.inputs[0].shape[0], call.inputs[1].shape[1], 1, 1)
    operands = call.inputs[2 : 2 + call.op.n_prologue]
    return tuple(view.broadcast_to(shape).strides[0] for view in operands)
