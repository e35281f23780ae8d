"""The engines that `saccade bench` can time, each behind the same few calls.

An engine is opened inside a process of its own (`_bench_worker`), so nothing here is imported by
the command line itself, and the vendor's package is imported only when its engine is opened. Every
engine runs at the setting that its own documentation names for latency, on fixed shapes, in the
precision asked for.
"""

# ruff: noqa: PLC0415 - each engine's package is optional, and only one is ever needed

from __future__ import annotations

import importlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
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
        precision: Arithmetic, as `Options.precision` has it.
        device: Device as `saccade.compile` spells it.
        options: Further arguments of `saccade.compile`; `shapes` among them, which the inputs are
            declared as in place of what the file says, holds for others, too.
        bundle: A bundle of the model, which Saccade alone runs in place of the file.
    """

    engine: str
    path: str
    shapes: Mapping[str, tuple[int, ...]]
    symbols: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)
    bundle: str = ""

    @property
    def source(self) -> str | bytes:
        """The file's path, or what the file would be with its inputs declared otherwise."""
        axes = self.options.get("shapes")
        if axes is None:
            return self.path
        from saccade.cli._shapes import redeclared

        return redeclared(Path(self.path), axes).SerializeToString()


class LoadedModel(Protocol):
    """A loaded model."""

    @property
    def version(self) -> str:
        """Version of the engine's package."""

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Arrays by input name in, arrays in the order of the graph out."""

    def stopwatch(self, inputs: Arrays) -> Callable[[], float]:
        """Gives the milliseconds of a call each time that it is asked; the inputs are in place."""

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Flops, bytes, arena bytes and floor of one run, as far as the engine states them."""


