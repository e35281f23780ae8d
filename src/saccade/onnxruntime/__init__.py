"""ONNX Runtime's module as far as scripts use it: `import saccade.onnxruntime as onnxruntime`.

    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {session.get_inputs()[0].name: x})

What an option asks for and Saccade does anyway, or not at all, is accepted; the logger `saccade`
warns of the latter. What would change answers and is not done is refused. Errors are Saccade's.
"""

from saccade.onnxruntime.binding import IOBinding
from saccade.onnxruntime.environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    preload_dlls,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from saccade.onnxruntime.providers import get_all_providers, get_available_providers, get_device
from saccade.onnxruntime.session import InferenceSession, ModelMetadata, NodeArg
from saccade.onnxruntime.settings import (
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from saccade.onnxruntime.values import OrtValue

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

__version__ = "1.20.0"
"""The ONNX Runtime whose interface this is, for scripts that compare it."""
