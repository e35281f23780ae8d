"""The engines that `saccade bench` can time, each behind the same three calls.

An engine is opened inside a process of its own (`_bench_worker`), so nothing here is imported by
the command line itself, and the vendor's package is imported only when its engine is opened. Every
engine runs at the setting that its own documentation names for latency, on fixed shapes, in the
precision asked for.
"""

# ruff: noqa: PLC0415 - each engine's package is optional, and only one is ever needed

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saccade.errors import OptionError

__all__ = [
    "ENGINES",
    "Arrays",
    "EngineSpec",
    "LoadedModel",
    "as_numpy",
    "import_engine",
    "open_engine",
]

Arrays = dict[str, NDArray[Any]]

_OPENVINO_PRECISIONS = {"fp32": "f32", "bf16": "bf16"}


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What to open: an engine, a model file, and the setting that all engines share.

    Attributes:
        engine: A key of `ENGINES`; `NAME:PRECISION` runs one of them in another precision than
            the rest.
        path: The ONNX file.
        shapes: Input name to its fixed shape.
        symbols: Symbolic dimension of the file to its value at these shapes.
        threads: Width of the engine's thread pool.
        precision: Arithmetic, `fp32` or `bf16`.
        device: Device as `saccade.compile` spells it; the peers run on the CPU only.
        options: Further arguments of `saccade.compile`, for Saccade alone.
    """

    engine: str
    path: str
    shapes: Mapping[str, tuple[int, ...]]
    symbols: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)


class LoadedModel(Protocol):
    """A loaded model."""

    @property
    def version(self) -> str:
        """Version of the engine's package."""

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """The timed call: arrays by input name in, arrays in the order of the graph out."""

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Flops, bytes, arena bytes and floor of one run, as far as the engine states them."""


class SaccadeEngine:
    """Saccade itself, through its public names."""

    def __init__(self, spec: EngineSpec) -> None:
        import saccade

        package: Any = saccade
        self._model = package.compile(
            spec.path,
            device=spec.device,
            precision=spec.precision,
            threads=spec.threads,
            **spec.options,
        )

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once; `Model.run` returns the outputs in graph order."""
        return list(self._model.run(inputs).values())

    @property
    def version(self) -> str:
        """Version of the installed distribution."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("saccade")
        except PackageNotFoundError:  # run from a source tree
            return "uninstalled"

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Flops and bytes of the plan's operators at `shapes`, its arena and its floor."""
        from saccade.backends.cpu.runtime.speeds import measured_speeds
        from saccade.backends.cpu.target import host_target
        from saccade.plan.floor import floor

        plan = self._model.plan(**shapes)
        speeds = measured_speeds(host_target(plan.isa)) if plan.device == "cpu" else plan.speeds
        work = [step.work for step in plan.steps]
        return {
            "floor_us": round(floor(plan, speeds).total),
            "flops": sum(one.flops for one in work),
            "bytes": sum(one.bytes for one in work),
            "arena_bytes": plan.arena_bytes,
        }


