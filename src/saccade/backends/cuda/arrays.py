"""The caller's arrays on a GPU: PyTorch's, CuPy's and any with `__dlpack__`, and the host's.

What lies on the GPU, dense and row-major, is read where it is. PyTorch's tensors are read on
PyTorch's current stream and programs run there; other libraries' arrays are read on a stream of
ours, which waits for theirs as DLPack has it. What lies on the host is copied to the GPU, and
results are copied back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.backends.inputs import (
    UNREADABLE,
    check_fits,
    detached,
    host_array,
    on_another_device,
)
from saccade.errors import InputError, OutOfMemoryError
from saccade.ir import DType
from saccade.locks import forkless
from saccade.signature import shape_text

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.ir import Array
    from saccade.program import DeviceBuffer, Result
    from saccade.signature import TensorInfo

__all__ = ["CudaArrays"]

_KDL_CPU, _KDL_CUDA, _KDL_MANAGED = 1, 2, 13  # DLPack's numbers of devices
_LEGACY = 1  # DLPack's name for the legacy default stream


class CudaArrays:
    """Results are PyTorch's tensors, NumPy's arrays or `DeviceArray`s, as the inputs were.

    Args:
        device: Opens the GPU; asked when the first array comes.
    """

    def __init__(self, device: Callable[[], DeviceContext]) -> None:
        self._device = device

    def take(self, info: TensorInfo, value: object) -> DeviceArray:
        """Elements of the input's type and shape, one after the other in the GPU's memory.

        Raises:
            InputError: If it is no array, or of another dtype, shape or GPU, or on the GPU with
                gaps that only its own library can close.
            OutOfMemoryError: If it has to be copied and there is no memory.
            DeviceError: If there is no GPU, or it was lost.
        """
        device = self._device()
        # Whoever gives a tensor has imported PyTorch; nobody else has to wait for that.
        torch = sys.modules.get("torch")
        tensor = cast("Result", value)
        if torch is not None and type(value) is torch.Tensor and tensor.is_cuda:
            found = _plain_tensor(info, tensor, torch, device)
            if found is not None:
                return found
        # Our own arrays know their stream: the way through DLPack would make a capsule for nothing.
        if isinstance(value, DeviceArray) and value.device is device:
            check_fits(info, value.kind.value, value.shape)
            return value
        if not isinstance(value, np.ndarray) and _on_gpu(value, device):
            return _in_place(info, value, device)
        return _uploaded(info, _host(info, value, device), device)

    def give(self, results: Sequence[DeviceBuffer], given: Iterable[object]) -> tuple[Result, ...]:
        """Results where the inputs were, as arrays of their library.

        Raises:
            DeviceError: If the GPU was lost.
        """
        arrays = cast("Sequence[DeviceArray]", results)  # by the programs that took ours
        values, device = list(given), self._device()
        torch = sys.modules.get("torch")
        tensors = [v for v in values if torch is not None and isinstance(v, torch.Tensor)]
        if torch is not None and tensors:
            if any(_on_gpu(tensor, device) for tensor in tensors):
                return tuple(_gpu_tensor(torch, a) for a in arrays)
            return tuple(_host_tensor(torch, a) for a in arrays)
        if any(not isinstance(v, np.ndarray) and _on_gpu(v, device) for v in values):
            return tuple(arrays)
        return tuple(a.numpy() for a in arrays)

    queued = 20
    """Calls only enqueue, and one may be shorter than what its clock and its launch take."""

    def clock(self, call: Callable[[], object], runs: int) -> float:
        """Milliseconds of a call between two events on this thread's stream.

        Raises:
            DeviceError: If there is no GPU, or it was lost.
        """
        with forkless:
            from saccade.backends.cuda.runtime.context import elapsed  # noqa: PLC0415 - seldom asked

        return elapsed(self._device(), call, runs)


def _name(device: tuple[int, int]) -> str:
    return f"cuda:{device[1]}"


def _on_gpu(value: object, device: DeviceContext) -> bool:
    """Whether an array lies on a GPU of this kind, whichever."""
    say = getattr(value, "__dlpack_device__", None)
    if say is None:
        return False
    # Managed memory can be read by the GPU, wherever it is.
    kinds = {device.dlpack[0], *((_KDL_MANAGED,) if device.dlpack[0] == _KDL_CUDA else ())}
    try:
        return int(say()[0]) in kinds
    except UNREADABLE:  # tensors without elements, whose layout or kind is refused later
        return False


def _plain_tensor(
    info: TensorInfo, tensor: Result, torch: Result, device: DeviceContext
) -> DeviceArray | None:
    """A tensor that is nothing but dense elements on this GPU, without DLPack's 50 µs; else None.

    Results of such a call are tensors of PyTorch's own memory.
    """
    index = tensor.get_device()
    kind = DType(info.dtype)
    known = getattr(torch, info.dtype, None)
    # PyTorch may negate lazily: such a tensor's memory has the opposite numbers.
    plain = tensor.dtype is known and tensor.is_contiguous() and not tensor.is_neg()
    if not plain or index != device.dlpack[1] or tensor.requires_grad:
        return None
    shape = tuple(tensor.shape)
    check_fits(info, info.dtype, shape)
    # A plain number, where the public `current_stream` makes an object for every call.
    stream = int(torch._C._cuda_getCurrentRawStream(index))
    return DeviceArray(
        device, tensor.data_ptr(), shape, kind, stream, tensor, caller=True, make=_torch_empty
    )


def _torch_empty(
    device: DeviceContext, shape: tuple[int, ...], kind: DType, stream: int
) -> DeviceArray:
    """Memory of PyTorch's for a result."""
    torch: Result = sys.modules["torch"]
    where = torch.device("cuda", device.dlpack[1])
    try:
        made = torch.empty(shape, dtype=getattr(torch, kind.value), device=where)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(str(error).partition(".")[0]) from error
    return DeviceArray(device, made.data_ptr(), shape, kind, stream, made, caller=True)


