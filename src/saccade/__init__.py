"""Saccade compiles vision models and vision operators to the machine they run on.

    import saccade

    model = saccade.compile("model.onnx")      # a path, bytes, or an onnx model
    y = model(x)                               # NumPy in, NumPy out; PyTorch in, PyTorch out
    print(model)                               # what it takes and gives
    print(model.plan(x=x.shape))               # every step: kernel, memory, what was passed over
    print(model.profile(x))                    # every step: time, share of the roofline
    model.warm({"x": (1, 3, 720, 1280)})       # a program for a size, ready in the cache
    model.save("model.saccade", {"x": x.shape})  # one file, which runs where no compiler is

`compile` has the options, `Model` what can be done with a model, and `SaccadeError` is the base of
every error that a user can cause. `saccade.vision` reads, prepares and draws images, `saccade.ops`
has PyTorch operators, `saccade.onnxruntime` is ONNX Runtime's module, and `InferenceSession` its
class. On the command line it is `saccade --help`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from saccade.compile import compile  # noqa: A004 - the name that users expect
from saccade.errors import (
    CacheError,
    CompileError,
    InputError,
    LoopError,
    ModelError,
    OptionError,
    OutOfBoundsError,
    OutOfMemoryError,
    PlanError,
    SaccadeError,
    UnsupportedModelError,
)
from saccade.limits import Limits
from saccade.locks import forkless
from saccade.options import Options, Precision
from saccade.version import VERSION

if TYPE_CHECKING:
    from saccade import onnxruntime as onnxruntime
    from saccade import ops as ops
    from saccade import vision as vision
    from saccade.model import Model, TensorInfo
    from saccade.onnxruntime import InferenceSession
    from saccade.plan import Plan
    from saccade.profile import Profile
    from saccade.report import Report

__all__ = [
    "CacheError",
    "CompileError",
    "InferenceSession",
    "InputError",
    "Limits",
    "LoopError",
    "Model",
    "ModelError",
    "OptionError",
    "Options",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "Plan",
    "PlanError",
    "Precision",
    "Profile",
    "Report",
    "SaccadeError",
    "TensorInfo",
    "UnsupportedModelError",
    "__version__",
    "compile",
]

__version__ = VERSION
_HOME = {
    "InferenceSession": "onnxruntime", "Model": "model", "Plan": "plan", "Profile": "profile",
    "Report": "report", "TensorInfo": "model",
}  # fmt: skip
_ROOMS = ("onnxruntime", "ops", "vision")


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import the classes of the engine, and whole rooms, when they are first asked for."""
    if name not in _HOME and name not in _ROOMS:
        raise AttributeError(f"module 'saccade' has no attribute {name!r}")
    try:
        with forkless:
            home = import_module(f"saccade.{_HOME.get(name, name)}")
    except ModuleNotFoundError as error:  # of PyTorch, without which help() and hasattr go on
        raise AttributeError(str(error), name=name) from error
    value = home if name in _ROOMS else getattr(home, name)
    # Found without coming here from now on.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is meant for users, imported or not yet: `help` and shells ask for it."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_ROOMS})
