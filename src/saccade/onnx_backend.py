"""ONNX's backend interface: `prepare`, `run_model`, `run_node`, `supports_device`.

import onnx.backend.test
from saccade import onnx_backend

suite = onnx.backend.test.BackendTest(onnx_backend, __name__)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from saccade.compile import DeviceName
from saccade.compile import compile as compile_model
from saccade.devices import device_named
from saccade.errors import DeviceError, InputError, UnsupportedModelError
from saccade.model import Model

__all__ = [
    "SaccadeBackend", "SaccadeBackendRep", "is_compatible", "prepare", "run_model", "run_node",
    "supports_device",
]  # fmt: skip

_DEVICES: dict[int, DeviceName] = {DeviceType.CPU: "cpu", DeviceType.CUDA: "cuda"}


class SaccadeBackendRep(BackendRep):
    """A compiled model as ONNX's backend interface knows it.

    Attributes:
        model: What `saccade.compile` gave.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: object, **kwargs: object) -> tuple[Any, ...]:
        """The outputs in the model's order.

        Args:
            inputs: Arrays in the order of the model's inputs, one array alone, or arrays by name.
            kwargs: None are known.

        Raises:
            InputError: If the arrays do not fit the model.
        """
        _expect_none(kwargs)
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            several = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            names = [info.name for info in self.model.inputs]
            if len(several) != len(names):
                raise InputError(f"{len(several)} inputs given, the model has {len(names)}")
            given = dict(zip(names, several, strict=True))
        arrays = {name: np.asarray(value) for name, value in given.items()}
        return tuple(self.model.run(arrays).values())


class SaccadeBackend(Backend):
    """ONNX's backend interface; the module's functions are its methods."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:  # noqa: ANN401
        """Whether a model can be compiled.

        Raises:
            ModelError: If the model is broken.
        """
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedModelError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        **kwargs: Any,  # noqa: ANN401
    ) -> SaccadeBackendRep:
        """Compile a model.

        Args:
            model: The model.
            device: `CPU` or `CUDA`, in ONNX's spelling.
            kwargs: Options of `saccade.compile`.

        Raises:
            ModelError: If the model is broken, or uses what Saccade cannot run.
            OptionError: If an option makes no sense.
            DeviceError: If there is no such device.
        """
        kind = _kind(device)
        if kind is None:
            raise DeviceError(f"there is no device {device}")
        return SaccadeBackendRep(compile_model(model, device=kind, **kwargs))

    @classmethod
    def run_model(
        cls,
        model: onnx.ModelProto,
        inputs: object,
        device: str = "CPU",
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[Any, ...]:
        """The outputs of a model; see `prepare` and `SaccadeBackendRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: object,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[Any, ...]:
        """The outputs of one node.

        Args:
            node: The node.
            inputs: Arrays in the order of its inputs that are not absent, or by name.
            device: See `prepare`.
            outputs_info: Element types and shapes of the outputs; inferred where None.
            kwargs: `opset_imports`, versions by domain, and options of `saccade.compile`.

        Raises:
            ModelError: As of `prepare`.
            InputError: If the inputs do not fit the node.
        """
        imports: Mapping[str, int] = kwargs.pop("opset_imports", {})
        names = [name for name in dict.fromkeys(node.input) if name]
        if not isinstance(inputs, Mapping):
            several = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(several) != len(names):
                raise InputError(f"{len(several)} inputs given, the node has {len(names)}")
            inputs = dict(zip(names, several, strict=True))
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        model = _model_of(node, arrays, outputs_info, imports)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run there, on this machine."""
        kind = _kind(device)
        if kind is None:
            return False
        try:
            device_named(kind).facts()
        except DeviceError:
            return False
        return True


def _kind(device: str) -> DeviceName | None:
    """What Saccade calls one of ONNX's devices; a number behind a colon is for others."""
    try:
        return _DEVICES.get(Device(device).type)
    except (AttributeError, ValueError, TypeError):
        return None


def _model_of(
    node: onnx.NodeProto,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    outputs_info: Iterable[tuple[np.dtype[Any], tuple[int, ...]]] | None,
    imports: Mapping[str, int],
) -> onnx.ModelProto:
    """A model of one node."""
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in arrays.items()
    ]
    results = [name for name in node.output if name]
    if outputs_info is None:
        made = [helper.make_empty_tensor_value_info(name) for name in results]
    else:
        made = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
            for name, (kind, shape) in zip(results, outputs_info, strict=True)
        ]
    sets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    graph = helper.make_graph([node], node.op_type, given, made)
    model = helper.make_model(graph, opset_imports=sets or None)
    return model if outputs_info is not None else onnx.shape_inference.infer_shapes(model)


def _expect_none(options: Mapping[str, object]) -> None:
    if options:
        raise InputError(f"run knows no option {', '.join(map(repr, options))}")


is_compatible = SaccadeBackend.is_compatible
prepare = SaccadeBackend.prepare
run_model = SaccadeBackend.run_model
run_node = SaccadeBackend.run_node
supports_device = SaccadeBackend.supports_device