class OnnxRuntimeEngine:
    """ONNX Runtime's CPU provider: all graph optimisations, sequential, spinning pool."""

    def __init__(self, spec: EngineSpec) -> None:
        _only("onnxruntime", spec, {"fp32"})
        import onnxruntime

        self.version = str(onnxruntime.__version__)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        for symbol, value in spec.symbols.items():
            options.add_free_dimension_override_by_name(symbol, value)
        self._session = onnxruntime.InferenceSession(
            spec.path, options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once into fresh arrays."""
        return list(self._session.run(None, inputs))

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Nothing: ONNX Runtime does not say."""
        del shapes
        return {}


class OpenVINOEngine:
    """OpenVINO's CPU plugin: latency hint, one stream, fixed shapes, inputs and outputs shared."""

    def __init__(self, spec: EngineSpec, *, timed_layers: bool = False) -> None:
        _only("openvino", spec, set(_OPENVINO_PRECISIONS))
        import openvino

        self.version = str(openvino.__version__).split("-", maxsplit=1)[0]
        core = openvino.Core()
        model = core.read_model(spec.path)
        model.reshape({name: list(shape) for name, shape in spec.shapes.items()})
        compiled = core.compile_model(
            model,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": spec.threads,
                "INFERENCE_PRECISION_HINT": _OPENVINO_PRECISIONS[spec.precision],
                "PERF_COUNT": timed_layers,
            },
        )
        self._outputs = len(compiled.outputs)
        self._compiled = compiled
        self._own = threading.local()  # a request runs once at a time, so each caller gets its own

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once; the arrays are views of the request's own memory until the next run."""
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        result = self._own.request.infer(inputs, share_inputs=True, share_outputs=True)
        return [result[index] for index in range(self._outputs)]

    def layers(self) -> list[Any]:
        """The nodes that it runs, in order, with their mean times when `timed_layers`."""
        return list(self._compiled.get_runtime_model().get_ordered_ops())

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Nothing: OpenVINO does not say."""
        del shapes
        return {}


class NcnnEngine:
    """ncnn on a model that `pnnx` converted: NAME.ncnn.param and .bin beside NAME.onnx."""

    def __init__(self, spec: EngineSpec) -> None:
        _only("ncnn", spec, {"fp32"})
        import ncnn

        param, weights = (Path(spec.path).with_suffix(f".ncnn.{end}") for end in ("param", "bin"))
        if not (param.is_file() and weights.is_file()):
            raise OptionError(f"{param} is missing: pnnx {spec.path} inputshape=… fp16=0 makes it")
        self.version = str(ncnn.__version__)
        self._ncnn = ncnn
        self._net = ncnn.Net()
        options = self._net.opt
        options.num_threads = spec.threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = False
        self._net.load_param(str(param))
        self._net.load_model(str(weights))

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once on images of batch 1, which ncnn sees without the batch axis."""
        found = []
        with self._net.create_extractor() as extractor:
            for name, array in zip(self._net.input_names(), inputs.values(), strict=True):
                if array.shape[0] != 1:
                    raise OptionError(f"ncnn takes batch 1 only, not {array.shape[0]}")
                extractor.input(name, self._ncnn.Mat(array[0]))
            for name in self._net.output_names():
                _status, result = extractor.extract(name)
                found.append(np.array(result)[None])
        return found

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Nothing: ncnn does not say."""
        del shapes
        return {}


ENGINES: Mapping[str, Callable[[EngineSpec], LoadedModel]] = {
    "saccade": SaccadeEngine,
    "onnxruntime": OnnxRuntimeEngine,
    "openvino": OpenVINOEngine,
    "ncnn": NcnnEngine,
}


def import_engine(engine: str) -> None:
    """Import the engine's package: a cost of its own, for no engine part of its first answer.

    Raises:
        OptionError: The engine is unknown or not installed.
    """
    name = engine.partition(":")[0]
    if name not in ENGINES:
        raise OptionError(f"engine {name!r} is not one of {', '.join(ENGINES)}")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise OptionError(f"{name} is not installed: pip install 'saccade[{name}]'") from None


def open_engine(spec: EngineSpec) -> LoadedModel:
    """Load the model of `spec` into its engine.

    Raises:
        OptionError: The engine is unknown, not installed, or cannot do what `spec` asks.
    """
    import_engine(spec.engine)
    name, _, precision = spec.engine.partition(":")
    return ENGINES[name](replace(spec, engine=name, precision=precision or spec.precision))


def _only(engine: str, spec: EngineSpec, precisions: set[str]) -> None:
    if spec.device != "cpu":
        raise OptionError(f"{engine} is timed on the cpu only, not on {spec.device!r}")
    if spec.precision not in precisions:
        raise OptionError(f"{engine} has no setting for precision {spec.precision!r}")


def as_numpy(outputs: list[Any]) -> list[NDArray[Any]]:
    """Copies that outlive the engine's next run."""
    return [np.array(output) for output in outputs]
