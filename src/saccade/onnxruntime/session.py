"""ONNX Runtime's session over a compiled model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.compile import compile as compile_model
from saccade.errors import DeviceError, InputError, OptionError, SaccadeError
from saccade.logs import logger
from saccade.onnxruntime.binding import IOBinding
from saccade.onnxruntime.providers import CPU, CUDA, GPUS, chosen_providers
from saccade.onnxruntime.settings import RunOptions, SessionOptions
from saccade.onnxruntime.values import OrtValue, tensor_type
from saccade.shapes import ANY, as_symbol
from saccade.signature import TensorInfo, by_name, is_unnamed

if TYPE_CHECKING:
    import onnx

__all__ = ["InferenceSession", "ModelMetadata", "NodeArg"]

_OTHERS = ("read_config_from_model", "disabled_optimizers", "enable_fallback")
"""Arguments of ONNX Runtime's session that mean nothing to `saccade.compile`."""


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


class InferenceSession:
    """A compiled model behind ONNX Runtime's interface.

    Args:
        path_or_bytes: The file, or its content.
        sess_options: Threads; the rest is accepted.
        providers: Names, or pairs of names and options. One for NVIDIA's GPUs before that for CPUs
            takes a GPU, and falls back to the CPU where there is none, with a warning.
            Others are not used, and a warning says so.
        provider_options: Of each provider; accepted, with a warning.
        more: Further arguments of ONNX Runtime's (accepted; `enable_fallback=False` refuses names
            that are no provider's) or options of `saccade.compile`, such as `precision`.

    Raises:
        ModelError, UnsupportedModelError, OptionError: As of `saccade.compile`; `OptionError` also
            if providers are neither names nor pairs of names and options.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **more: Any,  # noqa: ANN401
    ) -> None:
        self._source = path_or_bytes
        self._options = sess_options or SessionOptions()
        self._more = {name: value for name, value in more.items() if name not in _OTHERS}
        if "shapes" not in self._more:
            overridden = self._overridden()
            if overridden:
                self._more["shapes"] = overridden
        strict = not more.get("enable_fallback", True)
        self._compile(chosen_providers(providers, provider_options, strict=strict))
        self._inputs = [_node_arg(info) for info in self._model.inputs]
        self._outputs = [_node_arg(info) for info in self._model.outputs]
        self._names = [one.name for one in self._outputs]
        self._dtypes = {info.name: info.dtype for info in self._model.inputs if not info.held}

    def _compile(self, wanted: Mapping[str, Mapping[str, str]]) -> None:
        """The model for the first of these providers that is here."""
        first = next((name for name in wanted if name in (*GPUS, CPU)), CPU)
        self._providers = [CPU]
        self._provider_options = {name: dict(wanted.get(name, {})) for name in (CUDA, CPU)}
        if first in GPUS and "device" not in self._more:
            try:
                self._model = compile_model(self._source, device="cuda", **self._more)
                self._providers = [CUDA, CPU]
                return
            except (DeviceError, OptionError) as error:
                logger().warning("no GPU is used: %s", error)
        threads = self._options.intra_op_num_threads or None
        self._model = compile_model(self._source, threads=threads, **self._more)

    def _overridden(self) -> dict[str, tuple[int | str | None, ...]]:
        """Shapes of the inputs that sizes were fixed of."""
        names, kinds = self._options.free_dimension_overrides, self._options.denotation_overrides
        found: dict[str, tuple[int | str | None, ...]] = {}
        if not names and not kinds:
            return found
        for value in self._file().graph.input:
            dims = value.type.tensor_type.shape.dim
            if any(dim.dim_param in names or dim.denotation in kinds for dim in dims):
                found[value.name] = tuple(self._axis(dim) for dim in dims)
        return found

    def _axis(self, dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
        if dim.HasField("dim_value"):
            return dim.dim_value
        label = dim.dim_param
        overrides = self._options.free_dimension_overrides
        if label in overrides:
            return overrides[label]
        named = None if label in ANY else as_symbol(label)
        return self._options.denotation_overrides.get(dim.denotation, named)

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

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """What the session was given for each of them."""
        return {name: dict(self._provider_options[name]) for name in self._providers}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None
    ) -> None:
        """Compile the model for others.

        Raises:
            OptionError: If they are of another form, or one is no provider.
        """
        self._compile(chosen_providers(providers, provider_options, strict=True))

    def enable_fallback(self) -> None:
        """Accepted: a run goes nowhere else."""

    def disable_fallback(self) -> None:
        """Accepted: a run goes nowhere else."""

    def end_profiling(self) -> str:
        """The name of no file: `saccade.compile(...).profile(...)` has the times of each step."""
        return ""

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
        return self._run(*self._asked(output_names, input_feed))

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,  # noqa: ANN401
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a thread of its own, and call back from it.

        Args:
            output_names: As of `run`.
            input_feed: As of `run`.
            callback: Gets the outputs, `user_data`, and the text of an error, which is empty if
                there was none.
            user_data: Anything.
            run_options: Accepted.

        Raises:
            InputError: If an input is missing or unknown, or there is no such output.
        """
        del run_options
        names, feed = self._asked(output_names, input_feed)
        by_name(self._model.inputs, (), feed)  # what is missing is told here, not in the thread

        def answer() -> None:
            found, problem = list[Any](), ""
            try:
                found = self._run(names, feed)
            except SaccadeError as error:
                problem = str(error)
            callback(found, user_data, problem)

        Thread(target=answer).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` with arrays in boxes."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(result) for result in self.run(output_names, feed, run_options)]

    def io_binding(self) -> IOBinding:
        """Where inputs and outputs are bound for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound, into what is bound.

        Raises:
            InputError: As of `run`; if no output is bound, or one does not fit where it is.
        """
        if iobinding.session is not self:
            raise InputError("this binding is another session's: io_binding makes one of this")
        iobinding.keep(self.run(iobinding.wanted(), iobinding.feed, run_options))

    def _asked(
        self, output_names: Sequence[str] | None, feed: Mapping[str, object]
    ) -> tuple[Sequence[str], dict[str, object]]:
        """Names of outputs that there are, and arrays by the names of inputs."""
        names = output_names or self._names
        unknown = [name for name in names if name not in self._names]
        if unknown:
            known = ", ".join(self._names)
            raise InputError(f"there is no output {unknown[0]!r}; there are {known}")
        return names, {
            name: value
            if hasattr(value, "dtype") or name not in self._dtypes
            else np.asarray(value, self._dtypes[name])
            for name, value in feed.items()
        }

    def _run(self, names: Sequence[str], feed: Mapping[str, object]) -> list[Any]:
        results = self._model.run(feed)
        return [results[name] for name in names]


def _node_arg(info: TensorInfo) -> NodeArg:
    if info.held:
        return NodeArg(info.name, info.dtype, [])
    shape: list[int | str | None] = [
        size
        if isinstance(size, int)
        else None
        if size == "..." or is_unnamed(size)
        else size.partition("<=")[0]
        for size in info.shape
    ]
    return NodeArg(info.name, tensor_type(info.dtype), shape)
