"""Saccade as a runner of Polygraphy: `polygraphy run model.onnx --saccade --onnxrt`.

The entry point `polygraphy.run.plugins` leads to `argument_groups`. Scripts that
`polygraphy run --gen-script` writes use `ModelFromOnnx` and `SaccadeRunner`, as Python may.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from polygraphy import util
from polygraphy.backend.base import BaseLoader, BaseRunner
from polygraphy.common import TensorMetadata
from polygraphy.datatype import DataType
from polygraphy.logger import G_LOGGER
from polygraphy.tools.args import ModelArgs, OnnxLoadArgs
from polygraphy.tools.args import util as args_util
from polygraphy.tools.args.base import BaseArgs, BaseRunnerArgs
from polygraphy.tools.script import make_invocable

import saccade

__all__ = ["ModelFromOnnx", "SaccadeRunner", "argument_groups"]

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "device": {"help": "cpu or cuda", "default": None},
    "precision": {"help": "fp32, bf16; on GPUs also fp16, tf32", "default": None},
    "threads": {"help": "width of the team", "type": int, "default": None},
    "exact": {"help": "refuse algorithms that trade rounding for speed", "action": "store_true"},
    "checked": {"help": "check the bounds of each access", "action": "store_true"},
    "allow_reference": {
        "help": "run what nothing else takes through ONNX's reference implementation",
        "action": "store_true",
    },
}
"""Of `saccade.compile`, as `--saccade-precision` and so on."""


class ModelFromOnnx(BaseLoader):
    """Compiles a model with Saccade when it is called.

    Args:
        model: Path or bytes of an ONNX file or of a bundle, or a callable that gives them.
        **options: Of `saccade.compile`.
    """

    def __init__(self, model: object, **options: object) -> None:
        self._model, self._options = model, options

    def call_impl(self) -> saccade.Model:
        """The compiled model.

        Raises:
            PolygraphyException: If it cannot be compiled; Polygraphy prints no traceback of it.
        """
        model, _ = util.invoke_if_callable(self._model)
        try:
            return saccade.compile(model, **self._options)
        except saccade.SaccadeError as error:
            G_LOGGER.critical(f"Saccade: {error}")


class SaccadeRunner(BaseRunner):
    """Runs a model of Saccade.

    Args:
        model: A `saccade.Model`, or a callable that gives one.
        name: What Polygraphy calls it.
    """

    def __init__(
        self, model: saccade.Model | Callable[[], saccade.Model], name: str | None = None
    ) -> None:
        super().__init__(name=name, prefix="saccade-runner")
        self._made_by = model

    def activate_impl(self) -> None:
        """Compile. A model is itself callable, and no factory."""
        made_by = self._made_by
        self.model = made_by if isinstance(made_by, saccade.Model) else made_by()

    def get_input_metadata_impl(self) -> TensorMetadata:
        """Names, element types and shapes; sizes that vary are None."""
        metadata = TensorMetadata()
        for info in self.model.inputs:
            shape = [size if isinstance(size, int) else None for size in info.shape]
            known = DataType.__members__.get(info.dtype.upper().replace("_", ""))
            metadata.add(info.name, known, shape)
        return metadata

    def infer_impl(self, feed_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """Outputs by name: NumPy arrays, or PyTorch tensors where the inputs are."""
        start = time.perf_counter()
        outputs = OrderedDict(self.model.run(feed_dict))
        self.inference_time = time.perf_counter() - start
        return outputs

    def deactivate_impl(self) -> None:
        """Let go of the model."""
        del self.model


class SaccadeArgs(BaseArgs):
    """Saccade Compilation: compiling models with Saccade."""

    def add_parser_args_impl(self) -> None:
        """An option of the command line for each of `OPTIONS`."""
        for name, keywords in OPTIONS.items():
            self.group.add_argument(f"--saccade-{name.replace('_', '-')}", **keywords)

    def parse_impl(self, args: object) -> None:
        """Keep what was given."""
        given = {name: args_util.get(args, f"saccade_{name}") for name in OPTIONS}
        self.options = {name: value for name, value in given.items() if value not in (None, False)}

    def add_to_script_impl(self, script: Any) -> object:  # noqa: ANN401 - Polygraphy has no types
        """The name of a loader of the model, which Polygraphy may have changed before."""
        model = self.arg_groups[ModelArgs].path
        loader = self.arg_groups[OnnxLoadArgs]
        if loader.must_use_onnx_loader():
            model = loader.add_to_script(script, serialize_model=True)
        script.add_import(imports=["ModelFromOnnx", "SaccadeRunner"], frm="polygraphy_saccade")
        made = make_invocable("ModelFromOnnx", model, **self.options)
        return script.add_loader(made, "compile_with_saccade")


class SaccadeRunnerArgs(BaseRunnerArgs):
    """Saccade Inference: running inference with Saccade."""

    def get_name_opt_impl(self) -> tuple[str, str]:
        """The runner's name and option."""
        return "Saccade", "saccade"

    def add_to_script_impl(self, script: Any) -> None:  # noqa: ANN401 - Polygraphy has no types
        """The runner, on the model of `SaccadeArgs`."""
        model = self.arg_groups[SaccadeArgs].add_to_script(script)
        script.add_runner(make_invocable("SaccadeRunner", model))


def argument_groups() -> list[BaseArgs]:
    """What `polygraphy run` loads."""
    return [SaccadeArgs(), SaccadeRunnerArgs()]
