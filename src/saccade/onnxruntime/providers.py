"""What ONNX Runtime calls a device: an execution provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from saccade.devices import device_named
from saccade.errors import DeviceError, OptionError
from saccade.logs import logger

__all__ = [
    "CPU",
    "CUDA",
    "GPUS",
    "chosen_providers",
    "get_all_providers",
    "get_available_providers",
    "get_device",
]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
GPUS = ("NvTensorRtRtxExecutionProvider", "TensorrtExecutionProvider", CUDA)
"""Those that stand for NVIDIA's GPUs."""
_ELSEWHERE = (
    "ACL", "ArmNN", "Azure", "CANN", "CoreML", "Dml", "Dnnl", "Js", "MIGraphX", "Nnapi", "OpenVINO",
    "QNN", "ROCM", "Rknpu", "VSINPU", "VitisAI", "WebGpu", "WebNN", "Xnnpack",
)  # fmt: skip


def get_all_providers() -> list[str]:
    """All that ONNX Runtime has, wherever it was built."""
    return [*GPUS, *(f"{name}ExecutionProvider" for name in _ELSEWHERE), CPU]


def get_available_providers() -> list[str]:
    """What sessions run on here: GPUs where the driver shows one, and CPUs."""
    return [CUDA, CPU] if _has_gpu() else [CPU]


def get_device() -> str:
    """`GPU` where there is one, else `CPU`."""
    return "GPU" if _has_gpu() else "CPU"


def _has_gpu() -> bool:
    try:
        device_named("cuda").facts()
    except DeviceError:
        return False
    return True


def chosen_providers(
    providers: object, provider_options: object = None, *, strict: bool = False
) -> dict[str, dict[str, str]]:
    """Options by provider, in order; says which of them are not here.

    Args:
        providers: Names, or pairs of names and options; None for none.
        provider_options: Of each provider, where those are names.
        strict: Refuse a name that is no provider's.

    Raises:
        OptionError: If they are of another form.
    """
    found: dict[str, dict[str, str]] = {}
    for name, options in _pairs(providers, provider_options):
        if strict and name not in get_all_providers():
            raise OptionError(f"there is no provider {name!r}")
        if name in found:
            logger().warning("provider %s is given twice: the first counts", name)
            continue
        if name not in (*GPUS, CPU):
            logger().warning("provider %s is not used: there are %s and %s", name, CUDA, CPU)
        found[name] = {str(key): str(value) for key, value in options.items()}
        # The first GPU is the one that is taken.
        idle = [f"{key}={value}" for key, value in found[name].items() if key != "device_id"]
        if found[name].get("device_id", "0") != "0":
            idle.append(f"device_id={found[name]['device_id']}")
        if idle:
            logger().warning("%s: %s has no meaning here", name, ", ".join(idle))
    return found


def _pairs(providers: object, options: object) -> Iterator[tuple[str, Mapping[object, object]]]:
    for what, given in (("providers", providers), ("provider_options", options)):
        if given is not None and (isinstance(given, str) or not isinstance(given, Sequence)):
            raise OptionError(f"{what} must be a list, not {given!r}")
    each = list[object](providers) if isinstance(providers, Sequence) else []
    if isinstance(options, Sequence) and each:
        if len(options) != len(each):
            raise OptionError(f"{len(options)} provider_options for {len(each)} providers")
        each = list(zip(each, options, strict=True))
    for one in each:
        match one:
            case str():
                yield one, {}
            case (str() as name, Mapping() as given):
                yield name, given
            case _:
                raise OptionError(f"a provider is a name, or a name and a dict, not {one!r}")