def _gpu_tensor(torch: Result, array: DeviceArray) -> Result:
    """A result as a tensor: PyTorch's own where it was made in its memory."""
    made = cast("Result", array.owner)
    # What was cut to its length after the run lies elsewhere.
    own = isinstance(made, torch.Tensor) and made.data_ptr() == array.address
    if own and tuple(made.shape) == array.shape:
        return made
    return torch.from_dlpack(array)


def _in_place(info: TensorInfo, value: object, device: DeviceContext) -> DeviceArray:
    """An array on the GPU, where it lies."""
    plain = detached(info, value)
    _, number = plain.__dlpack_device__()
    if number != device.dlpack[1]:
        raise on_another_device(info, _name((_KDL_CUDA, number)), _name(device.dlpack))
    torch = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(plain, torch.Tensor)
    with device.driver.current():
        stream = _torch_stream(plain) if of_torch else None
        caller, stream = stream is not None, device.stream() if stream is None else stream
    plain = plain.contiguous() if of_torch else plain
    with forkless:
        from saccade.backends.cuda.runtime.dlpack import imported  # noqa: PLC0415 - not for NumPy's

    # Tests' GPUs lie in the host's memory, where no stream is taken; DLPack takes no stream 0.
    options = {} if device.dlpack[0] == _KDL_CPU else {"stream": stream or _LEGACY}
    try:
        found = imported(plain.__dlpack__(**options))
    except UNREADABLE as error:
        kind = getattr(value, "dtype", type(value).__name__)
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {shape_text(info.shape)}, "
            f"given is {kind}, which cannot be read: {error}"
        ) from error
    check_fits(info, found.type_name, found.shape)
    if not found.dense:
        raise InputError(
            f"input {info.name!r} is a {type(value).__name__} on the GPU that is not row-major "
            "without gaps: give a contiguous copy of it"
        )
    kind = DType(info.dtype)
    return DeviceArray(device, found.address, found.shape, kind, stream, found.owner, caller=caller)


def _torch_stream(tensor: Result) -> int | None:
    """PyTorch's current stream on the tensor's GPU; None for tensors elsewhere."""
    if not tensor.is_cuda:
        return None
    return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)


def _host(info: TensorInfo, value: object, device: DeviceContext) -> Array:
    """An array of the host's memory; bfloat16 as PyTorch has it, too."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16:
        plain = detached(info, value)
        check_fits(info, "bfloat16", tuple(plain.shape))
        # PyTorch hands NumPy no bfloat16, as NumPy has none of its own: the bits go over.
        bits: Array = plain.contiguous().view(torch.int16).numpy()
        return bits.view(DType.BF16.numpy)
    return host_array(info, value, _name(device.dlpack))


def _uploaded(info: TensorInfo, array: Array, device: DeviceContext) -> DeviceArray:
    with device.driver.current():
        stream = device.stream()
        made = DeviceArray.empty(device, array.shape, DType(info.dtype), stream)
        if made.nbytes:
            with device.staging() as chunks:
                chunks.upload(made.address, array.ctypes.data, made.nbytes, stream)
    return made


def _host_tensor(torch: Result, array: DeviceArray) -> Result:
    found = array.numpy()
    if array.kind is DType.BF16:
        return torch.from_numpy(found.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(found)
