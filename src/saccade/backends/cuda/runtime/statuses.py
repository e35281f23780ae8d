"""What the driver's error codes mean to a runtime."""

from __future__ import annotations

__all__ = ["FATAL", "FOREIGN", "FORKED"]

FOREIGN = (
    "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_INVALID_PTX",
)  # fmt: skip
FORKED = (
    "a GPU that was used before a fork cannot be used in the child: start processes with "
    "multiprocessing's spawn or forkserver"
)
FATAL = frozenset(
    {
        "CUDA_ERROR_ASSERT", "CUDA_ERROR_CONTAINED", "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_EXTERNAL_DEVICE", "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE", "CUDA_ERROR_UNKNOWN",
    }
)  # fmt: skip
"""Errors after which a context answers nothing more."""
