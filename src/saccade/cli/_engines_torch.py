"""PyTorch as an engine: operator by operator, and through its compiler.

Both run the module that `torch_module` makes of the file, channels-last, in the type of the
precision asked for, in inference mode; times are of calls on tensors that are on the device.
"""

# ruff: noqa: PLC0415 - PyTorch is optional, and imported in a process of its own

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.cli._engines import Arrays, EngineSpec
from saccade.cli._signature import input_sets, output_kinds
from saccade.devices import device_named
from saccade.errors import OptionError

__all__ = ["InductorEngine", "TorchEngine"]

_DTYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16",
}  # fmt: skip
_IMAGE = 4  # axes of what has a channels-last form


class TorchEngine:
    """PyTorch's own kernels; in `fp64`, what the answers of all engines are held against."""

    def __init__(self, spec: EngineSpec) -> None:
        import torch

        from saccade.cli._torch_module import torch_module

        _expect_device(torch, spec)
        self.version = str(torch.__version__)
        self._torch = torch
        self._device = torch.device(spec.device)
        self._dtype = getattr(torch, _DTYPES[spec.precision])
        self._queued = device_named(spec.device).arrays.queued
        self._kinds = output_kinds(Path(spec.path))
        rounded = spec.precision == "tf32"
        # Both either way: PyTorch's own default rounds convolutions in fp32, too.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounded
        if spec.device == "cpu":
            torch.set_num_threads(spec.threads)
        module: Any = torch_module(Path(spec.path), spec.shapes)
        module = module.to(self._device, self._dtype).to(memory_format=torch.channels_last)
        self._module = self._compiled(module)

    def _compiled(self, module: Any) -> Any:  # noqa: ANN401
        return module

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once, from and to the host's memory; outputs of the file's own types."""
        placed = self._placed(inputs)  # as `stopwatch` does: other tensors are compiled for anew
        with self._torch.inference_mode():
            found = self._module(*placed)
        # By way of float64, as NumPy has no bfloat16.
        return [
            one.double().cpu().numpy().astype(kind)
            for one, kind in zip(found, self._kinds, strict=True)
        ]

    def stopwatch(self, inputs: Arrays) -> Callable[[], float]:
        """Milliseconds of a call on tensors, several sets in turns where calls only enqueue."""
        sets = itertools.cycle([self._placed(one) for one in input_sets(inputs, self._queued)])

        def burst() -> None:
            with self._torch.inference_mode():
                for _ in range(self._queued):
                    self._module(*next(sets))

        return lambda: self._clock(burst) / self._queued

    def _clock(self, call: Callable[[], None]) -> float:
        if self._device.type == "cpu":
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3
        # The host's clock would measure how long it takes to enqueue.
        event: Any = self._torch.cuda.Event
        begin, end = (event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Nothing: PyTorch does not say."""
        del shapes
        return {}

    def _placed(self, inputs: Arrays) -> list[Any]:
        """Tensors on the device, in the type and the order that the module computes in."""
        found = []
        for array in inputs.values():
            tensor = self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
            tensor = tensor.to(self._dtype) if tensor.is_floating_point() else tensor
            if tensor.dim() == _IMAGE:
                tensor = tensor.to(memory_format=self._torch.channels_last)
            found.append(tensor)
        return found


class InductorEngine(TorchEngine):
    """`torch.compile` with Inductor: weights frozen, sizes fixed, CUDA graphs on a GPU."""

    def _compiled(self, module: Any) -> Any:  # noqa: ANN401
        import torch._inductor.config as settings

        settings.freezing = True
        return self._torch.compile(module, mode="reduce-overhead", dynamic=False)


def _expect_device(torch: Any, spec: EngineSpec) -> None:  # noqa: ANN401
    if spec.precision not in _DTYPES:
        raise OptionError(f"PyTorch has no setting for precision {spec.precision!r}")
    if spec.device not in ("cpu", "cuda"):
        raise OptionError(f"PyTorch is timed on cpu and cuda only, not on {spec.device!r}")
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"PyTorch {torch.__version__} sees no GPU, or was built without CUDA")
