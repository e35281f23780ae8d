"""ONNX Runtime's session as far as scripts use it: `import saccade.onnxruntime as onnxruntime`.

    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {session.get_inputs()[0].name: x})

What an option asks for and Saccade does anyway, or not at all, is accepted; the logger `saccade`
warns of the latter. Errors are Saccade's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.compile import compile as compile_model
from saccade.errors import DeviceError, InputError, OptionError
from saccade.logs import logger
from saccade.shapes import ANY, as_symbol
from saccade.signature import TensorInfo

if TYPE_CHECKING:
    import onnx

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_GPUS = (_CUDA, "TensorrtExecutionProvider", "NvTensorRtRtxExecutionProvider")
_TYPES = {"float32": "float", "float64": "double"}
"""Element types that ONNX calls otherwise than NumPy does."""
_DONE_ANYWAY = frozenset(
    {
        "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode",
        "graph_optimization_level", "inter_op_num_threads", "log_severity_level",
        "log_verbosity_level", "logid", "use_deterministic_compute",
    }
)  # fmt: skip
"""Attributes that say how, or what Saccade does whatever they say."""
_OTHERS = ("read_config_from_model", "disabled_optimizers", "enable_fallback")
"""Arguments of ONNX Runtime's session that mean nothing here."""


class GraphOptimizationLevel(IntEnum):
    """How much a graph may be rewritten; Saccade always does all that keeps its meaning."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether branches of a graph run side by side; here each step is shared by all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class _Settings:
    """Attributes as ONNX Runtime's classes have them; any may be set."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _DONE_ANYWAY and name != "intra_op_num_threads":
            logger().warning("%s.%s has no meaning here", type(self).__name__, name)
        super().__setattr__(name, value)


class SessionOptions(_Settings):
    """Options of a session.

    Attributes:
        intra_op_num_threads: Width of the team; 0 is as many as the process may have.
        free_dimension_overrides: As `add_free_dimension_override_by_name` left them.
        graph_optimization_level, execution_mode, log_severity_level, inter_op_num_threads, …:
            Accepted.
    """

    intra_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL

    def __init__(self) -> None:
        self.__dict__["_sizes"] = {}

    @property
    def free_dimension_overrides(self) -> dict[str, int]:
        """Sizes by the names that files have for them."""
        found: dict[str, int] = self.__dict__["_sizes"]
        return found

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fix a size that the file leaves open under this name."""
        self.free_dimension_overrides[name] = value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accepted, with a warning."""
        logger().warning("SessionOptions: %s=%s has no meaning here", key, value)


class RunOptions(_Settings):
    """Options of a run: accepted."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or an output.

    Attributes:
        name: As in the file.
        type: As ONNX Runtime spells it: `tensor(float)`.
        shape: Sizes; names where they vary, None where there is none.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def get_available_providers() -> list[str]:
    """What sessions may be made for; whether there is a GPU is seen when one is."""
    return [_CUDA, _CPU]


def get_device() -> str:
    """What sessions run on unless they are told otherwise."""
    return "CPU"


class InferenceSession:
    """A compiled model behind ONNX Runtime's interface.

    Args:
        path_or_bytes: The file, or its content.
        sess_options: Threads; the rest is accepted.
        providers: Names, or pairs of names and options. One for NVIDIA's GPUs before that for CPUs
            takes a GPU, and falls back to the CPU where there is none, with a warning.
        provider_options: Accepted.
        more: Further arguments of ONNX Runtime's (accepted) or options of `saccade.compile`, such
            as `precision`.

    Raises:
        ModelError, UnsupportedModelError, OptionError: As of `saccade.compile`.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **more: Any,  # noqa: ANN401
    ) -> None:
        del provider_options
        self._source = path_or_bytes
        self._options = sess_options or SessionOptions()
        options = {name: value for name, value in more.items() if name not in _OTHERS}
        if self._options.free_dimension_overrides and "shapes" not in options:
            options["shapes"] = self._overridden()
        wanted = [one if isinstance(one, str) else one[0] for one in providers or [_CPU]]
        self._providers = [_CPU]
        if wanted and wanted[0] in _GPUS and "device" not in options:
            try:
                self._model = compile_model(path_or_bytes, device="cuda", **options)
                self._providers = [_CUDA, _CPU]
            except (DeviceError, OptionError) as error:
                logger().warning("no GPU is used: %s", error)
        if len(self._providers) == 1:
            self._model = compile_model(
                path_or_bytes, threads=self._options.intra_op_num_threads or None, **options
            )
        self._inputs = [_node_arg(info) for info in self._model.inputs]
        self._outputs = [_node_arg(info) for info in self._model.outputs]
        self._names = [one.name for one in self._outputs]
        self._dtypes = {info.name: info.dtype for info in self._model.inputs if not info.held}

    def _overridden(self) -> dict[str, tuple[int | str | None, ...]]:
        """Shapes of the inputs that sizes were fixed of."""
        sizes = self._options.free_dimension_overrides
        found: dict[str, tuple[int | str | None, ...]] = {}
        for value in self._file().graph.input:
            dims = value.type.tensor_type.shape.dim
            if any(dim.dim_param in sizes for dim in dims):
                found[value.name] = tuple(self._axis(dim) for dim in dims)
        return found

    def _axis(self, dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
        if dim.HasField("dim_value"):
            return dim.dim_value
        label = dim.dim_param
        return self._options.free_dimension_overrides.get(
            label, None if label in ANY else as_symbol(label)
        )

    def _file(self) -> onnx.ModelProto:
        """The file as it is, without weights that lie elsewhere."""
        import onnx  # noqa: PLC0415 - seldom asked for, and a warm start needs none

        if isinstance(self._source, bytes):
            return onnx.load_from_string(self._source)
        return onnx.load(os.fspath(self._source), load_external_data=False)

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the file's order."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the file's order."""
        return self._outputs

    def get_providers(self) -> list[str]:
        """What it runs on, and what would come next."""
        return list(self._providers)

    def get_session_options(self) -> SessionOptions:
        """Those that it was made with."""
        return self._options

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: initializers that are inputs are among `get_inputs`."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself."""
        model = self._file()
        return ModelMetadata(
            model.producer_name,
            model.graph.name,
            model.domain,
            model.doc_string,
            model.graph.doc_string,
            model.model_version,
            {entry.key: entry.value for entry in model.metadata_props},
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run on inputs by name.

        Args:
            output_names: What is wanted, in this order; all outputs if None or empty.
            input_feed: Arrays, or what NumPy makes an array of, by the names of the inputs.
            run_options: Accepted.

        Raises:
            InputError: If an input is missing, unknown or does not fit, or there is no such output.
        """
        del run_options
        names = output_names or self._names
        unknown = [name for name in names if name not in self._names]
        if unknown:
            known = ", ".join(self._names)
            raise InputError(f"there is no output {unknown[0]!r}; there are {known}")
        feed = {
            name: value
            if hasattr(value, "dtype") or name not in self._dtypes
            else np.asarray(value, self._dtypes[name])
            for name, value in input_feed.items()
        }
        results = self._model.run(feed)
        return [results[name] for name in names]


def _node_arg(info: TensorInfo) -> NodeArg:
    if info.held:
        return NodeArg(info.name, info.dtype, [])
    shape: list[int | str | None] = [
        size if isinstance(size, int) else None if size == "..." else size.partition("<=")[0]
        for size in info.shape
    ]
    return NodeArg(info.name, f"tensor({_TYPES.get(info.dtype, info.dtype)})", shape)
