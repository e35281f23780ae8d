"""Whose answers `saccade compare` takes for right, and the model with every value as an output."""

# ruff: noqa: PLC0415 - each engine's package is optional

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from saccade.cli._model import compile_model
from saccade.cli._types import Arrays
from saccade.errors import OptionError

if TYPE_CHECKING:
    import onnx

__all__ = ["EXPECTATIONS", "every_value"]

Source: TypeAlias = "Path | onnx.ModelProto"


def onnxruntime_answers(source: Source, feeds: Arrays, allow_reference: bool = False) -> Arrays:
    """Outputs of ONNX Runtime's CPU provider.

    Args:
        source: Path of the ONNX file, or an `onnx.ModelProto`.
        feeds: Arrays by input name.
        allow_reference: Means nothing to it.

    Raises:
        OptionError: ONNX Runtime is not installed, or does not run this.
    """
    del allow_reference
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        raise OptionError(
            "onnxruntime is not installed: pip install 'saccade[onnxruntime]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it has against a model is in its error
    model = str(source) if isinstance(source, Path) else source.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))
    except Exception as error:  # its errors have no base of their own
        what = " ".join(str(error).split())
        raise OptionError(f"onnxruntime does not run this: {what}") from error


def reference_answers(source: Source, feeds: Arrays, allow_reference: bool) -> Arrays:
    """Outputs of Saccade's own NumPy reference, and ONNX's where it is allowed."""
    allowed = allow_reference or None
    return compile_model(source, device="reference", allow_reference=allowed).run(feeds)


EXPECTATIONS: Mapping[str, Callable[[Source, Arrays, bool], Arrays]] = {
    "onnxruntime": onnxruntime_answers,
    "reference": reference_answers,
}


def every_value(source: Source) -> onnx.ModelProto:
    """The model with each node's results as further outputs, in the order of the graph.

    Results of constants alone, weights that a file reads through other nodes, are left out.
    """
    import onnx

    model = onnx.shape_inference.infer_shapes(
        onnx.load(str(source)) if isinstance(source, Path) else source
    )
    typed = {value.name: value for value in model.graph.value_info}
    last = list(model.graph.output)
    present = {value.name for value in last}
    del model.graph.output[:]
    constant = {""} | {weights.name for weights in model.graph.initializer}
    for node in model.graph.node:
        # Bodies may read what is around them.
        if constant.issuperset(node.input) and not any(one.HasField("g") for one in node.attribute):
            constant.update(node.output)
            continue
        for name in node.output:
            # A value whose type inference does not know cannot be declared, and stays inside.
            if name in typed and name not in present:
                model.graph.output.append(typed[name])
    model.graph.output.extend(last)
    return model