class _HostEngine:
    """What engines have in common that run in the host's memory and say nothing of their work."""

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        raise NotImplementedError

    def stopwatch(self, inputs: Arrays) -> Callable[[], float]:
        """Milliseconds of a run by the wall's clock."""

        def timed() -> float:
            start = time.perf_counter()
            self.run(inputs)
            return (time.perf_counter() - start) * 1e3

        return timed

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Nothing: it does not say."""
        del shapes
        return {}


class SaccadeEngine:
    """Saccade itself, through its public names; timed on arrays that are on the device."""

    def __init__(self, spec: EngineSpec) -> None:
        import saccade
        from saccade.devices import device_named

        device = device_named(spec.device)
        fixed = device.team(None) is not None  # of devices whose work the host's cores do not do
        compiled: Callable[..., Any] = saccade.compile  # which refuses names that are none
        self._compile = partial(
            compiled,
            device=spec.device,
            precision=spec.precision,
            threads=None if fixed else spec.threads,
        )
        self._spec = spec
        self._arrays = device.arrays
        self._model = self._compile(spec.bundle) if spec.bundle else self._of_file()

    def _of_file(self) -> Any:  # noqa: ANN401
        return self._compile(self._spec.path, **self._spec.options)

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once; `Model.run` returns the outputs in graph order."""
        return list(self._model.run(inputs).values())

    def stopwatch(self, inputs: Arrays) -> Callable[[], float]:
        """Milliseconds of `Model.run`, several sets of inputs in turns where it only enqueues."""
        from saccade.cli._signature import input_sets

        runs, take = self._arrays.queued, self._arrays.take
        infos = {info.name: info for info in self._model.inputs}
        placed = [
            {name: take(infos[name], array) for name, array in one.items()}
            for one in input_sets(inputs, runs)
        ]
        sets = itertools.cycle(placed)
        return lambda: self._arrays.clock(lambda: self._model.run(next(sets)), runs)

    @property
    def version(self) -> str:
        """Version of the sources that run."""
        from saccade.version import VERSION

        return VERSION

    def work(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Flops and bytes of the plan's operators at `shapes`, its arena and its floor."""
        from saccade.devices import device_named
        from saccade.plan.floor import floor

        plan = (self._of_file() if self._spec.bundle else self._model).plan(**shapes)
        speeds = device_named(plan.device).speeds(plan)
        work = [step.work for step in plan.steps]
        return {
            "floor_us": round(floor(plan, speeds).total),
            "flops": sum(one.flops for one in work),
            "bytes": sum(one.bytes for one in work),
            "arena_bytes": plan.arena_bytes,
        }


class OnnxRuntimeEngine(_HostEngine):
    """ONNX Runtime's CPU provider: all graph optimisations, sequential, spinning pool."""

    def __init__(self, spec: EngineSpec) -> None:
        _only("onnxruntime", spec, {"fp32"})
        import onnxruntime

        self.version = str(onnxruntime.__version__)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec.threads
        # Operators run one after the other: a second pool would have nothing to do.
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        for symbol, value in spec.symbols.items():
            options.add_free_dimension_override_by_name(symbol, value)
        self._session = onnxruntime.InferenceSession(
            spec.source, options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once into fresh arrays."""
        return list(self._session.run(None, inputs))


class OpenVINOEngine(_HostEngine):
    """OpenVINO's CPU plugin: latency hint, one stream, fixed shapes, inputs and outputs shared."""

    def __init__(self, spec: EngineSpec, *, timed_layers: bool = False) -> None:
        _only("openvino", spec, set(_OPENVINO_PRECISIONS))
        import openvino

        # Behind the dash are the build's number and its commit.
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


class NcnnEngine(_HostEngine):
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
        # All on unless switched off, which would not be the precision that others are timed in.
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = False
        self._net.load_param(str(param))
        self._net.load_model(str(weights))

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Run once on images of batch 1, which ncnn sees without the batch axis."""
        found = []
        with self._net.create_extractor() as extractor:
            # pnnx gives inputs and outputs names of its own: only their order is the file's.
            for name, array in zip(self._net.input_names(), inputs.values(), strict=True):
                if array.shape[0] != 1:
                    raise OptionError(f"ncnn takes batch 1 only, not {array.shape[0]}")
                extractor.input(name, self._ncnn.Mat(array[0]))
            for name in self._net.output_names():
                _status, result = extractor.extract(name)
                # A copy: the memory is the extractor's, which ends with the block.
                found.append(np.array(result)[None])
        return found


def _elsewhere(module: str, name: str) -> Callable[[EngineSpec], LoadedModel]:
    """An engine of a file of its own, which is imported when it is opened."""

    def opened(spec: EngineSpec) -> LoadedModel:
        found: LoadedModel = getattr(importlib.import_module(f"saccade.cli.{module}"), name)(spec)
        return found

    return opened


ENGINES: Mapping[str, Callable[[EngineSpec], LoadedModel]] = {
    "saccade": SaccadeEngine,
    "onnxruntime": OnnxRuntimeEngine,
    "openvino": OpenVINOEngine,
    "ncnn": NcnnEngine,
    "inductor": _elsewhere("_engines_torch", "InductorEngine"),
    "torch": _elsewhere("_engines_torch", "TorchEngine"),
}
_ON_DEVICES = {
    ("onnxruntime", "cuda"): _elsewhere("_engines_onnxruntime", "OnnxRuntimeCudaEngine"),
}
"""Engines that are others on a device, by name and device."""
_PACKAGES = {"inductor": "torch"}
"""What is imported for an engine, where that is not its name."""


def import_engine(engine: str) -> None:
    """Import the engine's package: a cost of its own, for no engine part of its first answer.

    Raises:
        OptionError: The engine is unknown or not installed.
    """
    name = engine.partition(":")[0]
    if name not in ENGINES:
        raise OptionError(f"engine {name!r} is not one of {', '.join(ENGINES)}")
    package = _PACKAGES.get(name, name)
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there but misses another one is broken, which its own error says best.
        if error.name != package:
            raise
        raise OptionError(f"{package} is not installed: pip install 'saccade[{package}]'") from None


def open_engine(spec: EngineSpec) -> LoadedModel:
    """Load the model of `spec` into its engine.

    Raises:
        OptionError: The engine is unknown, not installed, or cannot do what `spec` asks.
    """
    import_engine(spec.engine)
    name, _, precision = spec.engine.partition(":")
    # A peer may run in another precision than the rest, as in `saccade:fp32`.
    made = _ON_DEVICES.get((name, spec.device), ENGINES[name])
    return made(replace(spec, engine=name, precision=precision or spec.precision))


def _only(engine: str, spec: EngineSpec, precisions: set[str]) -> None:
    if spec.device != "cpu":
        raise OptionError(f"{engine} is timed on the cpu only, not on {spec.device!r}")
    if spec.precision not in precisions:
        raise OptionError(f"{engine} has no setting for precision {spec.precision!r}")


def as_numpy(outputs: list[Any]) -> list[NDArray[Any]]:
    """Copies that outlive the engine's next run."""
    return [np.array(output) for output in outputs]
