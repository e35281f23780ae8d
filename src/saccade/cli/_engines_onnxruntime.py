"""ONNX Runtime's CUDA provider as an engine: one CUDA graph for each set of inputs."""

# ruff: noqa: PLC0415 - ONNX Runtime is optional, and imported in a process of its own

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

__all__ = ["OnnxRuntimeCudaEngine"]

_PROVIDER = "CUDAExecutionProvider"
_WHERE = ("cuda", 0)
_TYPES = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
}  # fmt: skip


class OnnxRuntimeCudaEngine:
    """All graph optimisations, inputs and outputs bound on the GPU, every run a graph's launch.

    Files are computed as they are; for `fp16` ONNX Runtime's own converter rewrites them first.
    """

    def __init__(self, spec: EngineSpec) -> None:
        import onnxruntime

        if _PROVIDER not in onnxruntime.get_available_providers():
            raise OptionError(
                f"onnxruntime {onnxruntime.__version__} has no CUDA provider: "
                "pip install onnxruntime-gpu in place of onnxruntime"
            )
        if spec.precision not in ("fp32", "tf32", "fp16"):
            raise OptionError(f"onnxruntime has no setting for precision {spec.precision!r}")
        self.version = str(onnxruntime.__version__)
        self._package = onnxruntime
        self._kinds = output_kinds(Path(spec.path))
        self._queued = device_named(spec.device).arrays.queued
        self._session = onnxruntime.InferenceSession(
            _halved(spec.source) if spec.precision == "fp16" else spec.source,
            _session_options(onnxruntime, spec.symbols),
            providers=[
                (
                    _PROVIDER,
                    {"enable_cuda_graph": "1", "use_tf32": str(int(spec.precision == "tf32"))},
                )
            ],
        )
        # Else it would go on with the CPU's provider where CUDA's fails.
        self._session.disable_fallback()
        self._graphs = 0

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once, from and to the host's memory; outputs of the file's own types."""
        call, results = self._bound(inputs)
        call()
        kinds = zip(results(), self._kinds, strict=True)
        return [one.numpy().astype(kind) for one, kind in kinds]

    def stopwatch(self, inputs: Arrays) -> Callable[[], float]:
        """Milliseconds of a graph's launch, several sets of inputs in turns."""
        bound = [self._bound(one) for one in input_sets(inputs, self._queued)]
        for call, _ in bound:
            call()  # which records its graph
        calls = itertools.cycle([call for call, _ in bound])
        wait = bound[0][1]

        def burst() -> float:
            wait()
            start = time.perf_counter()
            for _ in range(self._queued):
                next(calls)()
            wait()
            return (time.perf_counter() - start) * 1e3 / self._queued

        return burst

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Nothing: ONNX Runtime does not say."""
        del shapes
        return {}

    def _bound(self, inputs: Arrays) -> tuple[Callable[[], None], Callable[[], list[Any]]]:
        """A call that only enqueues, and one that waits and gives what it wrote."""
        value, binding = self._package.OrtValue, self._session.io_binding()
        for info in self._session.get_inputs():
            array: NDArray[Any] = inputs[info.name].astype(_TYPES[info.type], order="C")
            binding.bind_ortvalue_input(info.name, value.ortvalue_from_numpy(array, *_WHERE))
        for info in self._session.get_outputs():
            # A CUDA graph writes to fixed addresses, so that outputs need their memory beforehand.
            if not all(isinstance(size, int) for size in info.shape):
                raise OptionError(f"onnxruntime does not know the shape of output {info.name!r}")
            room = value.ortvalue_from_shape_and_type(info.shape, _TYPES[info.type], *_WHERE)
            binding.bind_ortvalue_output(info.name, room)
        self._graphs += 1
        how = self._package.RunOptions()
        # Addresses are part of a graph: every set of inputs has one of its own.
        how.add_run_config_entry("gpu_graph_id", str(self._graphs))
        # Else each run would wait for the GPU, and calls could not queue.
        how.add_run_config_entry("disable_synchronize_execution_providers", "1")

        def results() -> list[Any]:
            binding.synchronize_outputs()
            return list(binding.get_outputs())

        return lambda: self._session.run_with_iobinding(binding, how), results


def _session_options(package: Any, symbols: Mapping[str, int]) -> Any:  # noqa: ANN401
    options = package.SessionOptions()
    options.graph_optimization_level = package.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    for symbol, size in symbols.items():
        options.add_free_dimension_override_by_name(symbol, size)
    return options


def _halved(source: str | bytes) -> bytes:
    """The model in float16, inputs and outputs too."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = onnx.load(source) if isinstance(source, str) else onnx.load_from_string(source)
    made: bytes = convert_float_to_float16(model).SerializeToString()
    return made
