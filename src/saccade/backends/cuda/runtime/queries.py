"""What CUDA's driver answers about GPUs and loaded code, through `cuda.bindings`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade.backends.cuda.runtime.driver import DeviceFacts, FunctionFacts, Multiprocessor
from saccade.errors import DeviceError

__all__ = ["checked", "queried_device", "queried_function"]

_KDL_CUDA = 2  # DLPack's number of CUDA's memory


def checked(status: Any, call: str) -> None:  # noqa: ANN401 - the bindings carry no types
    """Raise `DeviceError` unless a call before there is a context was done."""
    if status.name != "CUDA_SUCCESS":
        raise DeviceError(f"device cuda cannot be used: {call} says {status.name}")


def queried_device(api: Any, ordinal: int) -> DeviceFacts:  # noqa: ANN401
    """A GPU; makes no context."""

    def asked(call: str, *arguments: object) -> Any:  # noqa: ANN401
        status, value = getattr(api, call)(*arguments)
        checked(status, call)
        return value

    def number(name: str) -> int:
        attribute = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(asked("cuDeviceGetAttribute", attribute, device))

    device = asked("cuDeviceGet", ordinal)
    # The bindings give all 256 bytes, zeros behind the name.
    name = asked("cuDeviceGetName", 256, device).split(b"\0")[0].decode("ascii", "replace")
    arch = 10 * number("COMPUTE_CAPABILITY_MAJOR") + number("COMPUTE_CAPABILITY_MINOR")
    return DeviceFacts(
        ordinal,
        name,
        arch,
        int(asked("cuDeviceTotalMem", device)),
        number("MULTIPROCESSOR_COUNT"),
        # More than what a launch gets unasked; `BoundDriver.load` asks for it.
        number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        bool(number("VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED")),
        (_KDL_CUDA, ordinal),
        Multiprocessor(
            number("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            number("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            number("RESERVED_SHARED_MEMORY_PER_BLOCK"),
            number("MAX_THREADS_PER_MULTIPROCESSOR"),
            number("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        ),
        int(asked("cuDriverGetVersion")),
    )


def queried_function(
    api: Any,  # noqa: ANN401
    do: Callable[..., Any],
    function: Any,  # noqa: ANN401
    threads: int,
    shared: int,
) -> FunctionFacts:
    """Loaded code.

    Args:
        api: The bindings.
        do: Calls a function of theirs by name, and looks at what it returns.
        function: Handle of the code.
        threads: Of a program.
        shared: Bytes of its dynamic shared memory.
    """

    def number(name: str) -> int:
        attribute = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(do("cuFuncGetAttribute", attribute, function))

    resident = do("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared)
    return FunctionFacts(
        number("NUM_REGS"), number("LOCAL_SIZE_BYTES"), number("SHARED_SIZE_BYTES"), int(resident)
    )
